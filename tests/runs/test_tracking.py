"""SwanLab gets what metrics.jsonl gets, and `disabled` does not even import it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.commands import sft, train
from alfworld_rl.errors import UsageError
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import generate
from alfworld_rl.runs.tracking import TrackingConfig, check_tracking, tracking
from scripted_backend import opener

STUB = Path(__file__).parents[1] / "e2e" / "stubs" / "swanlab"


def test_disabled_does_not_import_swanlab(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from alfworld_rl.runs.tracking import *\n"
        "config = TrackingConfig(swanlab_mode='disabled')\n"
        "with tracking(config, name='n', settings={}, folder=pathlib.Path(sys.argv[1])) as tracker:\n"
        "    tracker.log({'a/b': 1.0}, 1)\n"
        "sys.exit('swanlab' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert list(tmp_path.iterdir()) == []


def test_offline_keeps_the_metrics_here(tmp_path: Path) -> None:
    config = TrackingConfig(swanlab_mode="offline", swanlab_project="p")
    with tracking(config, name="n", settings={"seed": 1}, folder=tmp_path) as tracker:
        tracker.log({"reward/mean": 0.5}, 1)
    (data,) = (tmp_path / "swanlog").glob("run-*/*.swanlab")
    assert b"reward/mean" in data.read_bytes()


def test_online_without_a_key_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWANLAB_API_KEY", raising=False)
    monkeypatch.setenv("SWANLAB_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    with pytest.raises(UsageError, match="swanlab login"):
        check_tracking(TrackingConfig(swanlab_mode="online"))
    monkeypatch.setenv("SWANLAB_API_KEY", "k")
    check_tracking(TrackingConfig(swanlab_mode="online"))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in for SwanLab is told, a JSON a line; in a workspace with a few games."""
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(STUB)
    monkeypatch.delitem(sys.modules, "swanlab", raising=False)
    monkeypatch.setenv("SWANLAB_STUB", str(tmp_path / "told.jsonl"))
    monkeypatch.setenv("SWANLAB_API_KEY", "k")
    generate(Path("games"), train=6, valid_seen=2, valid_unseen=2, seed=3)
    yield tmp_path / "told.jsonl"
    sys.modules.pop("swanlab", None)


COMMANDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "train": (train, {"games_per_batch": 2, "group_size": 3, "max_episode_steps": 2, "save_every": 2}),
    "sft": (sft, {"batch_tokens": 3000, "max_episode_steps": 3, "save_every": 2, "data_root": ["games"]}),
}


def run(command: str, mode: str, **flags: Any) -> None:
    module, small = COMMANDS[command]
    given = {"backend": "local", "swanlab_mode": mode, **flags}
    if "resume" not in flags:
        given = {"base_model": "m", "data_root": "games", "max_trajectory_tokens": 60_000, **small, **given}
    module.run(module.CONFIG.from_flat(given), open_backend=opener(**BACKEND))


BACKEND: dict[str, Any] = {}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_goes_on_is_the_same_experiment_and_no_step_comes_twice(
    command: str, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies after update 3 was told, with update 2 the last saved: update 3 is done again, and not told again."""
    steps: list[str] = []

    def dies(moment: str) -> None:
        steps.append(moment)
        if steps.count("optim_step") == 4 and moment == "optim_step":
            raise RuntimeError("the process is gone")

    # A backend that cannot afford to save every update, as paid ones cannot.
    monkeypatch.setitem(BACKEND, "capabilities", train.BACKENDS["trio"].capabilities)
    monkeypatch.setitem(BACKEND, "moment", dies)
    with pytest.raises(RuntimeError):
        run(command, "online", run_name="a", max_steps=5)
    monkeypatch.delitem(BACKEND, "moment")
    run(command, "online", resume="a")
    lines = read_jsonl(told)
    first, second = [line for line in lines if line["call"] == "init"]
    assert "id" not in first
    assert second["id"] == json.loads(Path("08-alfworld/runs/a/swanlab.json").read_text())["id"]
    assert second["resume"] in ("allow", "must")
    assert [line["step"] for line in lines if line["call"] == "log"] == [1, 2, 3, 4, 5]
    assert [line["update"] for line in read_jsonl(Path("08-alfworld/runs/a/metrics.jsonl"))] == [1, 2, 3, 4, 5]
    assert [line.get("state") for line in lines if line["call"] == "finish"] == ["crashed", None]


def test_a_mode_that_cannot_go_on_says_so(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train", "offline", run_name="a", max_steps=2)
    capsys.readouterr()
    run("train", "offline", resume="a", max_steps=3)
    assert "SwanLab's mode offline cannot go on with an experiment" in capsys.readouterr().out
    lines = read_jsonl(told)
    assert [("id" in line) for line in lines if line["call"] == "init"] == [False, False]
    assert [line["step"] for line in lines if line["call"] == "log"] == [1, 2, 3]


def test_a_run_that_first_had_no_experiment_gets_one(told: Path) -> None:
    run("train", "disabled", run_name="a", max_steps=2)
    run("train", "online", resume="a", max_steps=3)
    lines = read_jsonl(told)
    assert [line["call"] for line in lines] == ["init", "log", "finish"]
    assert "id" not in lines[0]
    assert lines[1]["step"] == 3

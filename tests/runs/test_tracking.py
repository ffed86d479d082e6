"""Whoever watches metrics gets what metrics.jsonl gets, in the tool they know; the others are not even imported."""

import json
import subprocess
import sys
import time
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


def track(folder: Path, *steps: int | str, going_on: bool = True, **flags: Any) -> None:
    """Log `reward/mean` = step / 10 at each step."""
    config = TrackingConfig.from_flat(flags)
    with tracking(config, name="run", settings={"seed": 1}, folder=folder, going_on=going_on) as tracker:
        for step in steps:
            tracker.log({"reward/mean": int(step) / 10}, int(step))


def events(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard" / "run"))
    accumulator.Reload()
    return [(one.step, round(one.value, 6)) for one in accumulator.Scalars("reward/mean")]


@pytest.mark.parametrize("flags", ["track=('none',)", "swanlab_mode='disabled'", "track=('tensorboard',)"])
def test_only_what_is_asked_for_is_imported(flags: str, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from alfworld_rl.runs.tracking import *\n"
        f"config = TrackingConfig({flags})\n"
        "with tracking(config, name='n', settings={}, folder=pathlib.Path(sys.argv[1])) as tracker:\n"
        "    tracker.log({'a/b': 1.0}, 1)\n"
        "assert not {'swanlab', 'wandb'} & sys.modules.keys()\n"
        "assert ('tensorboard' in sys.modules) == ('tensorboard' in config.track)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert [path.name for path in tmp_path.iterdir()] == (["tensorboard"] if "tensorboard" in flags else [])


def test_swanlab_offline_keeps_the_metrics_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    track(tmp_path, 1, swanlab_mode="offline")
    (data,) = (tmp_path / "swanlog").glob("run-*/*.swanlab")
    assert b"reward/mean" in data.read_bytes()
    track(tmp_path, 2, swanlab_mode="offline")
    assert "becomes one of its own" in capsys.readouterr().out


def test_tensorboard_reads_what_was_logged_and_what_was_done_again_once(tmp_path: Path) -> None:
    track(tmp_path, 1, 2, 3, track=["tensorboard"])
    assert events(tmp_path) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    track(tmp_path, 3, 4, track=["tensorboard"])  # gone on with from a save after update 2
    assert events(tmp_path) == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]


def test_wandb_offline_goes_on_with_the_run_and_logs_no_step_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    track(tmp_path, 1, 2, track=["wandb"])
    first = json.loads((tmp_path / "wandb.json").read_text())
    track(tmp_path, 2, 3, track=["wandb"])
    assert json.loads((tmp_path / "wandb.json").read_text()) == {"id": first["id"], "step": 3}
    logs = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert {log.name for log in logs} == {f"run-{first['id']}.wandb"}
    # W&B writes from a process of its own, which may do so a moment after the run was finished.
    deadline = time.monotonic() + 30
    while not all(b"reward/mean" in log.read_bytes() for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_several_trackers_at_once(tmp_path: Path) -> None:
    track(tmp_path, 1, track=["swanlab", "tensorboard"], swanlab_mode="offline")
    assert events(tmp_path) == [(1, 0.1)]
    assert list((tmp_path / "swanlog").glob("run-*"))


def test_a_failure_inside_leaves_every_tracker_closed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no number"):
        track(tmp_path, 1, "no number", track=["swanlab", "tensorboard"], swanlab_mode="offline")
    assert events(tmp_path) == [(1, 0.1)]
    track(tmp_path, 2, track=["swanlab"], swanlab_mode="offline")  # SwanLab takes one experiment at a time


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="--track none"):
        TrackingConfig(track=("none", "wandb"))
    with pytest.raises(UsageError, match="it is disabled now"):
        check_tracking(TrackingConfig(track=("swanlab",), swanlab_mode="disabled"), asked={"track"})
    check_tracking(TrackingConfig(track=("swanlab",), swanlab_mode="disabled"))


def test_online_without_a_key_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SWANLAB_API_KEY", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWANLAB_ROOT", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    with pytest.raises(UsageError, match="swanlab login"):
        check_tracking(TrackingConfig(swanlab_mode="online"))
    with pytest.raises(UsageError, match="wandb login"):
        check_tracking(TrackingConfig(track=("wandb",), wandb_mode="online"))
    monkeypatch.setenv("SWANLAB_API_KEY", "k")
    monkeypatch.setenv("WANDB_API_KEY", "k")
    check_tracking(TrackingConfig(track=("swanlab", "wandb"), swanlab_mode="online", wandb_mode="online"))


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

"""Whoever watches metrics gets what metrics.jsonl gets, in the tool they know; the others are not even imported."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.errors import UsageError
from alfworld_rl.runs.tracking import TrackingConfig, check_tracking, tracking


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
        check_tracking(TrackingConfig(track=("swanlab",), swanlab_mode="disabled"))
    check_tracking(TrackingConfig(swanlab_mode="disabled"))


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

"""A run that is killed at any moment and goes on is the run that was never killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from alfworld_rl.files import whole_lines
from alfworld_rl.games import generate

HERE = Path(__file__).parent


def timeless(folder: Path) -> list[dict[str, Any]]:
    lines = whole_lines(folder / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def test_sigkill_at_twenty_random_moments(tmp_path: Path) -> None:
    data_root = tmp_path / "games"
    generate(data_root, train=5, valid_seen=0, valid_unseen=0, seed=4)
    (tmp_path / "08-alfworld").mkdir()
    done = subprocess.run(
        [sys.executable, HERE / "killed_runs.py", data_root, "1", "20"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    runs = tmp_path / "08-alfworld" / "runs"
    whole = timeless(runs / "whole")
    assert len(whole) == 4
    assert len(report["outcomes"]) == 20
    for outcome in report["outcomes"]:
        assert outcome["killed"] == -signal.SIGKILL, outcome
        assert outcome["completed"] == 0, outcome
        folder = runs / outcome["name"]
        assert timeless(folder) == whole, outcome
        state = json.loads((folder / "state.json").read_text())
        assert (state["update"], state["finished"]) == (4, True)
        for checkpoint in whole_lines(folder / "checkpoints.jsonl"):
            name = checkpoint["uri"].rpartition("/")[2]
            assert (folder / checkpoint["kind"] / name / "checkpoint.json").exists(), checkpoint

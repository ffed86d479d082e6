"""A run that is killed at any moment, or asked to end, goes on to be the run that nothing happened to."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.files import read_jsonl
from alfworld_rl.games import generate
from recorded_runs import timeless

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=64, valid_seen=0, valid_unseen=0, seed=1)  # enough that some are of held-out houses
    return root


@pytest.fixture
def process_runs(tmp_path: Path) -> Any:
    """Runs process_runs.py in `tmp_path`; returns what it reports."""
    (tmp_path / "08-alfworld").mkdir()

    def process_runs(*arguments: str | Path) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, HERE / "process_runs.py", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(HERE.parent)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report

    return process_runs


def assert_whole(folder: Path, whole: list[dict[str, Any]], outcome: dict[str, Any]) -> None:
    """The run in `folder` is the one whose metrics are `whole`, and all that it reported saved is there."""
    assert outcome["completed"] == 0, outcome
    assert timeless(folder) == whole, outcome
    state = json.loads((folder / "state.json").read_text())
    assert (state["update"], state["finished"]) == (4, True)
    for checkpoint in read_jsonl(folder / "checkpoints.jsonl"):
        name = checkpoint["uri"].rpartition("/")[2]
        assert (folder / checkpoint["kind"] / name / "checkpoint.json").exists(), checkpoint


@pytest.mark.parametrize("command", ["train", "sft"])
def test_sigkill_at_twenty_random_moments(command: str, data_root: Path, tmp_path: Path, process_runs: Any) -> None:
    report = process_runs("kill", command, data_root, "1", "20")
    runs = tmp_path / "08-alfworld" / "runs"
    whole = timeless(runs / "whole")
    assert len(whole) == 4
    assert any("validation/success_rate" in line for line in whole)
    assert any("dagger/round" in line for line in whole) == (command == "sft")
    assert len(report["outcomes"]) == 20
    for outcome in report["outcomes"]:
        assert outcome["killed"] == -signal.SIGKILL, outcome
        assert_whole(runs / outcome["name"], whole, outcome)


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_signal_that_asks_for_the_end_saves_says_how_to_go_on_and_is_told_by_the_exit_code(
    command: str, data_root: Path, tmp_path: Path, process_runs: Any
) -> None:
    report = process_runs("signal", command, data_root)
    runs = tmp_path / "08-alfworld" / "runs"
    whole = timeless(runs / "whole")
    assert {outcome["signal"] for outcome in report["outcomes"]} == {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
    assert not any(line["trainer/update_skipped"] for line in whole)
    for outcome in report["outcomes"]:
        assert outcome["code"] == 128 + outcome["signal"], outcome
        record = outcome["record"]
        # A signal that cannot wait leaves the games that are being played; everything else is finished.
        leaves = outcome["moment"] == "sample" and outcome["signal"] != signal.SIGINT
        assert record["update"] == (2 if leaves or outcome["moment"] == "save" else 3), outcome
        assert record["saved"]["update"] == record["update"], outcome
        assert record["saved"]["sampler_uri"] is not None, outcome
        assert not record["finished"], outcome
        assert f"alfworld-rl {command} --resume {outcome['name']}" in outcome["output"], outcome
        assert_whole(runs / outcome["name"], whole, outcome)

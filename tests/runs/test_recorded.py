"""What an earlier version wrote is read and gone on with; numbers that were written down once still come out.

Run as a program, this file writes the golden metrics down again.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.cli import main
from alfworld_rl.commands import train
from alfworld_rl.commands.train import TrainConfig
from alfworld_rl.evaluation.results import read_results
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import generate
from recorded_runs import RECORDED, golden, timeless
from scripted_backend import opener

GOLDEN: dict[str, dict[str, Any]] = {
    "mean": {},
    "gigpo": {"advantage": "gigpo"},
    "leave-one-out": {"advantage": "leave-one-out"},
    "dynamic": {"dynamic_sampling": 3, "kl_coef": 0.1, "minibatches": 2, "epochs": 2, "warmup_steps": 2},
}
SMALL: dict[str, Any] = {
    "backend": "local",
    "base_model": "scripted",  # with a model of one's own the local backend's presets have no part
    "data_root": "games",
    "max_steps": 4,
    "games_per_batch": 2,
    "group_size": 3,
    "max_episode_steps": 3,
    "max_trajectory_tokens": 60_000,
    "save_every": 2,
    "swanlab_mode": "disabled",
}
COSTS = ("trainer/cost", "trainer/total_cost")
"""The version before charged for the local backend."""


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "08-alfworld" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    generate(Path("games"), train=6, valid_seen=2, valid_unseen=2, seed=3)


def metrics_of(name: str) -> list[dict[str, Any]]:
    config = TrainConfig.from_flat({**SMALL, "run_name": name, **GOLDEN[name]})
    folder = train.run(config, open_backend=opener())
    assert folder is not None
    return timeless(folder)


TRAINED = {
    *("advantage/mean", "advantage/std", "train/loss_sum", "train/loss_mean", "train/token_count", "train/grad_norm"),
    *("train/trajectories", "train/tokens_billed", "trainer/total_trained_tokens"),
}
"""What differs since trajectories without an advantage in any step are no longer sent."""


def assert_same(found: dict[str, Any], expected: dict[str, Any], but: Set[str] = frozenset()) -> None:
    """Every number that was written down is as it was; new names may have come."""
    known = [name for name in expected if name not in COSTS and name not in but]
    assert {name: found[name] for name in known} == pytest.approx({name: expected[name] for name in known}, rel=1e-6)


@pytest.mark.parametrize("name", GOLDEN)
def test_short_runs_have_the_metrics_that_were_written_down(name: str) -> None:
    expected = golden(name)
    found = metrics_of(name)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def test_a_run_folder_of_the_version_before_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Path("08-alfworld/runs")
    shutil.copytree(RECORDED / "run", runs / "old")
    before = timeless(runs / "old")
    asked = TrainConfig.from_flat({"backend": "local", "resume": "old", "max_steps": 4})
    folder = train.run(asked, open_backend=opener())
    assert folder is not None
    assert "settings.json is of an older version" in capsys.readouterr().out
    *first, fourth = timeless(folder)
    assert first == before
    (expected,) = golden("before_update_4")
    assert_same(fourth, expected, but=TRAINED)
    assert fourth["train/trajectories"] == expected["train/trajectories"] - 1  # one of three had the mean reward
    record = folder.record()
    assert record is not None
    assert (record.update, record.finished, record.resumes) == (4, True, 1)
    # Its settings are complete now, with what the version before did where there was no flag.
    settings = folder.settings("train")
    assert (settings["reward"], settings["schedule"], settings["format"]) == ("document", "constant", "tool-call")
    assert settings.keys() >= TrainConfig.settings.keys()


def test_its_settings_are_a_settings_file() -> None:
    config = RECORDED / "run" / "settings.json"
    code = main(["train", "--config", str(config), "--run-name", "again", "--dry-run", "--max-steps", "2"])
    assert code == 0


def test_a_results_file_of_the_version_before_is_read_and_scored_again(capsys: pytest.CaptureFixture[str]) -> None:
    file = RECORDED / "results.jsonl"
    results = read_results(file)
    assert (results.base_model, results.overall.games, len(results.rows)) == ("alfworld-tiny", 4, 4)
    assert results.settings["reward"] == "document"
    assert sum(row.reward or 0 for row in results.rows) < sum(row.won for row in results.rows)
    assert main(["analysis", "--results", f"Old={file}", "--output", "a.png"]) == 0
    again = ["analysis", "--results", f"Old={file}", "--output", "b.png", "--score-again", "--reward", "success"]
    capsys.readouterr()
    assert main(again) == 0
    assert Path("b.png").exists()


def test_a_results_file_of_the_version_before_is_compared_with_one_of_today_and_finished(
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    file = RECORDED / "results.jsonl"
    play = ["eval", "--backend", "local", "--base-model", "alfworld-tiny", "--data-root", "games", "--split", "all"]
    play += ["--max-episode-steps", "20"]
    assert main([*play, "--output", "new.jsonl"]) == 0
    old, new = read_jsonl(file), read_jsonl(Path("new.jsonl"))
    for before, after in zip(old[:-1], new[:-1], strict=True):
        assert {name: after[name] for name in before} == before
    assert new[-1]["metrics"] == old[-1]["metrics"]
    capsys.readouterr()
    assert main(["analysis", "--results", f"Old={file}", "New=new.jsonl", "--output", "c.png"]) == 0
    assert "Old -> New: +0.0% on the same 4 games; 0 won only by New, 0 only by Old" in capsys.readouterr().out

    # Unfinished, as that version left it: its rows so far, and beside them what they were played with.
    played = old[-1]["played"]
    Path("old.jsonl.settings").write_text(json.dumps(played))
    Path("old.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in old[:2]))
    assert main([*play, "--output", "old.jsonl", "--resume-output"]) == 0
    assert "2 of 4 games are there already" in capsys.readouterr().out
    finished = read_jsonl(Path("old.jsonl"))
    assert finished[:2] == old[:2]
    assert finished[2:-1] == new[2:-1]
    assert finished[-1]["metrics"] == new[-1]["metrics"]


def record() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "08-alfworld").mkdir()
        os.chdir(folder)
        generate(Path("games"), train=6, valid_seen=2, valid_unseen=2, seed=3)
        for name in sys.argv[1:] or GOLDEN:
            file = RECORDED / "golden_metrics" / f"{name}.json"
            file.write_text(json.dumps(metrics_of(name), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()

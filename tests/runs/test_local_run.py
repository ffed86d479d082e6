"""The document's line on this computer, through the command line: train, go on, evaluate, draw."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from alfworld_rl.rollout import Trajectory

from alfworld_rl.cli import main
from alfworld_rl.files import whole_lines
from alfworld_rl.games import generate
from alfworld_rl.runs.folder import RunFolder

torch = pytest.importorskip("torch")

PLAY = [
    "--backend",
    "local",
    "--max-episode-steps",
    "4",
    "--max-assistant-tokens",
    "32",
    "--max-trajectory-tokens",
    "3000",
]


def timeless(folder: Path) -> list[dict[str, Any]]:
    lines = whole_lines(folder / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def test_train_resume_evaluate_and_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    # Rewards by lot, so that there is something to learn in every update, whatever the policy can do.
    monkeypatch.setattr(
        Trajectory, "reward", property(lambda self: float(sum(self.transcript.prompt) % 2 + self.branch))
    )
    generate(Path("games"), train=4, valid_seen=2, valid_unseen=2, seed=5)
    common = [*PLAY, "--data-root", "games"]
    train = [
        *("train", *common, "--games-per-batch", "2", "--group-size", "4", "--swanlab-mode", "disabled"),
        *("--learning-rate", "1e-3", "--lora-rank", "4", "--save-every", "0"),
    ]
    assert main([*train, "--max-steps", "3", "--run-name", "whole"]) == 0
    assert main([*train, "--max-steps", "2", "--run-name", "parts"]) == 0
    assert main(["train", "--resume", "parts", "--max-steps", "3"]) == 0
    runs = Path("08-alfworld/runs")
    assert timeless(runs / "parts") == timeless(runs / "whole")
    assert all(line["trainer/optimizer_steps"] == 1 for line in timeless(runs / "whole"))

    record = RunFolder.existing(runs, "parts").record()
    assert record is not None
    assert record.saved is not None
    printed = capsys.readouterr().out
    assert f"Saved state: {record.saved.state_uri}\n" in printed
    assert f"Saved sampler weights: {record.saved.sampler_uri}\n" in printed

    evaluate = ["eval", *common, "--limit-per-split", "1"]
    assert main([*evaluate, "--output", "base.jsonl"]) == 0
    assert main([*evaluate, "--output", "after.jsonl", "--model-path", str(record.saved.sampler_uri)]) == 0
    assert main(["analysis", "--results", "Base=base.jsonl", "After=after.jsonl"]) == 0
    assert Path("08-alfworld/images/alfworld_checkpoint_evaluation.png").stat().st_size > 10_000

    shutil.rmtree(runs / "whole")
    assert main([*evaluate, "--output", "none.jsonl", "--model-path", "local://whole/sampler_weights/step-000003"]) == 2
    assert "there is no checkpoint local://whole" in capsys.readouterr().err
    assert not Path("none.jsonl").exists()

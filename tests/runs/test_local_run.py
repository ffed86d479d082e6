"""The document's line on this computer, through the command line: train, go on, evaluate, draw."""

import shutil
from pathlib import Path

import pytest

from alfworld_rl.cli import main
from alfworld_rl.games import generate
from alfworld_rl.runs.folder import RunFolder
from recorded_runs import timeless

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


REWARD = (
    """
def by_lot(trajectory):
    """
    + '"""'
    + """A reward a step, so that there is something to learn in every update, whatever the policy can do."""
    + '"""'
    + """
    rewards = [0.0] * len(trajectory.steps)
    rewards[-1] = float(sum(trajectory.transcript.prompt) % 2 + trajectory.branch)
    return rewards
"""
)


def test_train_resume_evaluate_and_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_reward.py").write_text(REWARD)
    monkeypatch.syspath_prepend(tmp_path)
    generate(Path("games"), train=4, valid_seen=2, valid_unseen=2, seed=5)
    common = [*PLAY, "--data-root", "games"]
    train = [
        *("train", *common, "--games-per-batch", "2", "--group-size", "4", "--swanlab-mode", "disabled"),
        *("--learning-rate", "1e-3", "--lora-rank", "4", "--save-every", "0", "--reward", "my_reward:by_lot"),
        *("--base-model", "alfworld-tiny", "--advantage", "mean", "--minibatches", "1"),
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
    assert Path("08-alfworld/images/alfworld_checkpoint_evaluation.png").exists()

    shutil.rmtree(runs / "whole")
    assert main([*evaluate, "--output", "none.jsonl", "--model-path", "local://whole/sampler_weights/step-000003"]) == 2
    assert "there is no checkpoint local://whole" in capsys.readouterr().err
    assert not Path("none.jsonl").exists()

"""Another environment than ALFWorld goes the whole way: played, trained and evaluated, by functions and commands."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent_models import ScriptedSampler, call
from alfworld_rl.agents import FORMATS
from alfworld_rl.algorithms import ESTIMATORS, REWARDS, estimate, make_data, optimize, score_groups
from alfworld_rl.backends.kinds import LOCAL, BackendKind
from alfworld_rl.cli import main
from alfworld_rl.commands import train
from alfworld_rl.envs import ENVIRONMENTS
from alfworld_rl.envs.base import EnvironmentFamily
from alfworld_rl.evaluation.evaluate import evaluate
from alfworld_rl.evaluation.results import read_results
from alfworld_rl.rollouts import Limits, rollout
from alfworld_rl.types import AdamParams, LossSpec, TrainingStart
from envs.toy import Corridors, family
from scripted_backend import TOKENIZER, PolicySampler, ScriptedBackend, opener

AGENT = FORMATS["tool-call"](TOKENIZER)
LIMITS = Limits(max_episode_steps=8, max_assistant_tokens=400)


def knows_the_way(prompt: str, number: int) -> str:
    """Walks to its door and opens it; the second of a group turns back once."""
    goal, turn = int(re.search(r"open door (\d)", prompt)[1]), prompt.count("<tool_response>\n")
    way = ["right"] * goal + ["open"]
    if "You left at" in prompt or (turn == 0 and number == 1):
        way = ["left", *way]
    return call(way[turn])


def wanders(prompt: str, seed: int, weights: float) -> str:
    chance = random.Random(f"{seed}/{weights}")
    return call(chance.choice(["left", "right", "open"])) if chance.random() < 0.8 else "I give up."


SCRIPTED = BackendKind(
    capabilities=LOCAL,
    open=lambda options: ScriptedBackend(options.runs_dir, options.run_name, player=wanders),
)
"""What `--backend test_toy:SCRIPTED` means."""


async def test_trajectories_of_another_environment_are_trained_on():
    sampler = ScriptedSampler(TOKENIZER, knows_the_way)
    assert isinstance(Corridors(), EnvironmentFamily)
    groups = await rollout(Corridors().tasks("train")[:4], sampler, AGENT, Corridors(), group_size=2, limits=LIMITS)
    for goal, group in enumerate(groups):
        direct, slow = group.trajectories
        assert (direct.won, slow.won, direct.task) == (True, True, f"open door {goal}")
        assert [step.state_key for step in direct.steps] == list(range(goal + 1))
        assert [step.action for step in slow.steps] == ["left", *(step.action for step in direct.steps)]
    rewards = score_groups(groups, REWARDS["document"])
    assert not make_data(groups, estimate(groups, rewards, ESTIMATORS["mean"])).data
    made = make_data(groups, estimate(groups, rewards, ESTIMATORS["gigpo"]))
    assert (made.informative_groups, len(made.data)) == (4, 8)

    backend = ScriptedBackend(Path("unused"), "run")
    trainer = backend.trainer(TrainingStart(base_model="any"), lora_rank=0, seed=1)
    before = trainer.weights
    assert optimize(trainer, made.data, LossSpec(), AdamParams()).optimizer_steps == 1
    assert trainer.weights != before


async def test_another_environment_is_evaluated():
    tasks = Corridors().tasks("valid_seen")[:4]
    found = await evaluate(tasks, ScriptedSampler(TOKENIZER, knows_the_way), AGENT, Corridors(), limits=LIMITS)
    assert found.success_rate == 1
    assert found.metrics["eval/valid_seen/success_rate/corridor"] == 1
    assert [row.steps for row in found.rows] == [1, 2, 3, 4]
    wandering = PolicySampler(wanders, 0.5)
    lost = await evaluate(tasks, wandering, AGENT, Corridors(), limits=LIMITS, samples_per_task=4)
    assert 0 < lost.success_rate < 1


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "08-alfworld").mkdir()
    return tmp_path


COMMON = ["--backend", "test_toy:SCRIPTED", "--environment", "envs.toy:family"]
COMMON += ["--max-episode-steps", "8", "--max-assistant-tokens", "400", "--swanlab-mode", "disabled"]


def test_the_commands_train_and_evaluate_another_environment(workspace, capsys):
    assert ENVIRONMENTS["envs.toy:family"] is family
    run = ["train", *COMMON, "--run-name", "walk", "--games-per-batch", "3", "--group-size", "4", "--max-steps", "2"]
    assert main([*run, "--advantage", "gigpo"]) == 0, capsys.readouterr().err
    (folder,) = workspace.rglob("walk/metrics.jsonl")
    lines = [json.loads(line) for line in folder.read_text().splitlines()]
    assert [line["rollout/trajectories"] for line in lines] == [12, 12]
    assert any(line["train/trajectories"] for line in lines)
    told = capsys.readouterr().out
    weights = re.findall(r"Saved sampler weights: (\S+)", told)[-1]

    output = workspace / "walk.jsonl"
    command = ["eval", *COMMON, "--model-path", weights, "--limit-per-split", "4", "--samples-per-game", "2"]
    assert main([*command, "--output", str(output)]) == 0, capsys.readouterr().err
    results = read_results(output)
    assert len(results.rows) == 16  # two splits of four tasks, two samples each
    assert {row.task_type for row in results.rows} == {"corridor"}
    assert "corridor" in capsys.readouterr().out


def test_tasks_can_be_held_out_of_an_environment_without_houses(workspace):
    config = train.TrainConfig.from_flat(
        {
            "backend": "test_toy:SCRIPTED",
            "environment": "envs.toy:family",
            "games_per_batch": 2,
            "group_size": 2,
            "max_steps": 1,
            "eval_games": 2,
            "eval_every": 1,
            "swanlab_mode": "disabled",
        }
    )
    folder = train.run(config, open_backend=opener(player=wanders))
    (line,) = folder.metrics()
    assert line["validation/games"] >= 1


@pytest.mark.parametrize("given", [{}, {"temperature": 0.7}, {"top_p": 0.9}])
@pytest.mark.parametrize("told", [True, False])
def test_sampling_otherwise_than_is_told_is_warned_of_once(workspace, capsys, given, told):
    """Where a backend's logprobs are not those of the sampling, the ratio of probabilities is wrong."""
    can = replace(LOCAL, behaviour_logprobs=told)
    config = train.TrainConfig.from_flat(
        {
            "backend": "test_toy:SCRIPTED",
            "environment": "envs.toy:family",
            "max_steps": 2,
            "games_per_batch": 2,
            "group_size": 2,
            "swanlab_mode": "disabled",
            **given,
        }
    )
    train.run(config, open_backend=opener(player=wanders, capabilities=can))
    warned = capsys.readouterr().out.count("Warning: this backend gives logprobs at temperature 1")
    assert warned == (1 if given and not told else 0)


def test_an_environment_that_is_not_there_is_one_sentence(workspace, capsys):
    assert main(["train", "--environment", "envs.toi:family"]) == 2
    assert "envs.toi:family cannot be imported" in capsys.readouterr().err


def thinks(prompt: str, seed: int, weights: float) -> str:
    return f"<think>Door?</think>{wanders(prompt, seed, weights)}"


THINKING = BackendKind(
    capabilities=LOCAL,
    open=lambda options: ScriptedBackend(options.runs_dir, options.run_name, player=thinks),
)


def test_tokens_of_thought_go_into_metrics_results_and_the_table(workspace, capsys):
    thought = len(TOKENIZER.encode("<think>Door?</think>", add_special_tokens=False))
    common = ["--backend", "test_toy:THINKING", *COMMON[2:], "--thinking", "on"]
    run = ["train", *common, "--run-name", "think", "--games-per-batch", "2", "--group-size", "2", "--max-steps", "1"]
    assert main(run) == 0, capsys.readouterr().err
    (file,) = workspace.rglob("think/metrics.jsonl")
    assert json.loads(file.read_text())["rollout/thought_tokens_per_step"] == thought

    output = workspace / "think.jsonl"
    command = ["eval", *common, "--limit-per-split", "2", "--output", str(output)]
    assert main(command) == 0, capsys.readouterr().err
    results = read_results(output)
    assert [row.thought_tokens for row in results.rows] == [thought * row.steps for row in results.rows]
    summary = json.loads(output.read_text().splitlines()[-1])
    assert summary["metrics"]["eval/all/thought_tokens_per_step"] == thought
    capsys.readouterr()
    assert main(["analysis", "--results", f"It={output}", "--output", str(workspace / "it.png")]) == 0
    told = capsys.readouterr().out
    assert "thought" in told
    assert f"{thought}.0" in told

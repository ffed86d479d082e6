"""What trajectories say by name, counted by hand."""

from dataclasses import dataclass

import pytest

from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.rollouts import Group, Step, Trajectory
from alfworld_rl.rollouts.metrics import rollout_metrics
from alfworld_rl.types import Completion, Usage


@dataclass(frozen=True)
class Task:
    game_id: str
    split: str = "train"
    task_type: str = "find"


def trajectory(stop_reason, accepted=(), task=Task("a"), **more):
    transcript = Transcript([1, 2, 3])
    steps = []
    for number, ok in enumerate(accepted):
        transcript.write(Completion((10, 11), (-0.5, -0.5), "stop"))
        transcript.show([4])
        steps.append(Step(transcript.turns[-1], "", "", "x" if ok is not None else None, bool(ok), False, "", number))
    won = stop_reason == "won"
    return Trajectory(game=task, transcript=transcript, steps=steps, won=won, stop_reason=stop_reason, **more)


def test_counts_are_of_all_and_means_of_those_that_did_not_fail():
    groups = [
        Group(Task("a"), [trajectory("won", (True, True)), trajectory("failed", (True,), error="no")]),
        Group(
            Task("b", task_type="clean"), [trajectory("max_steps", (None, False, True, True), Task("b", "", "clean"))]
        ),
    ]
    found = rollout_metrics(groups, Usage(prefill=100, cached=25, sampled=9))
    assert found["rollout/groups"] == 2
    assert (found["rollout/trajectories"], found["rollout/failed"]) == (3, 1)
    stopped = {name.rpartition("/")[2]: value for name, value in found.items() if name.startswith("rollout/stopped/")}
    assert stopped == {"won": 1, "environment_done": 0, "max_steps": 1, "token_limit": 0, "failed": 1}
    assert found["reward/success_rate"] == 0.5
    assert (found["reward/success_rate/find"], found["reward/success_rate/clean"]) == (1, 0)
    assert found["rollout/steps_mean"] == 3
    assert found["rollout/invalid_actions_mean"] == 1
    assert found["rollout/truncated_rate"] == 0.5
    # Of six steps one asks for nothing, and one for what is not on offer.
    assert found["rollout/valid_tool_call_rate"] == pytest.approx(5 / 6)
    assert found["rollout/admissible_action_rate"] == pytest.approx(4 / 6)
    assert found["rollout/cached_share"] == 0.25


def test_no_trajectory_at_all_is_no_error():
    assert rollout_metrics([], Usage())["rollout/steps_mean"] == 0

"""What a trajectory is worth, step by step: the rewards, by name.

A reward gives one number a step; their sum is the return. It may give them in named parts, which then stand apart in
the metrics.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.registry import Registry
from alfworld_rl.rollouts import Group, Trajectory

Numbers_S = NDArray[np.float64]

Reward = Callable[..., Numbers_S | Mapping[str, Numbers_S]]
"""(trajectory, **parameters) -> a number for each of its S steps, or such numbers by the names of their parts."""

REWARDS: Registry[Reward] = Registry("reward")


@dataclass(frozen=True, slots=True, eq=False)
class StepRewards:
    """The rewards of one trajectory: `parts` by name, each of shape (S,)."""

    parts: Mapping[str, Numbers_S]

    @property
    def steps_S(self) -> Numbers_S:
        """The reward of each step."""
        return np.sum(list(self.parts.values()), axis=0, dtype=np.float64)

    @property
    def total(self) -> float:
        """The return: the rewards of all steps together."""
        return math.fsum(value for part in self.parts.values() for value in part)


def score(trajectory: Trajectory, reward: Reward) -> StepRewards:
    """The rewards of `trajectory`. Raises ValueError where `reward` gives another number of them than steps."""
    given = reward(trajectory)
    parts = given if isinstance(given, Mapping) else {"reward": given}
    numbers = {name: np.asarray(part, np.float64) for name, part in parts.items()}
    for name, part in numbers.items():
        if part.shape != (len(trajectory.steps),):
            raise ValueError(
                f"the reward's part {name!r} has the shape {part.shape} for {len(trajectory.steps)} steps; "
                "a reward gives one number a step"
            )
    return StepRewards(numbers)


def score_groups(groups: Sequence[Group], reward: Reward) -> list[list[StepRewards]]:
    """The rewards of every trajectory of every group."""
    return [[score(trajectory, reward) for trajectory in group.trajectories] for group in groups]


def reward_metrics(groups: Sequence[Group], rewards: Sequence[Sequence[StepRewards]]) -> dict[str, float]:
    """`reward/` metrics over the trajectories that did not fail: of the return and of each part."""
    finished = [
        one
        for group, of_group in zip(groups, rewards, strict=True)
        for trajectory, one in zip(group.trajectories, of_group, strict=True)
        if not trajectory.failed
    ]
    totals = [one.total for one in finished] or [0.0]
    metrics = {"reward/mean": float(np.mean(totals)), "reward/min": min(totals), "reward/max": max(totals)}
    for name in sorted({name for one in finished for name in one.parts}):
        metrics[f"reward/part/{name}"] = float(np.mean([one.parts[name].sum() for one in finished]))
    return metrics


@REWARDS.register("document", "1 for a won game, less 0.1 for every invalid action (that of the quick start)")
def document(trajectory: Trajectory, *, invalid_penalty: float = 0.1) -> Mapping[str, Numbers_S]:
    """1 at the step that wins, and minus `invalid_penalty` at every step whose action was not accepted.

    A lost trajectory that ends early keeps the penalties that it did not incur, so that running into a limit can pay:
    docs/results.md shows policies that learn to. See `penalized_success`.
    """
    return {
        "success": success(trajectory),
        "invalid": -invalid_penalty * _invalid_S(trajectory),
    }


@REWARDS.register("success", "1 for a won game, else 0")
def success(trajectory: Trajectory) -> Numbers_S:
    """1 at the step that wins, nothing else."""
    steps_S = np.zeros(len(trajectory.steps))
    steps_S[-1:] = float(trajectory.won)
    return steps_S


@REWARDS.register("penalized-success", "as document for a won game, but at least a floor; 0 for a lost one")
def penalized_success(
    trajectory: Trajectory, *, invalid_penalty: float = 0.1, floor: float = 0.1
) -> Mapping[str, Numbers_S]:
    """Penalties count in won trajectories alone, and leave at least `floor` of the 1 for winning.

    Every lost trajectory has the return 0, the least there is, so that giving up, or running into a limit, never pays.
    """
    invalid_S = _invalid_S(trajectory) * float(trajectory.won)
    count = invalid_S.sum()
    penalty = min(invalid_penalty, (1 - floor) / count) if count else 0.0
    return {"success": success(trajectory), "invalid": -penalty * invalid_S}


def _invalid_S(trajectory: Trajectory) -> Numbers_S:
    return np.array([not step.accepted for step in trajectory.steps], np.float64)

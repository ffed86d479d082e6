"""How much better each step was than one could expect: the advantage estimators, by name.

All compare the trajectories of one group, which start from the same state of the same task. An estimator sees every
trajectory of it that can be compared; what then has no advantage anywhere is left out by `make_data`, after it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.registry import Registry
from alfworld_rl.rollouts import Group, Trajectory

Numbers_S = NDArray[np.float64]

Estimator = Callable[..., Sequence[Numbers_S]]
"""(trajectories of a group, their rewards: S_i numbers each, **parameters) -> S_i advantages each."""

ESTIMATORS: Registry[Estimator] = Registry("advantage estimator")


@ESTIMATORS.register("mean", "the return less the group's mean return (that of the quick start)")
def mean(trajectories: Sequence[Trajectory], rewards: Sequence[Numbers_S]) -> list[Numbers_S]:
    """A_i = R_i - mean(R) at every step, not divided by the standard deviation.

    Without the division hard and easy tasks weigh alike (Dr. GRPO, arXiv 2503.20783).
    """
    returns_G = _returns(rewards)
    return _same_at_every_step(returns_G - returns_G.mean(), rewards)


@ESTIMATORS.register("standardized", "the same, divided by the group's standard deviation: GRPO")
def standardized(
    trajectories: Sequence[Trajectory], rewards: Sequence[Numbers_S], *, epsilon: float = 1e-6
) -> list[Numbers_S]:
    """GRPO's outcome advantage, A_i = (R_i - mean(R)) / (std(R) + epsilon), with the population's deviation.

    Source: arXiv 2402.03300; `epsilon` makes equal returns 0 instead of 0/0.
    """
    returns_G = _returns(rewards)
    return _same_at_every_step((returns_G - returns_G.mean()) / (returns_G.std() + epsilon), rewards)


@ESTIMATORS.register("leave-one-out", "the return less the mean return of the others: RLOO")
def leave_one_out(trajectories: Sequence[Trajectory], rewards: Sequence[Numbers_S]) -> list[Numbers_S]:
    """A_i = R_i - mean(R_j, j != i) at every step (arXiv 2402.14740); 0 where there is no other."""
    returns_G = _returns(rewards)
    if len(returns_G) < 2:
        return _same_at_every_step(np.zeros_like(returns_G), rewards)
    others_G = (returns_G.sum() - returns_G) / (len(returns_G) - 1)
    return _same_at_every_step(returns_G - others_G, rewards)


@ESTIMATORS.register("gigpo", "mean, plus how a step did among those taken in the same state: GiGPO")
def gigpo(
    trajectories: Sequence[Trajectory],
    rewards: Sequence[Numbers_S],
    *,
    discount: float = 0.95,
    step_weight: float = 1.0,
) -> list[Numbers_S]:
    """One advantage a step, of the trajectory in its group plus of the step among like steps (arXiv 2505.10978).

    A_it = (R_i - mean(R)) + step_weight (R_it - mean of R_jk over all steps of the group that were taken in the same
    state), R_it being the sum of the rewards from step t on, discounted by `discount` a step. The paper's
    normalisation is 1 here, so that advantages have the scale of `mean`; the defaults are the paper's. A state that
    was visited once has nothing to compare and adds nothing.
    """
    returns = [_discounted(rewards_S, discount) for rewards_S in rewards]
    visits: dict[Hashable, list[float]] = defaultdict(list)
    for trajectory, returns_S in zip(trajectories, returns, strict=True):
        for step, value in zip(trajectory.steps, returns_S, strict=True):
            visits[step.state_key].append(value)
    baselines = {key: sum(values) / len(values) for key, values in visits.items()}
    return [
        of_episode_S
        + step_weight * (returns_S - np.array([baselines[step.state_key] for step in trajectory.steps], np.float64))
        for trajectory, returns_S, of_episode_S in zip(trajectories, returns, mean(trajectories, rewards), strict=True)
    ]


def comparable(group: Group) -> list[int]:
    """Which trajectories of a group can be compared and trained on: those that did not fail and wrote something."""
    return [
        index for index, one in enumerate(group.trajectories) if not one.failed and one.transcript.written_count > 0
    ]


def _returns(rewards: Sequence[Numbers_S]) -> Numbers_S:
    return np.array([rewards_S.sum() for rewards_S in rewards], np.float64)


def _same_at_every_step(values_G: Numbers_S, rewards: Sequence[Numbers_S]) -> list[Numbers_S]:
    return [np.full(len(rewards_S), value) for value, rewards_S in zip(values_G, rewards, strict=True)]


def _discounted(rewards_S: Numbers_S, discount: float) -> Numbers_S:
    returns_S = np.zeros(len(rewards_S))
    following = 0.0
    for index in range(len(rewards_S) - 1, -1, -1):
        following = rewards_S[index] + discount * following
        returns_S[index] = following
    return returns_S

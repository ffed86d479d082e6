"""How much better each trajectory was than one could expect: the advantage estimators, by name.

All compare the trajectories of one group, which start from the same state of the same game. Trajectories that
failed, or in which the model wrote nothing, are neither trained on nor part of any baseline.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.rollout import Group, Trajectory

AdvantageName = Literal["mean", "standardized", "leave-one-out", "gigpo"]

#: For each trajectory one number, or one for each of its steps.
Advantages = Sequence[float | Sequence[float]]

GIGPO_DISCOUNT = 0.95
GIGPO_STEP_WEIGHT = 1.0


def mean_advantages(trajectories: Sequence[Trajectory]) -> list[float]:
    """The reward less the group's mean reward, A_i = r_i - mean(r), not divided by its standard deviation.

    Without the division hard and easy games weigh alike (Dr. GRPO, arXiv 2503.20783).
    """
    rewards_G = _rewards(trajectories)
    return list(rewards_G - rewards_G.mean())


def standardized_advantages(trajectories: Sequence[Trajectory]) -> list[float]:
    """GRPO's outcome advantage, A_i = (r_i - mean(r)) / std(r), with the population's deviation (arXiv 2402.03300)."""
    rewards_G = _rewards(trajectories)
    return list((rewards_G - rewards_G.mean()) / rewards_G.std())


def leave_one_out_advantages(trajectories: Sequence[Trajectory]) -> list[float]:
    """RLOO: the reward less the mean reward of the others, A_i = r_i - mean(r_j, j != i) (arXiv 2402.14740)."""
    rewards_G = _rewards(trajectories)
    others_G = (rewards_G.sum() - rewards_G) / (len(rewards_G) - 1)
    return list(rewards_G - others_G)


def gigpo_advantages(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """GiGPO: one advantage a step, of the trajectory in its group plus of the step among like steps (arXiv 2505.10978).

    A_it = (r_i - mean(r)) + w (R_it - mean of R over all steps of the group that were taken in the same state of the
    world), R_it being the discounted sum of the rewards from step t on. The paper's normalisation is 1 here, so
    that advantages have the scale of `mean`; its w is 1 and its discount 0.95. A state that was visited once has
    nothing to compare and adds nothing.
    """
    returns = [_discounted(trajectory.step_rewards) for trajectory in trajectories]
    visits: dict[int, list[float]] = defaultdict(list)
    for trajectory, returns_T in zip(trajectories, returns, strict=True):
        for anchor, value in zip(trajectory.anchors, returns_T, strict=True):
            visits[anchor].append(value)
    baselines = {anchor: sum(values) / len(values) for anchor, values in visits.items()}
    return [
        [
            of_episode + GIGPO_STEP_WEIGHT * (value - baselines[anchor])
            for anchor, value in zip(trajectory.anchors, returns_T, strict=True)
        ]
        for trajectory, returns_T, of_episode in zip(trajectories, returns, mean_advantages(trajectories), strict=True)
    ]


ESTIMATORS: Mapping[AdvantageName, Callable[[Sequence[Trajectory]], Advantages]] = {
    "mean": mean_advantages,
    "standardized": standardized_advantages,
    "leave-one-out": leave_one_out_advantages,
    "gigpo": gigpo_advantages,
}


def comparable(group: Group) -> list[Trajectory]:
    """The trajectories of a group that can be compared and trained on."""
    return [one for one in group.trajectories if not one.failed and one.transcript.written_count > 0]


Verdict = Literal["informative", "degenerate", "too_few"]


def verdict(group: Group) -> Verdict:
    """Whether a group teaches anything: `degenerate` if all rewards are equal, `too_few` with less than two of them."""
    rewards = [trajectory.reward for trajectory in comparable(group)]
    if len(rewards) < 2:
        return "too_few"
    return "informative" if max(rewards) - min(rewards) > 1e-9 else "degenerate"


def replacements(groups: Sequence[Group], *, wanted: int, extra_left: int) -> int:
    """How many more games to play so that `wanted` groups teach something, with `extra_left` games left to spend.

    Dynamic sampling of DAPO (arXiv 2503.14476), bounded: groups without a gradient are replaced, not averaged in.
    """
    informative = sum(verdict(group) == "informative" for group in groups)
    return max(0, min(wanted - informative, extra_left))


def _rewards(trajectories: Sequence[Trajectory]) -> NDArray[np.float64]:
    return np.array([trajectory.reward for trajectory in trajectories], np.float64)


def _discounted(rewards: Sequence[float]) -> list[float]:
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + GIGPO_DISCOUNT * following
        returns.append(following)
    return returns[::-1]

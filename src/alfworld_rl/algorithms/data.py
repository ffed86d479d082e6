"""Groups of trajectories and the advantages of their steps become training data."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.algorithms.advantages import Estimator, Numbers_S, comparable
from alfworld_rl.algorithms.rewards import StepRewards
from alfworld_rl.backends.base import Sampler
from alfworld_rl.rollouts import Group
from alfworld_rl.types import Datum

NEGLIGIBLE = 1e-9
"""An advantage this small is rounding of equal rewards, not a preference."""


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """The advantages of one group: `members` are the indices of its comparable trajectories, `steps` their advantages.

    - too_few: fewer than two trajectories can be compared, so there are none.
    - degenerate: no step of any trajectory has an advantage, as with equal rewards: there is no gradient.
    """

    members: Sequence[int]
    steps: Sequence[Numbers_S]

    @property
    def too_few(self) -> bool:
        return len(self.members) < 2

    @property
    def degenerate(self) -> bool:
        return not self.too_few and not any(has_advantage(steps_S) for steps_S in self.steps)

    @property
    def informative(self) -> bool:
        return not self.too_few and not self.degenerate

    def of(self, index: int) -> Numbers_S | None:
        """The advantages of the steps of trajectory `index`; None where it was not compared."""
        return self.steps[self.members.index(index)] if index in self.members and not self.too_few else None


def has_advantage(steps_S: Numbers_S) -> bool:
    return bool(np.any(np.abs(steps_S) > NEGLIGIBLE))


def estimate(
    groups: Sequence[Group], rewards: Sequence[Sequence[StepRewards]], estimator: Estimator
) -> list[GroupAdvantages]:
    """The advantages of every group. The estimator sees each trajectory that can be compared, whatever its reward."""
    found = []
    for group, of_group in zip(groups, rewards, strict=True):
        members = comparable(group)
        steps: Sequence[Numbers_S] = []
        if len(members) >= 2:
            steps = estimator([group.trajectories[i] for i in members], [of_group[i].steps_S for i in members])
        found.append(GroupAdvantages(members, steps))
    return found


def replacements(advantages: Sequence[GroupAdvantages], *, wanted: int, extra_left: int) -> int:
    """How many more tasks to play so that `wanted` groups teach something, with `extra_left` tasks left to spend.

    Dynamic sampling of DAPO (arXiv 2503.14476), bounded: groups without a gradient are replaced, not averaged in.
    """
    informative = sum(one.informative for one in advantages)
    return max(0, min(wanted - informative, extra_left))


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What one update trains on, and how many groups had a gradient, had none, or had too little to compare."""

    data: Sequence[Datum]
    informative_groups: int
    degenerate_groups: int
    short_groups: int
    scale: float = 1.0

    def metrics(self) -> dict[str, float]:
        """`advantage/` metrics; mean, deviation and largest of the trained tokens' advantages."""
        advantages_N = self.advantages_N / np.float32(self.scale)
        return {
            "advantage/mean": float(advantages_N.mean()) if advantages_N.size else 0.0,
            "advantage/std": float(advantages_N.std()) if advantages_N.size else 0.0,
            "advantage/abs_max": float(np.abs(advantages_N).max()) if advantages_N.size else 0.0,
            "advantage/groups_used": self.informative_groups,
            "advantage/groups_degenerate": self.degenerate_groups,
            "advantage/groups_too_few": self.short_groups,
        }

    @property
    def advantages_N(self) -> NDArray[np.float32]:
        """The advantage of every trained token, as the loss sees it."""
        if not self.data:
            return np.zeros(0, np.float32)
        return np.concatenate([datum.advantages_T[datum.mask_T] for datum in self.data])


def make_data(
    groups: Sequence[Group], advantages: Sequence[GroupAdvantages], *, keep_without: bool = False
) -> TrainingData:
    """One datum for each trajectory with an advantage in some step.

    Tokens that the model wrote carry the advantage of their step and their sampling logprob; all others carry 0.
    Degenerate groups have no part in the update. In the others, a trajectory without an advantage has no gradient but
    does count in the mean over tokens: it is not sent, and the advantages of the rest are scaled by their share of the
    tokens (`TrainingData.scale`), so that the gradient is the same. `keep_without` sends it all the same, for a
    penalty that has a gradient of its own.
    """
    kept: list[Datum] = []
    tokens = kept_tokens = 0
    for group, found in zip(groups, advantages, strict=True):
        if not found.informative:
            continue
        for index, steps_S in zip(found.members, found.steps, strict=True):
            transcript = group.trajectories[index].transcript
            tokens += transcript.written_count
            if keep_without or has_advantage(steps_S):
                kept.append(transcript.datum(steps_S.tolist()))
                kept_tokens += transcript.written_count
    scale = kept_tokens / tokens if tokens else 1.0
    if scale != 1.0:
        kept = [replace(datum, advantages_T=datum.advantages_T * np.float32(scale)) for datum in kept]
    return TrainingData(
        data=kept,
        informative_groups=sum(one.informative for one in advantages),
        degenerate_groups=sum(one.degenerate for one in advantages),
        short_groups=sum(one.too_few for one in advantages),
        scale=scale,
    )


async def with_kl_penalty(data: Sequence[Datum], reference: Sampler, coefficient: float) -> tuple[list[Datum], float]:
    """The data with a penalty for leaving the `reference` policy in the advantages, and the KL divergence from it.

    Each trained token's advantage loses `coefficient` x (its sampling logprob - its logprob under the reference).
    For tokens that were just sampled the expected gradient of that is the gradient of the token's own KL divergence
    from the reference, KL(policy || reference). The KL returned is the mean of that difference over trained tokens
    (the estimator k1 of http://joschu.net/blog/kl-approx.html).
    """

    async def penalized(datum: Datum) -> tuple[Datum, float]:
        tokens = np.append(datum.tokens_T, datum.targets_T[-1:]).tolist()
        reference_T = np.array((await reference.logprobs(tokens))[1:], np.float32)
        excess_T = np.where(datum.mask_T, datum.logprobs_T - reference_T, np.float32(0))
        return replace(datum, advantages_T=(datum.advantages_T - coefficient * excess_T).astype(np.float32)), float(
            excess_T.sum()
        )

    pairs = await asyncio.gather(*map(penalized, data))
    trained = sum(int(datum.mask_T.sum()) for datum in data)
    return [datum for datum, _ in pairs], sum(excess for _, excess in pairs) / max(trained, 1)

"""Groups of trajectories become training data."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.backends.protocol import Datum, Sampler
from alfworld_rl.learning.advantages import ESTIMATORS, AdvantageName, comparable, verdict
from alfworld_rl.rollout import Group


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What one update trains on, and what was left out of it.

    `degenerate_groups` had equal rewards, `short_groups` fewer than two trajectories to compare.
    """

    data: Sequence[Datum]
    informative_groups: int
    degenerate_groups: int
    short_groups: int
    failed_trajectories: int

    @property
    def advantages_N(self) -> NDArray[np.float32]:
        """The advantage of every trained token."""
        if not self.data:
            return np.zeros(0, np.float32)
        return np.concatenate([datum.advantages_T[datum.mask_T] for datum in self.data])


def training_data(groups: Sequence[Group], advantage: AdvantageName = "mean") -> TrainingData:
    """One datum for each comparable trajectory of each group whose rewards are not all equal.

    Tokens that the model wrote carry the advantage of their trajectory (gigpo: of their step) and their sampling-time
    logprob; all others carry 0.
    """
    estimator = ESTIMATORS[advantage]
    data: list[Datum] = []
    verdicts: Counter[str] = Counter()
    for group in groups:
        found = verdict(group)
        verdicts[found] += 1
        if found == "informative":
            members = comparable(group)
            data += [one.transcript.datum(value) for one, value in zip(members, estimator(members), strict=True)]
    return TrainingData(
        data=data,
        informative_groups=verdicts["informative"],
        degenerate_groups=verdicts["degenerate"],
        short_groups=verdicts["too_few"],
        failed_trajectories=sum(one.failed for group in groups for one in group.trajectories),
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

"""How sure a success rate is, and whether two of them differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt

import numpy as np

#: The 97.5% quantile of the standard normal distribution, for 95% intervals.
Z95 = 1.959963984540054


def wilson_interval(successes: float, trials: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a binomial proportion (1927, doi:10.1080/01621459.1927.10502953).

    Unlike the normal approximation it stays inside [0, 1] and is right near its ends. (0, 1) without trials.
    """
    if trials <= 0:
        return 0.0, 1.0
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if successes <= 0 else (centre - spread) / scale
    high = 1.0 if successes >= trials else (centre + spread) / scale
    return low, high


def cluster_bootstrap_interval(
    hits_N: Sequence[float], trials_N: Sequence[float], *, draws: int = 10_000
) -> tuple[float, float]:
    """95% interval of the rate sum(hits) / sum(trials) where the trials of a cluster are alike.

    `hits_N` and `trials_N` hold one number a cluster, such as the valid calls and all calls of a game. Whole clusters
    are drawn with replacement, `draws` times and always the same ones, and the interval holds the middle 95% of their
    rates (Davison and Hinkley 1997, Bootstrap Methods and their Application, sections 3.8 and 5.3; Field and Welsh
    2007, doi:10.1111/j.1467-9868.2007.00593.x). Clusters without trials say nothing and are left out.

    Where the clusters do not differ in their rates, a bootstrap would claim to be certain; then it is Wilson's interval
    of as many trials as there are clusters, as if those of one cluster were all the same. (0, 1) without trials.
    """
    told = [(hits, trials) for hits, trials in zip(hits_N, trials_N, strict=True) if trials > 0]
    hits, trials = np.array(told, np.float64).reshape(-1, 2).T
    if not trials.size:
        return 0.0, 1.0
    rate = hits.sum() / trials.sum()
    if np.ptp(hits / trials) < 1e-12:
        return wilson_interval(rate * trials.size, trials.size)
    rng = np.random.default_rng(0)
    rates: list[float] = []
    most = max(1, 2**22 // trials.size)
    for start in range(0, draws, most):
        drawn = rng.integers(0, trials.size, (min(most, draws - start), trials.size))
        rates += (hits[drawn].sum(axis=1) / trials[drawn].sum(axis=1)).tolist()
    low, high = np.quantile(rates, (0.025, 0.975))
    return float(low), float(high)


def mcnemar_exact(gained: int, lost: int) -> float:
    """Two-sided p of McNemar's exact test (1947, doi:10.1007/BF02295996).

    `gained` and `lost` are the games that only one of two results won; under the null each of them is a coin flip.
    """
    flips = gained + lost
    if flips == 0:
        return 1.0
    tail = sum(comb(flips, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**flips))


def sign_flip_test(differences_N: Sequence[float], *, draws: int = 100_000) -> float:
    """Two-sided p of the paired randomization test: under the null each difference is as likely with either sign.

    `differences_N` holds one number a game, such as mean steps after less mean steps before, so that several
    trajectories of a game count as one. Estimated from `draws` random choices of signs, always the same ones, and never
    below 1 / (draws + 1) (Fisher 1935, The Design of Experiments, section 21; doi:10.2202/1544-6115.1585).
    """
    differences = np.array([value for value in differences_N if value != 0], np.float64)
    if not differences.size:
        return 1.0
    rng = np.random.default_rng(0)
    as_far, most = 0, max(1, 2**22 // differences.size)
    for start in range(0, draws, most):
        signs = rng.integers(0, 2, (min(most, draws - start), differences.size), dtype=np.int8) * 2 - 1
        as_far += int((np.abs(signs @ differences) >= abs(differences.sum()) * (1 - 1e-9)).sum())
    return (as_far + 1) / (draws + 1)


def pass_at_k(samples: int, wins: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of `k` trajectories wins (arXiv 2107.03374, eq. 1)."""
    if not 1 <= k <= samples:
        raise ValueError(f"k must lie between 1 and the {samples} samples, not {k}")
    return 1.0 - comb(samples - wins, k) / comb(samples, k)


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two results on the same games: which games only one of them won."""

    games: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def p_value(self) -> float:
        return mcnemar_exact(len(self.gained), len(self.lost))

    @property
    def difference(self) -> float:
        """Success rate after minus success rate before."""
        return (len(self.gained) - len(self.lost)) / self.games


def compare_paired(before: Mapping[str, bool], after: Mapping[str, bool]) -> PairedComparison:
    """Compare two results game by game; both must hold the same games, each once."""
    if before.keys() != after.keys() or not before:
        raise ValueError("a paired comparison needs the same games on both sides")
    return PairedComparison(
        games=len(before),
        gained=tuple(game for game in before if after[game] and not before[game]),
        lost=tuple(game for game in before if before[game] and not after[game]),
    )


def mean(values: Sequence[float]) -> float:
    """The mean, 0 where there is nothing to average."""
    return sum(values) / len(values) if values else 0.0

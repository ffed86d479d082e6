"""Intervals and tests against values worked out elsewhere."""

import random
from itertools import batched, combinations
from math import comb
from statistics import fmean, pstdev

import pytest

from alfworld_rl.evaluation.statistics import (
    cluster_bootstrap_interval,
    compare_paired,
    mcnemar_exact,
    pass_at_k,
    sign_flip_test,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (145, 274, 0.4701, 0.5875),  # the document's base score, 52.9%
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998 (doi:10.1002/(SICI)1097-0258), table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=6e-5)


def test_wilson_interval_of_nothing_says_nothing() -> None:
    assert wilson_interval(0, 0) == (0, 1)


def test_the_cluster_bootstrap_of_equal_clusters_is_that_of_their_mean() -> None:
    """With as many trials in each, the rate is the mean of the clusters' rates: standard error sd / sqrt(N)."""
    rng = random.Random(1)
    hits = [rng.randint(0, 20) for _ in range(400)]
    low, high = cluster_bootstrap_interval(hits, [20] * 400)
    rates = [count / 20 for count in hits]
    reach = 1.96 * pstdev(rates) / 400**0.5
    assert (low, high) == pytest.approx((fmean(rates) - reach, fmean(rates) + reach), abs=0.003)


def test_independent_trials_get_about_wilsons_interval_and_clustered_ones_a_wider_one() -> None:
    """The same 800 hits in 1000 trials: by chance everywhere, or in all trials of four games of five."""
    rng = random.Random(2)
    trials = [10] * 100
    scattered = [
        sum(place < 800 for place in places) for places in batched(rng.sample(range(1000), 1000), 10, strict=True)
    ]
    together = [10] * 80 + [0] * 20
    assert sum(scattered) == sum(together) == 800
    wilson = wilson_interval(800, 1000)
    assert cluster_bootstrap_interval(scattered, trials) == pytest.approx(wilson, abs=0.01)
    low, high = cluster_bootstrap_interval(together, trials)
    assert high - low > 2.5 * (wilson[1] - wilson[0])
    assert (low, high) == pytest.approx(wilson_interval(80, 100), abs=0.015)  # a game is one trial then


def test_the_cluster_bootstrap_covers_the_truth_where_wilson_on_steps_does_not() -> None:
    """Games of 5 to 50 steps, each with a rate of its own around 0.7: how often the intervals hold 0.7, of 200."""
    rng = random.Random(3)
    covered = {"games": 0, "steps": 0}
    for _ in range(200):
        trials = [rng.randint(5, 50) for _ in range(60)]
        rates = [rng.betavariate(2.1, 0.9) for _ in trials]
        hits = [sum(rng.random() < rate for _ in range(count)) for rate, count in zip(rates, trials, strict=True)]
        for name, (low, high) in (
            ("games", cluster_bootstrap_interval(hits, trials, draws=1000)),
            ("steps", wilson_interval(sum(hits), sum(trials))),
        ):
            covered[name] += low <= 0.7 <= high
    assert covered["games"] >= 180
    assert covered["steps"] <= 120


def test_the_cluster_bootstrap_claims_no_certainty() -> None:
    assert cluster_bootstrap_interval([], []) == cluster_bootstrap_interval([0, 0], [0, 0]) == (0, 1)
    assert cluster_bootstrap_interval([30] * 10, [30] * 10) == wilson_interval(10, 10)  # not (1, 1)
    assert cluster_bootstrap_interval([3], [6]) == wilson_interval(0.5, 1)  # one game is one trial
    assert cluster_bootstrap_interval([3, 0, 1], [6, 0, 4]) == cluster_bootstrap_interval([3, 1], [6, 4])
    assert cluster_bootstrap_interval([1, 2, 3], [3, 3, 4]) == cluster_bootstrap_interval([1, 2, 3], [3, 3, 4])
    with pytest.raises(ValueError, match="shorter"):
        cluster_bootstrap_interval([1, 2], [3])


def test_mcnemar_is_the_exact_binomial_test() -> None:
    assert mcnemar_exact(0, 0) == 1
    assert mcnemar_exact(5, 5) == 1
    assert mcnemar_exact(0, 5) == pytest.approx(2 / 32)
    assert mcnemar_exact(9, 2) == pytest.approx(2 * (1 + 11 + comb(11, 2)) / 2**11)
    assert mcnemar_exact(2, 9) == mcnemar_exact(9, 2)


def test_sign_flips_count_the_choices_of_signs_that_lie_as_far_out() -> None:
    assert sign_flip_test([]) == sign_flip_test([0.0, 0.0]) == 1
    # Of the 16 choices of signs of 1, 2, 3, 4 two reach a sum of 10, four one of at least 8.
    assert sign_flip_test([1, 2, 3, 4]) == pytest.approx(2 / 16, abs=0.005)
    assert sign_flip_test([-1, 2, 3, 4, 0]) == pytest.approx(4 / 16, abs=0.005)
    assert sign_flip_test([1.0] * 40) == 1 / 100_001
    # On flipped games alone it is McNemar's test.
    assert sign_flip_test([1] * 9 + [-1] * 2) == pytest.approx(mcnemar_exact(9, 2), abs=0.005)


def test_pass_at_k_counts_every_choice_of_k_samples() -> None:
    outcomes = [True, False, False, True, False]
    for k in range(1, 6):
        choices = list(combinations(outcomes, k))
        assert pass_at_k(5, 2, k) == pytest.approx(sum(any(choice) for choice in choices) / len(choices))
    with pytest.raises(ValueError, match="between 1 and the 5 samples"):
        pass_at_k(5, 2, 6)


def test_paired_comparison_names_the_flipped_games() -> None:
    before = {"a": True, "b": False, "c": False, "d": True}
    after = {"a": True, "b": True, "c": True, "d": False}
    comparison = compare_paired(before, after)
    assert (comparison.gained, comparison.lost, comparison.difference) == (("b", "c"), ("d",), 0.25)
    with pytest.raises(ValueError, match="same games"):
        compare_paired(before, {"a": True})

"""Intervals and tests against values worked out elsewhere."""

from itertools import combinations
from math import comb

import pytest

from alfworld_rl.evaluation.statistics import (
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

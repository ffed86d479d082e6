"""Learning rates over a run."""

import pytest

from alfworld_rl.algorithms.schedules import SCHEDULES, learning_rate


def rates(name, updates, warmup=0):
    return [
        learning_rate(update, peak=2.0, schedule=SCHEDULES[name], warmup=warmup, updates=updates)
        for update in range(updates)
    ]


def test_the_learning_rate_rises_linearly_and_stays():
    assert rates("constant", 5, warmup=3) == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates("constant", 3) == [2.0] * 3


def test_the_learning_rate_falls_to_zero_at_the_end():
    assert rates("linear", 4) == [2.0, 1.5, 1.0, 0.5]
    assert rates("cosine", 4) == pytest.approx([2.0, 1 + 0.5**0.5, 1.0, 1 - 0.5**0.5])
    for name in ("linear", "cosine"):
        assert learning_rate(4, peak=2.0, schedule=SCHEDULES[name], warmup=0, updates=4) == pytest.approx(0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_is_never_above_its_peak_nor_below_zero(name):
    for updates in (1, 2, 7):
        for warmup in (0, 1, 3, 20):
            assert all(0 < rate <= 2.0 for rate in rates(name, updates, warmup))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_warm_up_ends_at_the_peak(name):
    assert rates(name, 10, warmup=3)[:4] == [0.5, 1.0, 1.5, 2.0]

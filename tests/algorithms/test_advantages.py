"""The advantage estimators, worked out by hand."""

import math

import numpy as np
import pytest
from groups import trajectory

from alfworld_rl.algorithms.advantages import ESTIMATORS
from alfworld_rl.algorithms.rewards import REWARDS, score
from alfworld_rl.errors import UsageError


def advantages(name, trajectories, rewards=None, **parameters):
    """The advantages of the steps of every trajectory, by the quick start's reward if not by these `rewards`."""
    rewards = rewards or [score(one, REWARDS["document"]).steps_S for one in trajectories]
    return ESTIMATORS.bind(name, **parameters)(trajectories, [np.array(one, np.float64) for one in rewards])


# Rewards 1, 0, 0.8, -0.2: mean 0.4, deviations 0.6, -0.4, 0.4, -0.6; population variance 1.04 / 4 = 0.26.
FOUR = (trajectory(True), trajectory(), trajectory(True, 2, turns=3), trajectory(False, 2))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", [0.6, -0.4, 0.4, -0.6]),
        ("standardized", [x / (math.sqrt(0.26) + 1e-6) for x in (0.6, -0.4, 0.4, -0.6)]),
        # The others of the first have mean (0 + 0.8 - 0.2) / 3 = 0.2, and so on.
        ("leave-one-out", [1 - 0.2, 0 - 1.6 / 3, 0.8 - 0.8 / 3, -0.2 - 0.6]),
    ],
)
def test_estimators_of_whole_trajectories(name, expected):
    for of_trajectory, value, one in zip(advantages(name, FOUR), expected, FOUR, strict=True):
        assert of_trajectory == pytest.approx([value] * len(one.steps))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_returns_or_a_single_one_are_no_division_by_zero(name):
    with np.errstate(all="raise"):
        for group in ([trajectory(True), trajectory(True)], [trajectory(True, turns=2)], [trajectory()] * 3):
            for of_trajectory, one in zip(advantages(name, group), group, strict=True):
                assert of_trajectory.tolist() == [0] * len(one.steps)


def test_parameters_of_estimators_are_bound_by_name():
    assert ESTIMATORS.parameters("gigpo") == {"discount": 0.95, "step_weight": 1.0}
    (first, second) = advantages("standardized", [trajectory(True), trajectory()], epsilon=0.5)
    assert (first, second) == (pytest.approx([0.5]), pytest.approx([-0.5]))
    with pytest.raises(UsageError, match=r"no parameter discont \(did you mean discount\?\)"):
        ESTIMATORS.bind("gigpo", discont=0.9)
    with pytest.raises(UsageError, match="it has none"):
        ESTIMATORS.bind("mean", discount=0.9)


def test_gigpo_compares_the_steps_that_were_taken_in_one_state():
    # Both start in state 7. The first wins in two steps; the second comes back to 7 after an invalid action and stops.
    first = trajectory(True, turns=2, keys=[7, 8])
    second = trajectory(False, 1, turns=2, keys=[7, 7])
    # Returns: 0.95, 1 and -0.1, 0. In state 7 their mean is (0.95 - 0.1 + 0) / 3 = 0.85 / 3; state 8 has one visit.
    # Episodes: 1 and -0.1, mean 0.45.
    base = 0.85 / 3
    found = advantages("gigpo", [first, second])
    assert found[0] == pytest.approx([0.55 + 0.95 - base, 0.55])
    assert found[1] == pytest.approx([-0.55 - 0.1 - base, -0.55 - base])
    # Half the weight of steps, and no discount: returns 1, 1 and -0.1, 0.
    base = 0.9 / 3
    found = advantages("gigpo", [first, second], discount=1.0, step_weight=0.5)
    assert found[0] == pytest.approx([0.55 + (1 - base) / 2, 0.55])
    assert found[1] == pytest.approx([-0.55 + (-0.1 - base) / 2, -0.55 - base / 2])


def test_gigpo_prefers_the_shorter_of_two_won_trajectories():
    """Two won trajectories of 2 and 8 steps from one state: no difference in reward, and one in every other respect."""
    short, long = trajectory(True, turns=2, keys=[0, "a"]), trajectory(True, turns=8, keys=[0, *range(1, 8)])
    found = advantages("gigpo", [short, long])
    expected = (0.95 - 0.95**7) / 2  # 0.126: half of what the two are worth apart in the state they share
    assert found[0] == pytest.approx([expected, 0])
    assert found[1] == pytest.approx([-expected, *[0] * 7])


def test_states_whose_hashes_are_equal_are_not_one_state():
    class State(str):
        __slots__ = ()

        def __hash__(self):
            return 1

    first = trajectory(True, turns=2, keys=[State("start"), State("near")])
    second = trajectory(False, turns=2, keys=[State("start"), State("far")])
    apart = advantages("gigpo", [first, second])
    # States near and far were visited once each: only the episode counts there.
    assert [apart[0][1], apart[1][1]] == pytest.approx([0.5, -0.5])
    together = advantages("gigpo", [first, trajectory(False, turns=2, keys=[State("start"), State("near")])])
    assert [together[0][1], together[1][1]] == pytest.approx([1.0, -1.0])

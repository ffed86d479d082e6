"""What trajectories are worth, by hand, and the contract of a reward."""

import numpy as np
import pytest
from groups import group, trajectory
from hypothesis import given
from hypothesis import strategies as st

from alfworld_rl.algorithms.rewards import REWARDS, StepRewards, reward_metrics, score, score_groups
from alfworld_rl.errors import UsageError


def total(name, *arguments, **parameters):
    return score(trajectory(*arguments), REWARDS.bind(name, **parameters)).total


def test_the_documents_reward_is_winning_less_a_tenth_of_the_invalid_actions():
    assert [total("document", True), total("document", True, 2), total("document", False, 3)] == pytest.approx(
        [1.0, 0.8, -0.3]
    )
    assert total("document", True, 2, invalid_penalty=0.25) == 0.5


def test_every_step_has_its_own_reward_and_every_reward_its_parts():
    found = score(trajectory(True, 1, turns=3), REWARDS["document"])
    assert found.parts.keys() == {"success", "invalid"}
    assert found.parts["success"].tolist() == [0, 0, 1]
    assert found.parts["invalid"].tolist() == pytest.approx([-0.1, 0, 0])
    assert found.steps_S.tolist() == pytest.approx([-0.1, 0, 1])
    assert found.total == pytest.approx(0.9)


def test_success_is_winning_and_nothing_else():
    assert [total("success", True, 4), total("success", False, 4)] == [1, 0]
    assert score(trajectory(True, turns=3), REWARDS["success"]).steps_S.tolist() == [0, 0, 1]


def test_what_ends_before_its_first_message_is_worth_nothing():
    for name in REWARDS:
        nothing = score(trajectory(turns=0, stop_reason="token_limit"), REWARDS[name])
        assert nothing.total == 0
        assert nothing.steps_S.shape == (0,)


@given(
    won=st.booleans(),
    invalid=st.integers(0, 60),
    valid=st.integers(0, 60),
    penalty=st.floats(0, 5),
    floor=st.floats(0, 1),
)
def test_a_penalized_success_never_makes_losing_pay(won, invalid, valid, penalty, floor):
    """Every lost trajectory has the return 0, and a won one at least the floor and at most 1."""
    one = trajectory(won, invalid, turns=invalid + valid + won)
    found = score(one, REWARDS.bind("penalized-success", invalid_penalty=penalty, floor=floor))
    if not won:
        assert found.total == 0
        assert not found.steps_S.any()
    else:
        assert floor - 1e-9 <= found.total <= 1
        # Where the floor is far away it is the document's reward.
        if penalty * invalid <= 1 - floor:
            assert found.total == pytest.approx(1 - penalty * invalid)


def test_a_reward_gives_one_number_a_step():
    for wrong in (np.zeros(3), np.zeros((2, 1)), np.float64(1), [1.0]):
        with pytest.raises(ValueError, match=r"'reward' has the shape .* for 2 steps.*one number a step"):
            score(trajectory(turns=2), lambda one, wrong=wrong: wrong)
    with pytest.raises(ValueError, match="'late' has the shape"):
        score(trajectory(turns=2), lambda one: {"early": np.zeros(2), "late": np.zeros(1)})
    assert score(trajectory(turns=2), lambda one: [1, 2]).parts["reward"].tolist() == [1, 2]


def test_parameters_are_checked_as_flags_are():
    assert REWARDS.parameters("penalized-success") == {"invalid_penalty": 0.1, "floor": 0.1}
    with pytest.raises(UsageError, match="no parameter penalty"):
        REWARDS.bind("document", penalty=1.0)
    with pytest.raises(UsageError, match="finite number"):
        REWARDS.bind("document", invalid_penalty=float("nan"))
    with pytest.raises(UsageError, match="did you mean document"):
        REWARDS["documnt"]


def test_metrics_are_of_those_that_did_not_fail():
    groups = [group(trajectory(True, 1), trajectory(False, 2)), group(trajectory(stop_reason="failed"))]
    found = reward_metrics(groups, score_groups(groups, REWARDS["document"]))
    assert found == pytest.approx(
        {
            "reward/mean": 0.35,
            "reward/min": -0.2,
            "reward/max": 0.9,
            "reward/part/success": 0.5,
            "reward/part/invalid": -0.15,
        }
    )
    assert reward_metrics([], [])["reward/mean"] == 0


def test_the_sum_over_steps_and_parts_is_the_return():
    parts = {"a": np.array([0.1, 0.2]), "b": np.array([-0.3, 0.7])}
    assert StepRewards(parts).total == pytest.approx(0.7)
    assert StepRewards(parts).steps_S.sum() == pytest.approx(0.7)

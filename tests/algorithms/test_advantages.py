"""The advantage estimators, worked out by hand."""

import math

import pytest

from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.types import Completion
from alfworld_rl.learning import replacements, training_data, verdict
from alfworld_rl.learning.advantages import ESTIMATORS
from alfworld_rl.rollout import Group, Trajectory


def trajectory(won=False, invalid=0, *, stop_reason="max_steps", turns=1, anchors=None, step_rewards=None, written=2):
    transcript = Transcript([1, 2, 3])
    for turn in range(turns):
        transcript.write(Completion((10 + turn,) * written, (-0.5 - turn,) * written, "stop"))
        transcript.show([4])
    return Trajectory(
        game=None,
        branch=0,
        transcript=transcript,
        steps=turns,
        won=won,
        invalid_action_count=invalid,
        stop_reason="won" if won else stop_reason,
        anchors=anchors or list(range(turns)),
        step_rewards=step_rewards or [0.0] * turns,
    )


def group(*trajectories):
    return Group(None, trajectories)


def test_rewards_are_wins_less_a_tenth_of_the_invalid_actions():
    assert [one.reward for one in (trajectory(True), trajectory(True, 2), trajectory(False, 3))] == pytest.approx(
        [1.0, 0.8, -0.3]
    )


# Rewards 1, 0, 0.8, -0.2: mean 0.4, deviations 0.6, -0.4, 0.4, -0.6; population variance 1.04 / 4 = 0.26.
FOUR = (trajectory(True), trajectory(), trajectory(True, 2), trajectory(False, 2))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", [0.6, -0.4, 0.4, -0.6]),
        ("standardized", [x / math.sqrt(0.26) for x in (0.6, -0.4, 0.4, -0.6)]),
        # The others of the first have mean (0 + 0.8 - 0.2) / 3 = 0.2, and so on.
        ("leave-one-out", [1 - 0.2, 0 - 1.6 / 3, 0.8 - 0.8 / 3, -0.2 - 0.6]),
    ],
)
def test_estimators_of_whole_trajectories(name, expected):
    assert ESTIMATORS[name](FOUR) == pytest.approx(expected)


def test_gigpo_compares_the_steps_that_were_taken_in_one_state():
    # Both start in state 7. The first wins in two steps; the second comes back to 7 after an invalid action and stops.
    first = trajectory(True, turns=2, anchors=[7, 8], step_rewards=[0.0, 1.0])
    second = trajectory(False, 1, turns=2, anchors=[7, 7], step_rewards=[-0.1, 0.0])
    # Returns: 0.95, 1 and -0.1, 0. In state 7 their mean is (0.95 - 0.1 + 0) / 3 = 0.85 / 3; state 8 has one visit.
    # Episodes: 1 and -0.1, mean 0.45.
    base = 0.85 / 3
    assert ESTIMATORS["gigpo"]([first, second])[0] == pytest.approx([0.55 + 0.95 - base, 0.55])
    assert ESTIMATORS["gigpo"]([first, second])[1] == pytest.approx([-0.55 - 0.1 - base, -0.55 - base])


def test_gigpo_gives_each_turn_its_own_advantage():
    first = trajectory(True, turns=2, anchors=[7, 8], step_rewards=[0.0, 1.0])
    second = trajectory(False, turns=2, anchors=[7, 9])
    made = training_data([group(first, second)], "gigpo")
    # State 7: returns 0.95 and 0, mean 0.475; episodes +-0.5.
    assert made.data[0].advantages_T.tolist() == pytest.approx([0, 0, 0.975, 0.975, 0, 0.5, 0.5])
    assert made.data[1].advantages_T.tolist() == pytest.approx([0, 0, -0.975, -0.975, 0, -0.5, -0.5])


def test_groups_that_teach_nothing_are_left_out_and_counted():
    groups = [
        group(*FOUR),
        group(trajectory(), trajectory()),
        group(trajectory(True, 3), trajectory(True, 3), trajectory(True, 3)),
        group(trajectory(True), trajectory(stop_reason="failed")),
        group(*[trajectory(stop_reason="failed")] * 2),
    ]
    assert [verdict(one) for one in groups] == ["informative", "degenerate", "degenerate", "too_few", "too_few"]
    made = training_data(groups)
    assert len(made.data) == 4
    counts = (made.informative_groups, made.degenerate_groups, made.short_groups, made.failed_trajectories)
    assert counts == (1, 2, 2, 3)
    assert made.advantages_N.tolist() == pytest.approx([0.6, 0.6, -0.4, -0.4, 0.4, 0.4, -0.6, -0.6])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_failed_or_wrote_nothing_shifts_no_baseline(name):
    plain = training_data([group(*FOUR)], name)
    for extra in (trajectory(stop_reason="failed"), trajectory(turns=0), trajectory(turns=1, written=0)):
        extra.invalid_action_count = 5
        mixed = training_data([group(FOUR[0], extra, *FOUR[1:])], name)
        assert [datum.advantages_T.tolist() for datum in mixed.data] == [
            datum.advantages_T.tolist() for datum in plain.data
        ]


def test_only_what_the_model_wrote_carries_an_advantage():
    for datum in training_data([group(*FOUR)]).data:
        assert datum.mask_T.tolist() == [False, False, True, True]
        assert not datum.advantages_T[~datum.mask_T].any()
        assert not datum.logprobs_T[~datum.mask_T].any()
        assert datum.logprobs_T[datum.mask_T].tolist() == [-0.5, -0.5]


def test_nothing_to_train_on_is_no_error():
    made = training_data([])
    assert (list(made.data), made.advantages_N.tolist()) == ([], [])


def test_dynamic_sampling_replaces_what_taught_nothing_while_games_are_left():
    useful, useless = group(*FOUR), group(trajectory(), trajectory())
    assert replacements([useful, useless, useless], wanted=3, extra_left=8) == 2
    assert replacements([useful, useless, useless], wanted=3, extra_left=1) == 1
    assert replacements([useful, useless, useless, useful, useful], wanted=3, extra_left=6) == 0
    assert replacements([useful, useless], wanted=2, extra_left=0) == 0

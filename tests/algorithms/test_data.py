"""Groups and advantages become training data: what is left out, and what that must not change."""

import numpy as np
import pytest
from groups import group, trajectory

from alfworld_rl.algorithms.advantages import ESTIMATORS, mean
from alfworld_rl.algorithms.data import estimate, has_advantage, make_data, replacements, with_kl_penalty
from alfworld_rl.algorithms.rewards import REWARDS, score_groups
from alfworld_rl.types import Datum

# Rewards 1, 0, 0.8, -0.2, two tokens a step.
FOUR = (trajectory(True), trajectory(), trajectory(True, 2, turns=3), trajectory(False, 2))


def estimated(groups, estimator=mean, reward=REWARDS["document"]):
    return estimate(groups, score_groups(groups, reward), estimator)


def training_data(groups, estimator=mean, **options):
    return make_data(groups, estimated(groups, estimator), **options)


def test_gigpo_gives_each_turn_its_own_advantage():
    first = trajectory(True, turns=2, keys=[7, 8])
    second = trajectory(False, turns=2, keys=[7, 9])
    made = training_data([group(first, second)], ESTIMATORS["gigpo"])
    # State 7: returns 0.95 and 0, mean 0.475; episodes +-0.5.
    assert made.data[0].advantages_T.tolist() == pytest.approx([0, 0, 0.975, 0.975, 0, 0.5, 0.5])
    assert made.data[1].advantages_T.tolist() == pytest.approx([0, 0, -0.975, -0.975, 0, -0.5, -0.5])


def test_a_group_that_was_won_by_all_teaches_gigpo_to_be_quick():
    """Equal returns are no reason to leave a group out: that is for its advantages to say."""
    won = group(trajectory(True, turns=2, keys=[0, "a"]), trajectory(True, turns=8, keys=[0, *range(1, 8)]))
    made = training_data([won], ESTIMATORS["gigpo"])
    assert (len(made.data), made.informative_groups, made.degenerate_groups) == (2, 1, 0)
    first = [float(datum.advantages_T[datum.mask_T][0]) for datum in made.data]
    assert first == pytest.approx([0.1258, -0.1258], abs=1e-4)
    assert replacements(estimated([won], ESTIMATORS["gigpo"]), wanted=1, extra_left=8) == 0
    assert len(training_data([won]).data) == 0
    assert replacements(estimated([won]), wanted=1, extra_left=8) == 1


def test_the_estimator_sees_every_trajectory_that_can_be_compared():
    seen = []

    def watching(trajectories, rewards):
        seen.append((list(trajectories), [reward.sum() for reward in rewards]))
        return mean(trajectories, rewards)

    failed, silent = trajectory(stop_reason="failed"), trajectory(turns=0)
    won = [trajectory(True), trajectory(True), trajectory(True)]
    estimated([group(won[0], failed, won[1], silent, won[2]), group(won[0], failed)], watching)
    assert seen == [(won, [1, 1, 1])]


def test_groups_that_teach_nothing_are_left_out_and_counted():
    groups = [
        group(*FOUR),
        group(trajectory(), trajectory()),
        group(trajectory(True, 3), trajectory(True, 3), trajectory(True, 3)),
        group(trajectory(True), trajectory(stop_reason="failed")),
        group(*[trajectory(stop_reason="failed")] * 2),
    ]
    found = estimated(groups)
    assert [one.informative for one in found] == [True, False, False, False, False]
    assert [one.degenerate for one in found] == [False, True, True, False, False]
    assert [one.too_few for one in found] == [False, False, False, True, True]
    assert found[0].of(1).tolist() == pytest.approx([-0.4])
    assert found[3].of(0) is found[3].of(1) is None
    made = make_data(groups, found)
    assert len(made.data) == 4
    assert (made.informative_groups, made.degenerate_groups, made.short_groups) == (1, 2, 2)
    expected = np.repeat([0.6, -0.4, 0.4, -0.6], [2, 2, 6, 4])
    assert made.advantages_N.tolist() == pytest.approx(expected)
    assert made.metrics() == pytest.approx(
        {
            "advantage/mean": expected.mean(),
            "advantage/std": expected.std(),
            "advantage/abs_max": 0.6,
            "advantage/groups_used": 1,
            "advantage/groups_degenerate": 2,
            "advantage/groups_too_few": 2,
        },
        abs=1e-6,
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_failed_or_wrote_nothing_shifts_no_baseline(name):
    plain = training_data([group(*FOUR)], ESTIMATORS[name])
    failed, silent, mute = trajectory(stop_reason="failed", invalid=5), trajectory(turns=0), trajectory(written=0)
    for extra in (failed, silent, mute):
        mixed = training_data([group(FOUR[0], extra, *FOUR[1:])], ESTIMATORS[name])
        assert [datum.advantages_T.tolist() for datum in mixed.data] == [
            datum.advantages_T.tolist() for datum in plain.data
        ]


def test_only_what_the_model_wrote_carries_an_advantage():
    for datum in training_data([group(trajectory(True), trajectory())]).data:
        assert datum.mask_T.tolist() == [False, False, True, True]
        assert not datum.advantages_T[~datum.mask_T].any()
        assert not datum.logprobs_T[~datum.mask_T].any()
        assert datum.logprobs_T[datum.mask_T].tolist() == [-0.5, -0.5]


def test_a_trajectory_without_an_advantage_is_not_sent_and_still_counts():
    # Returns 1, 0.5 and 0: the middle one has no advantage and 10 of the 10 + 4 + 2 tokens.
    half = {1: 1.0, 5: 0.5, 2: 0.0}
    trajectories = [trajectory(True, turns=1), trajectory(turns=5), trajectory(turns=2)]
    groups = [group(*trajectories)]

    def by_length(one):
        return [half[len(one.steps)], *[0] * (len(one.steps) - 1)]

    found = estimated(groups, mean, by_length)
    assert [has_advantage(steps_S) for steps_S in found[0].steps] == [True, False, True]
    whole, less = make_data(groups, found, keep_without=True), make_data(groups, found)
    assert [len(made.data) for made in (whole, less)] == [3, 2]
    assert (whole.scale, less.scale) == (1, 6 / 16)
    # The mean over tokens, which is what losses are, of anything linear in the advantage is the same.
    assert less.advantages_N.sum() / 6 == pytest.approx(whole.advantages_N.sum() / 16)
    for kept, before in zip(less.data, (whole.data[0], whole.data[2]), strict=True):
        assert kept.advantages_T.tolist() == pytest.approx((before.advantages_T * 6 / 16).tolist())
        assert kept.tokens_T.tolist() == before.tokens_T.tolist()
    # What is told of the advantages is in the reward's own measure.
    assert less.metrics()["advantage/abs_max"] == pytest.approx(0.5)


def test_nothing_to_train_on_is_no_error():
    made = training_data([])
    assert (list(made.data), made.advantages_N.tolist()) == ([], [])
    assert set(made.metrics().values()) == {0}


def test_dynamic_sampling_replaces_what_taught_nothing_while_games_are_left():
    useful, useless = estimated([group(*FOUR), group(trajectory(), trajectory())])
    assert replacements([useful, useless, useless], wanted=3, extra_left=8) == 2
    assert replacements([useful, useless, useless], wanted=3, extra_left=1) == 1
    assert replacements([useful, useless, useless, useful, useful], wanted=3, extra_left=6) == 0
    assert replacements([useful, useless], wanted=2, extra_left=0) == 0


def datum(number):
    return Datum(
        tokens_T=np.arange(number, number + 3, dtype=np.int32),
        targets_T=np.arange(number + 1, number + 4, dtype=np.int32),
        mask_T=np.arange(3) > 0,
        logprobs_T=np.where(np.arange(3) > 0, -1.0, 0).astype(np.float32),
        advantages_T=np.where(np.arange(3) > 0, 0.5, 0).astype(np.float32),
    )


async def test_the_kl_penalty_pulls_back_to_the_reference():
    class Reference:
        async def logprobs(self, tokens):
            # Sampled at -1: the reference finds the token 5 likelier, all others less likely.
            return [0.0] + [-0.5 if token == 5 else -3.0 for token in tokens[1:]]

    before = [datum(3), datum(10)]
    after, kl = await with_kl_penalty(before, Reference(), 0.1)
    # Excess of datum(3), targets 4, 5, 6 with 4 not written: -0.5 and 2; of the other: 2 and 2.
    assert after[0].advantages_T.tolist() == pytest.approx([0, 0.5 + 0.05, 0.5 - 0.2])
    assert after[1].advantages_T.tolist() == pytest.approx([0, 0.5 - 0.2, 0.5 - 0.2])
    assert after[0].advantages_T.dtype == np.float32
    assert kl == pytest.approx((-0.5 + 2 + 2 + 2) / 4)
    assert before[0].advantages_T.tolist() == [0, 0.5, 0.5]

"""What reinforcement learning puts into an update, on a corridor of doors."""

import random

import numpy as np
import pytest
from corridors import goal_of, trainer, wanders

from agent_models import call
from alfworld_rl.algorithms import ESTIMATORS
from alfworld_rl.backends.base import SamplingError
from alfworld_rl.envs.tasks import TaskOrder
from alfworld_rl.evaluation.record import ResultRow
from envs.toy import Corridors
from scripted_backend import PolicySampler

TASKS = Corridors().tasks("train")


def only_the_last_door_is_hard(prompt, seed, weights):
    """Wins all games alike but those of door 3, where a coin decides."""
    goal, turn = goal_of(prompt), prompt.count("<tool_response>\n")
    if goal == 3 and turn == 0:
        return call("open" if random.Random(seed).random() < 0.5 else "right")
    return call((["right"] * goal + ["open"])[turn])


def bytes_of(data):
    return [(one.tokens_T.tobytes(), one.advantages_T.tobytes(), one.logprobs_T.tobytes()) for one in data]


def test_a_batch_is_a_function_of_settings_position_update_and_weights(recipe, tmp_path):
    batch = recipe().batch(trainer(tmp_path), 5, 2)
    again = recipe().batch(trainer(tmp_path), 5, 2)
    assert bytes_of(batch.data) == bytes_of(again.data)
    timeless = {name: value for name, value in batch.metrics.items() if not name.startswith("time/")}
    assert timeless.items() <= again.metrics.items()
    assert batch.position == again.position == 8
    assert (batch.adam.learning_rate, batch.epochs, batch.minibatches) == (3, 1, 1)
    for other in (recipe().batch(trainer(tmp_path), 8, 2), recipe().batch(trainer(tmp_path), 5, 3)):
        assert bytes_of(other.data) != bytes_of(batch.data)


def test_a_batch_says_what_it_holds_and_what_it_used(recipe, tmp_path):
    batch = recipe().batch(trainer(tmp_path), 0, 0)
    assert batch.metrics["rollout/groups"] == 3
    assert batch.metrics["rollout/trajectories"] == 12
    assert batch.metrics["train/trajectories"] == len(batch.data) > 0
    assert batch.metrics["trainer/games_taken"] == 3
    assert batch.metrics["reward/part/invalid"] < 0
    assert batch.usage.prefill == batch.metrics["rollout/prefill_tokens"] > 0
    assert batch.usage.sampled == batch.metrics["rollout/sampled_tokens"] > 0
    assert (batch.usage.trained, batch.notes, batch.samples) == (0, [], [])


def test_groups_that_teach_nothing_are_replaced_as_far_as_games_may_be_spent(recipe, tmp_path):
    goals = [task.goal for task in TaskOrder(TASKS, 7).take(0, 16)[0]]
    place = next(number for number in range(16) if goals[number] != 3)
    for extra in (0, 2, 20):
        one = recipe(dynamic_sampling=extra, games_per_batch=1)
        batch = one.batch(trainer(tmp_path, only_the_last_door_is_hard), place, 0)
        played = batch.metrics["rollout/groups"]
        useful = batch.metrics["advantage/groups_used"]
        assert batch.position == place + played
        # No more than asked for, and no fewer while there is something to spend.
        assert useful == 1 or played == 1 + extra or played == len(TASKS)
        assert played <= 1 + extra
    assert useful == 1


def test_winning_sooner_is_a_reason_for_gigpo_not_to_play_more(recipe, tmp_path):
    def dawdles(prompt, seed, weights):
        turn, late = prompt.count("<tool_response>\n"), "You left at" in prompt
        if turn == 0 and seed % 2:
            return call("left")
        return call((["right"] * goal_of(prompt) + ["open"])[turn - late])

    options = {"games_per_batch": 2, "dynamic_sampling": 4}
    by_return = recipe(**options).batch(trainer(tmp_path, dawdles), 0, 0)
    by_step = recipe(**options, estimator=ESTIMATORS["gigpo"]).batch(trainer(tmp_path, dawdles), 0, 0)
    assert (by_return.metrics["rollout/groups"], len(by_return.data)) == (6, 0)
    assert (by_step.metrics["rollout/groups"], by_step.metrics["advantage/groups_used"]) == (2, 2)
    assert by_step.data


def test_the_best_and_the_worst_of_groups_are_kept(recipe, tmp_path):
    def row(trajectory, rewards, advantages):
        return ResultRow.of(trajectory, rewards, trajectory.usage, advantages=list(advantages)).to_json()

    batch = recipe(keep_trajectories=3, row=row).batch(trainer(tmp_path), 0, 0)
    best, worst, other = batch.samples
    assert best["game_id"] == worst["game_id"] != other["game_id"]
    assert best["reward"] > worst["reward"]
    assert len(best["advantages"]) == best["steps"]
    assert sum(best["advantages"]) > 0


def test_leaving_the_start_is_penalized_in_every_trajectory_that_was_compared(recipe, tmp_path):
    # Sampled at -0.5 - 0.5: the reference finds every token 0.25 likelier.
    reference = PolicySampler(wanders, 0.25)
    free = recipe(reference=reference, kl_coef=0.0).batch(trainer(tmp_path), 0, 0)
    batch = recipe(reference=reference, kl_coef=2.0).batch(trainer(tmp_path), 0, 0)
    assert batch.metrics["train/kl_from_start"] == pytest.approx(-0.25)
    assert len(batch.data) == len(free.data) == 4 * batch.metrics["advantage/groups_used"]
    for before, after in zip(free.data, batch.data, strict=True):
        assert after.tokens_T.tolist() == before.tokens_T.tolist()
        expected = np.where(before.mask_T, before.advantages_T + 0.5, 0)
        assert after.advantages_T == pytest.approx(expected, abs=1e-5)


def test_why_trajectories_failed_is_noted_once(recipe, tmp_path):
    def fail(prompt):
        return SamplingError("out of breath") if goal_of(prompt) == 3 else None

    batch = recipe(games_per_batch=16, group_size=2).batch(trainer(tmp_path, fail=fail), 0, 0)
    assert batch.notes == ["a trajectory failed: out of breath"]
    assert batch.metrics["rollout/failed"] == 8
    assert batch.metrics["advantage/groups_too_few"] == 4


def test_a_person_reads_a_line_whether_or_not_anything_was_learned(recipe, tmp_path):
    one = recipe()
    batch = one.batch(trainer(tmp_path), 0, 0)
    metrics = {**batch.metrics, "train/tokens_billed": 1200}
    assert "skipped: nothing to learn" in one.line(1, metrics)
    line = one.line(1, {**metrics, "train/loss_mean": 0.25})
    assert "loss +0.2500" in line
    assert "1.2k trained" in line

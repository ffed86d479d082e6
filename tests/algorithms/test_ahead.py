"""Rollouts that run ahead of the updates that learn from them: which weights they were sampled with, and their end."""

import asyncio
import threading

import pytest
from corridors import trainer

from alfworld_rl.algorithms import optimize
from alfworld_rl.algorithms.ahead import PlaysAhead
from alfworld_rl.backends.base import BalanceError
from envs.toy import Corridors


def learn(recipe, learner, updates, position=0):
    """Run the updates; returns their batches and the weights before each."""
    batches, weights = [], []
    for update in range(updates):
        weights.append(learner.weights)
        batch = recipe.batch(learner, position, update)
        position = batch.position
        optimize(learner, batch.data, batch.loss, batch.adam)
        batches.append(batch)
    return batches, weights


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_plays_are_as_old_as_they_may_be_and_say_so(recipe, tmp_path, ahead):
    with PlaysAhead(recipe(), updates_ahead=ahead, updates=6) as playing:
        batches, weights = learn(playing, trainer(tmp_path), 6)
    ages = [int(batch.metrics["rollout/age"]) for batch in batches]
    assert ages == [min(update, ahead) for update in range(6)]
    for update, (batch, age) in enumerate(zip(batches, ages, strict=True)):
        assert batch.data
        for datum in batch.data:
            # A policy's logprobs tell its weights.
            sampled_with = -0.5 - weights[update - age]
            assert datum.logprobs_T[datum.mask_T] == pytest.approx(sampled_with)
    assert len(set(weights)) == 6


def test_the_tasks_are_those_of_a_run_that_waits(recipe, tmp_path):
    waiting, _ = learn(recipe(), trainer(tmp_path), 4, position=3)
    with PlaysAhead(recipe(), updates_ahead=2, updates=4) as playing:
        ahead, _ = learn(playing, trainer(tmp_path), 4, position=3)
    assert [batch.position for batch in ahead] == [batch.position for batch in waiting] == [6, 9, 12, 15]
    # The first update's plays are of the same weights in both.
    assert [one.tokens_T.tolist() for one in ahead[0].data] == [one.tokens_T.tolist() for one in waiting[0].data]


def test_nothing_is_played_beyond_the_end(recipe, tmp_path):
    class Counting(Corridors):
        made = 0

        def make(self, task):
            self.made += 1
            return super().make(task)

    pool = Counting()
    with PlaysAhead(recipe(pool=pool), updates_ahead=10, updates=2) as playing:
        batches, _ = learn(playing, trainer(tmp_path), 2)
    assert pool.made == sum(batch.metrics["rollout/trajectories"] for batch in batches) == 24


def test_an_error_of_a_play_is_that_of_the_update_that_needs_it(recipe, tmp_path):
    learner = trainer(tmp_path)
    with PlaysAhead(recipe(), updates_ahead=1, updates=3) as playing:
        batch = playing.batch(learner, 0, 0)
        learner.backend.fail = lambda prompt: BalanceError("the account is empty")
        optimize(learner, batch.data, batch.loss, batch.adam)
        # What is being played has its sampler already; what is played from now on fails.
        batch = playing.batch(learner, batch.position, 1)
        with pytest.raises(BalanceError, match="empty"):
            playing.batch(learner, batch.position, 2)


def test_leaving_ends_what_is_still_being_played(recipe, tmp_path):
    learner, waiting = trainer(tmp_path), threading.Event()
    first = learner.sampler()

    class Silent(type(first)):
        async def sample(self, prompt, params, *, n=1):
            waiting.set()
            await asyncio.Event().wait()

    with PlaysAhead(recipe(), updates_ahead=1, updates=3) as playing:
        samplers = iter([first, Silent(learner.backend.player, 0.0)])
        learner.sampler = lambda: next(samplers)
        assert playing.batch(learner, 0, 0).data
        assert waiting.wait(30)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rollouts")]

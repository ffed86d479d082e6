"""Rollouts of the next updates while this one trains: the weights they were sampled with are some updates old."""

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Self

from alfworld_rl.algorithms.recipe import Batch
from alfworld_rl.algorithms.rl import Played, ReinforcementLearning
from alfworld_rl.backends.base import Sampler, Trainer


class PlaysAhead:
    """A `Recipe`: reinforcement learning whose rollouts run up to `updates_ahead` updates before they are learned from.

    The loss takes its probability ratio against the logprobs that the tokens were sampled with, so that older plays are
    weighed as what they are (off-policy by at most so many updates; `rollout/age` says by how many). `updates` is how
    many updates the run has: nothing is played beyond. A context manager: leaving it ends what is still being played.
    """

    def __init__(self, recipe: ReinforcementLearning, *, updates_ahead: int, updates: int) -> None:
        self._recipe = recipe
        self._ahead = updates_ahead
        self._updates = updates
        # Plays follow each other in one thread, since a play's tasks begin where the last one's ended.
        self._executor = ThreadPoolExecutor(1, "rollouts")
        self._playing: dict[int, tuple[int, Future[Played]]] = {}
        self._position: int | None = None
        self._running: tuple[asyncio.AbstractEventLoop, threading.Event] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for _version, future in self._playing.values():
            future.cancel()
        if self._running is not None:
            loop, ended = self._running
            with contextlib.suppress(RuntimeError):  # it ended just now, and its loop is closed
                if not ended.is_set():
                    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        self._executor.shutdown(wait=True)

    def batch(self, trainer: Trainer, position: int, update: int) -> Batch:
        """See `Recipe.batch`. Returns as soon as this update's plays are there, the next ones being played."""
        if self._position is None:
            self._position = position
        if update not in self._playing:
            self._play(trainer.sampler(), update, version=update)
        version, future = self._playing[update]
        played = future.result()
        del self._playing[update]
        later = [n for n in range(update + 1, min(update + 1 + self._ahead, self._updates)) if n not in self._playing]
        if later:
            sampler = trainer.sampler()
            for number in later:
                self._play(sampler, number, version=update)
        batch = self._recipe.learn(played, update)
        return replace(batch, metrics={**batch.metrics, "rollout/age": update - version})

    def line(self, update: int, metrics: Mapping[str, float]) -> str | None:
        """See `Recipe.line`."""
        return self._recipe.line(update, metrics)

    def _play(self, sampler: Sampler, update: int, version: int) -> None:
        self._playing[update] = (version, self._executor.submit(self._played, sampler, update))

    def _played(self, sampler: Sampler, update: int) -> Played:
        """In the thread of rollouts: play, from where the play before ended."""
        assert self._position is not None
        with asyncio.Runner() as runner:
            ended = threading.Event()
            self._running = (runner.get_loop(), ended)
            if self._closed:
                raise asyncio.CancelledError
            try:
                played = self._recipe.play(sampler, self._position, update, runner)
            finally:
                ended.set()
        self._position = played.position
        return played

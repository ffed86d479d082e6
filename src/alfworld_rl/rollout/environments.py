"""Worlds for rollouts: ours in this process, the official ones here or in worker processes.

A step of our own engine takes microseconds, less than handing it to anyone. The official stack takes up to a tenth
of a second, is not safe for threads, and so lives in processes: each holds many worlds and serves one at a time.
"""

import asyncio
import contextlib
import hashlib
import importlib.util
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, Self

from alfworld_rl.errors import AlfworldRLError, UsageError, installing
from alfworld_rl.rollout.settings import RolloutSettings
from alfworld_rl.world import Game, View, World


class Environment(Protocol):
    """One playable state of a game, behind an await."""

    async def reset(self) -> View: ...

    async def step(self, command: str) -> View: ...

    @property
    def anchor(self) -> int:
        """A number for the present state; equal states of one game have equal ones."""
        ...

    async def close(self) -> None: ...


class Environments:
    """Makes environments for games as the settings ask. A context manager: leaving it ends the worker processes."""

    def __init__(self, settings: RolloutSettings) -> None:
        """Raises UsageError where the official stack is asked for and not installed."""
        self._official = settings.environment == "textworld"
        if self._official and importlib.util.find_spec("alfworld") is None:
            raise UsageError(
                f"the official environment needs the extra alfworld: run `{installing('alfworld')}`, "
                "or play with --environment fast"
            )
        self._in_workers = self._official and settings.environment_asynchronous
        self._workers: list[_Worker] = []
        # Groups of one game, and the next epoch, share a parse; bounded, since a split has thousands of games.
        self._load = lru_cache(maxsize=256)(Game.load)

    def make(self, path: Path) -> Environment:
        """A new environment of the game at `path`. Raises GameFileError if there is none (in workers: at reset)."""
        if self._in_workers:
            return _RemoteEnvironment(self._least_busy_worker(), path)
        if self._official:
            from alfworld_rl.world.textworld import TextWorldWorld

            return _LocalEnvironment(TextWorldWorld(path))
        return _LocalEnvironment(World(self._load(path)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _least_busy_worker(self) -> "_Worker":
        for dead in [worker for worker in self._workers if not worker.alive]:
            self._workers.remove(dead)
            dead.end()
        idle = next((worker for worker in self._workers if not worker.worlds), None)
        if idle is not None:
            return idle
        if len(self._workers) < (os.process_cpu_count() or 1):
            self._workers.append(_Worker())
            return self._workers[-1]
        return min(self._workers, key=lambda worker: len(worker.worlds))


class _LocalEnvironment:
    """A world of this process; nothing ever waits."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._view: View | None = None

    async def reset(self) -> View:
        self._view = self._world.reset()
        return self._view

    async def step(self, command: str) -> View:
        self._view = self._world.step(command)
        return self._view

    @property
    def anchor(self) -> int:
        key = getattr(self._world, "state_key", None)
        return hash(key) if key is not None else _anchor_of_view(self._view)

    async def close(self) -> None:
        close = getattr(self._world, "close", None)
        if close is not None:
            close()


class _RemoteEnvironment:
    """A world in a worker process."""

    def __init__(self, worker: "_Worker", path: Path) -> None:
        self._worker = worker
        self._path = path
        self._view: View | None = None
        worker.worlds.add(id(self))

    async def reset(self) -> View:
        self._view = await self._worker.ask(("reset", id(self), self._path))
        return self._view

    async def step(self, command: str) -> View:
        self._view = await self._worker.ask(("step", id(self), command))
        return self._view

    @property
    def anchor(self) -> int:
        return _anchor_of_view(self._view)

    async def close(self) -> None:
        if id(self) in self._worker.worlds:
            self._worker.worlds.discard(id(self))
            with contextlib.suppress(WorldProcessError):
                await self._worker.ask(("close", id(self), None))


def _anchor_of_view(view: View | None) -> int:
    """Where the state is hidden, what the player sees stands for it, as in GiGPO's paper."""
    text = repr((view.observation, view.admissible_commands) if view else None)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


class WorldProcessError(AlfworldRLError):
    """A worker process died or its world raised; the trajectory that needed it fails."""


class _Worker:
    """A process that holds official worlds, and the thread that waits for its answers."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True, name="alfworld-worlds")
        self._process.start()
        theirs.close()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worlds")
        self.worlds: set[int] = set()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    async def ask(self, request: tuple[str, int, Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._exchange, request)

    def _exchange(self, request: tuple[str, int, Any]) -> Any:
        try:
            self._connection.send(request)
            answer, error = self._connection.recv()
        except (EOFError, OSError):
            raise WorldProcessError("the process of the official environment died; was memory short?") from None
        if error is not None:
            raise WorldProcessError(error)
        return answer

    def end(self) -> None:
        # The process holds nothing that must be saved; its end also frees the thread that waits for it.
        self._process.kill()
        self._process.join()
        self._thread.shutdown(wait=True)
        self._connection.close()


def _serve(connection: Connection) -> None:
    """The worker process: answers requests until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worlds: dict[int, Any] = {}
    while True:
        try:
            what, key, argument = connection.recv()
        except (EOFError, OSError):
            return
        answer, error = None, None
        try:
            match what:
                case "reset":
                    if key not in worlds:
                        from alfworld_rl.world.textworld import TextWorldWorld

                        worlds[key] = TextWorldWorld(argument)
                    answer = worlds[key].reset()
                case "step":
                    answer = worlds[key].step(argument)
                case "close" if key in worlds:
                    worlds.pop(key).close()
        except Exception as problem:
            error = str(problem) or type(problem).__name__
        connection.send((answer, error))

"""Official worlds in worker processes.

A step of our own engine takes microseconds, less than handing it to anyone. The official stack takes up to a tenth
of a second, is not safe for threads, and so lives in processes: each holds many worlds and serves one at a time.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.world import View


class OfficialWorkers:
    """Up to a worker process a processor, started as worlds need them. `close` ends them."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []

    def make(self, path: Path) -> "OfficialEnvironment":
        """A new environment of the game at `path`, in the least busy process."""
        return OfficialEnvironment(self._least_busy(), path)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _least_busy(self) -> "_Worker":
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


class OfficialEnvironment:
    """A world in a worker process; its state is hidden, so what the player sees stands for it."""

    def __init__(self, worker: "_Worker", path: Path) -> None:
        self._worker = worker
        self._path = path
        self._view: View | None = None
        worker.worlds.add(id(self))

    async def reset(self) -> View:
        view: View = await self._worker.ask(("reset", id(self), self._path))
        self._view = view
        return view

    async def step(self, action: str) -> View:
        view: View = await self._worker.ask(("step", id(self), action))
        self._view = view
        return view

    def state_key(self) -> Hashable:
        return self._view

    async def close(self) -> None:
        if id(self) in self._worker.worlds:
            self._worker.worlds.discard(id(self))
            with contextlib.suppress(WorldProcessError):
                await self._worker.ask(("close", id(self), None))


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

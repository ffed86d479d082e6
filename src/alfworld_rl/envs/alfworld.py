"""ALFWorld's text games as an environment family: our engine, or the official stack."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from alfworld_rl.envs.workers import OfficialEnvironment, OfficialWorkers
from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games import GameRef, discover
from alfworld_rl.games.game import Game, GameFileError
from alfworld_rl.types import Task
from alfworld_rl.world import View, World


class AlfworldFamily:
    """The games under `data_root`, the folder that holds json_2.1.1.

    - official: play them by alfworld and TextWorld themselves, to the letter the same and hundreds of times slower.
    - workers: keep official worlds in processes of their own; else all of them are stepped here, one after the other.
    """

    def __init__(self, data_root: Path, *, official: bool = False, workers: bool = True) -> None:
        """Raises UsageError where the official stack is asked for and not installed."""
        if official and not (find_spec("textworld") and find_spec("alfworld")):
            raise UsageError(
                f"--environment textworld needs the extra `alfworld`: `{installing('alfworld')}`; "
                "--environment fast plays the same games without it"
            )
        self.data_root = data_root
        self._official = official
        self._workers = workers
        # Groups of one game, and the next epoch, share a parse; bounded, since a split has thousands of games.
        self._load = lru_cache(maxsize=256)(Game.load)

    def tasks(self, split: str) -> Sequence[GameRef]:
        """See `base.EnvironmentFamily`."""
        return discover(self.data_root, split).games

    def left_out(self, split: str) -> Sequence[str]:
        """See `base.EnvironmentFamily`."""
        listing = discover(self.data_root, split)
        if not listing.left_out:
            return ()
        reasons = ", ".join(f"{count} {reason}" for reason, count in listing.left_out.items())
        return (
            f"{split}: {len(listing.games)} games; left out: {reasons}",
            *(f"  {one}" for one in listing.broken[:5]),
        )

    def content_hash(self, task: Task) -> str:
        """SHA-256 of the game file, in hex digits."""
        path = _game(task).path
        try:
            content = path.read_bytes()
        except OSError as error:
            raise GameFileError(path, f"cannot be read ({error.strerror or error})") from error
        Game.parse(content, path)
        return hashlib.sha256(content).hexdigest()

    @contextmanager
    def pool(self) -> Iterator["AlfworldPool"]:
        """See `base.EnvironmentFamily`; leaving the block ends the worker processes."""
        workers = OfficialWorkers() if self._official and self._workers else None
        try:
            yield AlfworldPool(self._load, official=self._official, workers=workers)
        finally:
            if workers is not None:
                workers.close()


class AlfworldPool:
    """Makes environments of games; from `AlfworldFamily.pool`."""

    def __init__(self, load: Callable[[Path], Game], *, official: bool, workers: OfficialWorkers | None) -> None:
        self._load = load
        self._official = official
        self._workers = workers

    def make(self, task: Task) -> "LocalEnvironment | OfficialEnvironment":
        """A new environment of the game. Raises GameFileError if there is none (in workers: at reset)."""
        path = _game(task).path
        if self._workers is not None:
            return self._workers.make(path)
        if self._official:
            from alfworld_rl.world.textworld import TextWorldWorld

            return LocalEnvironment(TextWorldWorld(path))
        return LocalEnvironment(World(self._load(path)))


class _Playable(Protocol):
    def reset(self) -> View: ...
    def step(self, command: str) -> View: ...


class LocalEnvironment:
    """A world of this process; nothing ever waits."""

    def __init__(self, world: _Playable) -> None:
        self._world = world
        self._view: View | None = None

    async def reset(self) -> View:
        """See `base.Environment`."""
        self._view = self._world.reset()
        return self._view

    async def step(self, action: str) -> View:
        """See `base.Environment`."""
        self._view = self._world.step(action)
        return self._view

    def state_key(self) -> Hashable:
        """The world's own state, or for the official stack, which hides it, what the player sees."""
        return self._world.state_key if isinstance(self._world, World) else self._view

    async def close(self) -> None:
        """See `base.Environment`."""
        close = getattr(self._world, "close", None)
        if close is not None:
            close()


def _game(task: Task) -> GameRef:
    if not isinstance(task, GameRef):
        raise TypeError(f"an ALFWorld environment plays games that `tasks` gave, not {task!r}")
    return task

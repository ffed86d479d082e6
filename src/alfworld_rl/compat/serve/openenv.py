"""ALFWorld as an OpenEnv environment (openenv 0.10): a session is one player, its actions are commands.

The application speaks OpenEnv's protocol at /ws (sessions), /schema, /metadata, /health and its task routes under
/alfworld (`splits`, `tasks`, `num_tasks`, `task`, `task_range`). A client needs openenv alone:

    from openenv import GenericEnvClient

    with GenericEnvClient("http://127.0.0.1:8000").sync() as world:
        result = world.reset(split="valid_seen", index=0)
        result = world.step({"command": result.observation["admissible_commands"][0]})
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from openenv.core.env_server import interfaces
from openenv.core.env_server import types as openenv_types
from openenv.core.env_server.http_server import HTTPEnvServer
from pydantic import Field

from alfworld_rl.compat.serve.guard import Application, Guard
from alfworld_rl.compat.serve.metrics import Metrics
from alfworld_rl.envs import Environment, Pool
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.types import Observation, Task

NAME = "alfworld"
_SPLIT_TYPES = {"train": "train", "valid_seen": "validation", "valid_unseen": "test"}
_RESET_TAKES = ("split", "index", "game_id", "seed", "episode_id", "max_episode_steps")


class CommandAction(openenv_types.Action):  # type: ignore[misc]
    """What a player types; one that is not admissible, to the letter, is answered "Nothing happens."."""

    command: str = Field(description="one of the admissible commands, word for word")


class WorldObservation(openenv_types.Observation):  # type: ignore[misc]
    """What a player sees. `reward` is how much the score rose: 1 for the command that wins, -1 if one undoes it.

    `done` is whether the game is won now, or its steps are used up (`truncated`); it can be played on all the same.
    """

    text: str
    task: str
    admissible_commands: tuple[str, ...]
    score: float
    won: bool
    truncated: bool
    game_id: str


class WorldState(openenv_types.State):  # type: ignore[misc]
    """Where a session stands; all but `step_count` is None before the first reset."""

    game_id: str | None = None
    task: str | None = None
    won: bool | None = None


class Games:
    """The games that a server plays, by split and by id. Raises UsageError for what it does not have."""

    def __init__(self, splits: Mapping[str, Sequence[Task]]) -> None:
        self._splits = splits
        self._by_id = {game.game_id: game for games in splits.values() for game in games}

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._splits)

    def split(self, name: str | None) -> Sequence[Task]:
        """The games of a split, by default of the first one."""
        name = self.splits[0] if name is None else name
        if name not in self._splits:
            raise UsageError(f"there is no split {name!r}; this server has {', '.join(self.splits)}")
        return self._splits[name]

    def choose(self, split: str | None, index: int | None, game_id: str | None, seed: int | None) -> Task:
        """A game by id, else by its place in the split, else one drawn by the seed, else one drawn at random."""
        if game_id is not None:
            if game_id not in self._by_id:
                raise UsageError(f"there is no game {game_id!r} on this server; its task routes list what there is")
            return self._by_id[game_id]
        games = self.split(split)
        if index is None:
            return random.Random(seed).choice(games)
        if not (isinstance(index, int) and 0 <= index < len(games)):
            raise UsageError(f"index must be a whole number from 0 to {len(games) - 1}, not {index!r}")
        return games[index]


class WorldSession(interfaces.Environment):  # type: ignore[misc]
    """One player. Made by OpenEnv's server for every connection, which gives no other one access to it."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    # Steps run on the event loop (they take microseconds, or wait for a worker process): no thread for each session.
    REQUIRES_SINGLE_THREAD_EXECUTOR = True

    def __init__(self, games: Games, pool: Pool, metrics: Metrics, max_episode_steps: int) -> None:
        super().__init__()
        self._games = games
        self._pool = pool
        self._metrics = metrics
        self._default_steps = max_episode_steps
        self._environment: Environment | None = None
        self._game: Task | None = None
        self._seen: Observation | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._episode_id: str | None = None
        self._steps = self._max_steps = 0

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **wanted: Any
    ) -> WorldObservation:
        """Begin a game: `game_id`, or `split` and `index`, or one drawn from `split` by `seed`.

        `max_episode_steps` ends it after so many commands (0: never). Raises UsageError for anything else.
        """
        if unknown := [name for name in wanted if name not in _RESET_TAKES]:
            raise UsageError(f"reset knows {', '.join(_RESET_TAKES)}, not {', '.join(unknown)}")
        steps = wanted.get("max_episode_steps", self._default_steps)
        if not (isinstance(steps, int) and steps >= 0):
            raise UsageError(f"max_episode_steps must be a whole number from 0 on, not {steps!r}")
        game = self._games.choose(wanted.get("split"), wanted.get("index"), wanted.get("game_id"), seed)
        self._loop = asyncio.get_running_loop()
        if self._environment is None or game is not self._game:
            self._seen = None
            if self._environment is not None:
                await self._environment.close()
                self._environment = None
            self._environment = self._pool.make(game)
        self._game, self._episode_id, self._steps, self._max_steps = game, episode_id, 0, steps
        self._seen = await self._environment.reset()
        self._metrics.resets.inc()
        return self._observation(self._seen, game, None)

    async def step_async(self, action: CommandAction, timeout_s: float | None = None, **_: Any) -> WorldObservation:
        """Do a command. Raises UsageError before the first reset."""
        if self._environment is None or self._seen is None or self._game is None:
            raise UsageError(
                "there is no game in this session: call reset first (a session that was idle for too long has ended, "
                "and its client is in a new one; /step over HTTP has no session, use /ws)"
            )
        before = self._seen
        begin = time.perf_counter()
        view = await self._environment.step(action.command)
        self._metrics.step_seconds.observe(time.perf_counter() - begin)
        self._metrics.steps.inc()
        if view.won and not before.won:
            self._metrics.wins.inc()
        self._seen = view
        self._steps += 1
        return self._observation(view, self._game, float(view.score - before.score))

    def reset(self, seed: int | None = None, episode_id: str | None = None, **wanted: Any) -> WorldObservation:
        """OpenEnv asks for it; its server calls `reset_async`."""
        raise NotImplementedError("use reset_async")

    def step(self, action: CommandAction, timeout_s: float | None = None, **_: Any) -> WorldObservation:
        """OpenEnv asks for it; its server calls `step_async`."""
        raise NotImplementedError("use step_async")

    def close(self) -> None:
        """Give the world back; may be called from any thread."""
        environment, self._environment, self._seen = self._environment, None, None
        if environment is not None and self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(environment.close(), self._loop)

    @property
    def state(self) -> WorldState:
        """Where the session stands."""
        if self._seen is None or self._game is None:
            return WorldState()
        return WorldState(
            episode_id=self._episode_id,
            step_count=self._steps,
            game_id=self._game.game_id,
            task=self._seen.task,
            won=self._seen.won,
        )

    def get_metadata(self) -> openenv_types.EnvironmentMetadata:
        """Name and version, for people."""
        return openenv_types.EnvironmentMetadata(
            name=NAME,
            description="ALFWorld's text games: find, clean, heat, cool, light and place things in a house.",
            version=version("alfworld-agent-rl"),
        )

    # --- OpenEnv's task routes

    def list_splits(self) -> list[dict[str, str]]:
        return [{"name": name, "type": _SPLIT_TYPES.get(name, "validation")} for name in self._games.splits]

    def num_tasks(self, split: str) -> int:
        return len(self._games.split(split))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return _task(index, self._games.choose(split, index, None, None))

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return [_task(index, game) for index, game in enumerate(self._games.split(split))][start:stop]

    def _observation(self, view: Observation, game: Task, reward: float | None) -> WorldObservation:
        truncated = bool(self._max_steps) and self._steps >= self._max_steps and not view.won
        return WorldObservation(
            done=view.done or truncated,
            reward=reward,
            text=view.text,
            task=view.task,
            admissible_commands=tuple(view.actions),
            score=view.score,
            won=view.won,
            truncated=truncated,
            game_id=game.game_id,
        )


def _task(index: int, game: Task) -> dict[str, Any]:
    return {"id": game.game_id, "index": index, "split": game.split, "task_type": game.task_type}


def create_app(
    games: Games,
    pool: Pool,
    *,
    max_sessions: int = 1000,
    idle_seconds: float = 600,
    max_message_bytes: int = 65536,
    max_episode_steps: int = 50,
) -> Application:
    """The ASGI application; `alfworld_rl.commands.serve` says what the limits mean."""
    metrics = Metrics()
    server = HTTPEnvServer(
        partial(WorldSession, games, pool, metrics, max_episode_steps),
        CommandAction,
        WorldObservation,
        concurrency_config=openenv_types.ConcurrencyConfig(
            max_concurrent_envs=max_sessions, session_timeout=idle_seconds
        ),
        env_name=NAME,
        state_cls=WorldState,
    )
    metrics.sessions.set_function(lambda: server.active_sessions)
    app = FastAPI(title="ALFWorld", version=version("alfworld-agent-rl"), description="ALFWorld's text games (OpenEnv)")

    async def in_a_sentence(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=400 if isinstance(error, UsageError) else 500)

    app.add_exception_handler(AlfworldRLError, in_a_sentence)

    @app.get("/metrics", include_in_schema=False)
    async def measured() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    server.register_routes(app)
    return Guard(app, metrics, idle_seconds=idle_seconds, max_message_bytes=max_message_bytes)

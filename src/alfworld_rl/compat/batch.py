"""The environments that `AlfredTWEnv.init_env` gives: TextWorld's batch environment, in shape and behaviour."""

import dataclasses
import random
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import StringIO
from typing import Any, Literal

import numpy as np

from alfworld_rl.compat.experts import Expert, make_expert
from alfworld_rl.console import printable
from alfworld_rl.errors import UsageError
from alfworld_rl.world import Game, World

type Infos = dict[str, list[Any]]

# The copies of a group, and the next turn of the pool, share a parse; a pool of thousands is not held in memory.
_load = lru_cache(maxsize=64)(Game.load)


class BatchEnv:
    """Plays `batch_size` games at once, each reset going on to the next games of an endlessly reshuffled pool.

    Like TextWorld's, it is seeded with 1234 when made. `max_episode_steps` None or 0 sets no limit.
    """

    def __init__(
        self,
        gamefiles: Sequence[str],
        *,
        batch_size: int = 1,
        max_episode_steps: int | None = None,
        expert: Literal["handcoded", "demonstrator"] | None = None,
        shuffle_numbers: bool = False,
    ) -> None:
        if not gamefiles:
            raise UsageError("There are no games to play.")
        if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool) or batch_size < 1:
            raise UsageError(f"batch_size is {batch_size!r}; it has to be a whole number from 1 on.")
        self.gamefiles = list(gamefiles)
        self.batch_size = batch_size
        self.obs: Any = ()
        self.last_commands: Sequence[str | None] = [None] * batch_size
        self._max_episode_steps = max_episode_steps or 0
        self._shuffle_numbers = shuffle_numbers
        self._expert = expert
        self._episodes: list[_Episode] = []
        self.seed(1234)

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Shuffle the pool anew and start from its beginning; the same seed gives the official class's order."""
        self._pool = _reshuffled(self.gamefiles, np.random.RandomState(seed))
        return [seed]

    def skip(self, nb_games: int = 1) -> None:
        """Leave out the next games of the pool."""
        for _ in range(nb_games):
            next(self._pool)

    def reset(self) -> tuple[Any, Any]:
        """Start the next `batch_size` games: observations (a tuple of texts) and infos (a list for each key)."""
        gamefiles = [next(self._pool) for _ in range(self.batch_size)]
        self._episodes = [
            _Episode(gamefile, self._max_episode_steps, self._expert, self._shuffle_numbers) for gamefile in gamefiles
        ]
        self.last_commands = [None] * self.batch_size
        self.obs = tuple(episode.view.observation for episode in self._episodes)
        return self.obs, _infos(self._episodes)

    def step(self, commands: Any) -> tuple[Any, Any, Any, Any]:
        """Send one command to each game: observations, scores, dones (tuples) and infos.

        A game that is done, by its goal or by the step limit, does nothing more and repeats its last answer.
        """
        if not self._episodes:
            raise UsageError("Call reset before step.")
        if not isinstance(commands, list | tuple) or len(commands) != self.batch_size:
            raise UsageError(f"step takes a list of {self.batch_size} commands, one for each game.")
        self.last_commands = list(commands)
        for episode, command in zip(self._episodes, commands, strict=True):
            episode.step(command)
        self.obs = tuple(episode.view.observation for episode in self._episodes)
        scores = tuple(episode.view.score for episode in self._episodes)
        dones = tuple(episode.done for episode in self._episodes)
        return self.obs, scores, dones, _infos(self._episodes)

    def render(self, mode: str = "human") -> str | StringIO | None:
        """The last command and answer of each game: printed ("human"), as a str ("text") or a StringIO ("ansi")."""
        if not self.obs:
            raise UsageError("Call reset before render.")
        texts = []
        for command, observation in zip(self.last_commands, self.obs, strict=True):
            text = printable(observation).rstrip() + "\n"
            if command is not None:
                told = f"> {printable(command)}"
                text = f"{told if mode == 'text' else f'\033[33m{told}\033[0m'}\n{text}"
            if mode == "human":
                text = "\n".join("\n".join(textwrap.wrap(line, width=80)) for line in text.split("\n"))
            texts.append(text)
        rendering = "\n-----\n".join(texts) + "\n"
        if mode == "human":
            print(rendering, end="")
            return None
        return StringIO(rendering) if mode == "ansi" else rendering

    def close(self) -> None:
        """Forget the games being played; nothing else is held."""
        self._episodes = []


class SingleEnv(BatchEnv):
    """One game at a time, without the tuples and lists around everything."""

    def reset(self) -> tuple[str, dict[str, Any]]:
        observations, infos = super().reset()
        return observations[0], {key: values[0] for key, values in infos.items()}

    def step(self, commands: str) -> tuple[str, int, bool, dict[str, Any]]:
        observations, scores, dones, infos = super().step([commands])
        return observations[0], scores[0], dones[0], {key: values[0] for key, values in infos.items()}


class _Episode:
    """One game being played, and what the infos say of it."""

    def __init__(self, gamefile: str, max_steps: int, expert: str | None, shuffle_numbers: bool) -> None:
        game = _load(gamefile)
        self._world = World(_renumbered(game) if shuffle_numbers else game)
        self.view = self._world.reset()
        self.done = False
        self._steps_left = max_steps
        # As in the official class, only the first answer of an episode names the file.
        self.gamefile: str | None = gamefile
        self._expert: Expert | None = make_expert(expert, gamefile, self._world) if expert else None
        self.plan = self._expert.plan() if self._expert else None

    def step(self, command: str) -> None:
        if self.done:
            return
        self.view = self._world.step(command)
        self._steps_left -= 1
        self.done = self.view.done or self._steps_left == 0
        self.gamefile = None
        if self._expert:
            self.plan = self._expert.plan(command)


def _infos(episodes: Sequence[_Episode]) -> Infos:
    infos: Infos = {
        "won": [episode.view.won for episode in episodes],
        "admissible_commands": [list(episode.view.admissible_commands) for episode in episodes],
        "extra.gamefile": [episode.gamefile for episode in episodes],
    }
    if episodes[0].plan is not None:
        infos["extra.expert_plan"] = [episode.plan for episode in episodes]
    return infos


def _reshuffled(gamefiles: Sequence[str], rng: np.random.RandomState) -> Iterator[str]:
    """The pool without end, shuffled by `rng` before every turn."""
    order: Any = list(gamefiles)
    while True:
        rng.shuffle(order)
        yield from tuple(order)


def _renumbered(game: Game) -> Game:
    """The same game with the numbers within each kind of thing dealt out at random."""
    numbers: dict[str, list[str]] = defaultdict(list)
    names = (*game.objects, *game.receptacles, *game.places)
    for name in names:
        kind, _, number = name.rpartition(" ")
        numbers[kind].append(number)
    for dealt in numbers.values():
        random.shuffle(dealt)
    renamed = [f"{kind} {numbers[kind].pop()}" for kind, _, _ in (name.rpartition(" ") for name in names)]
    objects, receptacles = len(game.objects), len(game.objects) + len(game.receptacles)
    return dataclasses.replace(
        game,
        objects=tuple(renamed[:objects]),
        receptacles=tuple(renamed[objects:receptacles]),
        places=tuple(renamed[receptacles:]),
        walkthrough=(),  # it speaks of the old numbers
        kept={},
        commands={},
    )

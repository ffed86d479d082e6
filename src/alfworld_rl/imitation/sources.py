"""Endless sequences of demonstrations; each depends on what it is made of and its number alone."""

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alfworld_rl.agents import AgentFormat, CommandsShown
from alfworld_rl.games import GameRef
from alfworld_rl.imitation.demonstrations import Demonstration, Mistakes, demonstrate, imitate, label
from alfworld_rl.rollouts import Limits
from alfworld_rl.types import Completion
from alfworld_rl.world import Game

PATIENCE = 4
"""Refused messages in a row after which the learner's play has nothing more to teach."""

Play = tuple[GameRef, Sequence[str | None]]
"""A recorded play: the game, and what each message asked for."""


@dataclass(slots=True, kw_only=True)
class Demonstrations:
    """The expert's plays of `games`, or, where there are any, the recorded `plays`.

    `commands` are the ways to show the admissible commands, one of which each demonstration has (one that is named
    twice comes twice as often), and `agents` the forms in which they are written.
    Two thirds of the expert's plays have mistakes, half of `mistakes.perturbation` and all of it, and a third wanders.
    """

    games: Sequence[GameRef]
    agents: Mapping[CommandsShown, AgentFormat]
    commands: Sequence[CommandsShown]
    limits: Limits
    mistakes: Mistakes
    seed: int
    plays: Sequence[Play] = ()
    _load: Any = field(init=False)
    _by_id: Mapping[str, GameRef] = field(init=False)

    def __post_init__(self) -> None:
        self._load = functools.lru_cache(maxsize=5000)(Game.load)
        self._by_id = {game.game_id: game for game in self.games}

    def __len__(self) -> int:
        """After so many demonstrations every game, or recorded play, has been shown once."""
        return len(self.plays or self.games)

    def demonstration(self, number: int) -> Demonstration:
        rng = random.Random(f"{self.seed}/{number}")
        choices: Sequence[Any] = self.plays or self.games
        order = _shuffled(len(choices), f"{self.seed}/{number // len(choices)}")
        agent = self.agents[rng.choice(self.commands)]
        if self.plays:
            game, actions = self.plays[order[number % len(order)]]
            return imitate(self._load(game.path), game, agent, self.limits, actions)
        mistakes = Mistakes(
            perturbation=self.mistakes.perturbation * rng.choice((0, 0.5, 1)),
            exploration=self.mistakes.exploration * rng.choice((0, 0, 1)),
        )
        game = self.games[order[number % len(order)]]
        return demonstrate(self._load(game.path), game, agent, self.limits, mistakes, rng)

    def labelled(self, game_id: str, commands: CommandsShown, completions: Sequence[Completion]) -> Demonstration:
        """What the expert says to the learner's play of a game."""
        game = self._by_id[game_id]
        return label(self._load(game.path), game, self.agents[commands], self.limits, completions, patience=PATIENCE)


@functools.lru_cache(maxsize=4)
def _shuffled(count: int, seed: str) -> Sequence[int]:
    return random.Random(seed).sample(range(count), count)

"""A game as a conversation of messages, for loops of others that keep the model and its tokens to themselves.

The texts, the reading of actions, the limits and the rewards are those of this project's own rollouts (see
`rollouts.turn` and the format `tool-call`), so that a policy trained in another loop meets the same game here.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from alfworld_rl.agents import CommandsShown, match_action
from alfworld_rl.agents.calls import CALL_EXPLAINED, read_action
from alfworld_rl.agents.texts import NOTHING_HAPPENS, answer_text, opening_text
from alfworld_rl.agents.thinking import split_thought
from alfworld_rl.agents.tool_call import system_text
from alfworld_rl.algorithms.rewards import REWARDS, Reward, score
from alfworld_rl.config.workspace import alfworld_games
from alfworld_rl.envs.tasks import spread
from alfworld_rl.errors import UsageError
from alfworld_rl.games import GameRef, discover
from alfworld_rl.rollouts import Step, Trajectory
from alfworld_rl.types import Message
from alfworld_rl.world import Game, World


@lru_cache(maxsize=8)  # loops that make an environment a play would list thousands of folders each time
def _by_id(data_root: Path, split: str) -> Mapping[str, GameRef]:
    return {game.game_id: game for game in discover(data_root, split).games}


_load = lru_cache(maxsize=256)(Game.load)  # the copies of a group share a parse


@dataclass(frozen=True, kw_only=True)
class ChatRules:
    """What games are played, and how; the names are those of `alfworld-rl train --help`.

    - limit: only so many games, spread over the split.
    - call_explained: the system message tells the form of a call. For loops that show the model no tools.
    """

    data_root: str | os.PathLike[str] | None = None
    split: str = "train"
    limit: int | None = None
    admissible_commands: CommandsShown = "full"
    max_episode_steps: int = 50
    reward: str = "document"
    call_explained: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be."""
        if self.admissible_commands not in ("full", "changes", "none"):
            raise UsageError(f"admissible_commands must be full, changes or none, not {self.admissible_commands!r}")
        if self.max_episode_steps < 1:
            raise UsageError(f"max_episode_steps must be at least 1, not {self.max_episode_steps}")
        if complaint := REWARDS.complaint(self.reward):
            raise UsageError(f"reward {complaint}")

    def games(self) -> Sequence[GameRef]:
        """The games, in an order that is the same everywhere. Raises UsageError where there are none."""
        return spread(discover(alfworld_games(self.data_root), self.split).games, self.limit)

    def game(self, game_id: str) -> GameRef:
        """The game of that id. Raises UsageError where there is none."""
        game = _by_id(alfworld_games(self.data_root), self.split).get(game_id)
        if game is None:
            raise UsageError(f"there is no game {game_id!r} in {self.split}")
        return game

    @property
    def system(self) -> Message:
        """The system message, the same for every game."""
        text = system_text(self.admissible_commands)
        return {"role": "system", "content": f"{text}\n\n{CALL_EXPLAINED}" if self.call_explained else text}

    def begin(self, game: GameRef) -> "ChatGame":
        """A new play of `game`. Raises GameFileError where it cannot be read."""
        return ChatGame(game, self)


class ChatGame:
    """One play. `act` (or `hear`) takes the model's message, and gives the answer to it, until `over`."""

    def __init__(self, game: GameRef, rules: ChatRules) -> None:
        self.rules = rules
        self.trajectory = Trajectory(game=game)
        self._world = World(_load(Path(game.path)))
        self._view = self._world.view
        self.trajectory.task = self._view.task
        self.opening = opening_text(self._view, rules.admissible_commands)
        self.over = False

    @property
    def won(self) -> bool:
        return self.trajectory.won

    def hear(self, text: str) -> str:
        """`act` for a message in which the call is text: reads it, and no call that stands in a thought."""
        thought, said = split_thought(text)
        return self.act(read_action(said), text, thought)

    def act(self, action: str | None, text: str = "", thought: str = "") -> str:
        """Do what the model's message asks for; None where it asks for nothing in the right form. Returns the answer.

        `text` is the whole message, for rewards that look at it. Raises ValueError once the game is over.
        """
        if self.over:
            raise ValueError("the game is over")
        before, state_key = self._view, self._world.state_key
        command = None if action is None else match_action(action, before.actions)
        if command is None:
            self._view = replace(before, observation=NOTHING_HAPPENS)
        else:
            self._view = self._world.step(command)
        self.trajectory.steps.append(
            Step(
                span=(0, 0),
                text=text,
                thought=thought,
                action=action,
                accepted=command is not None,
                cut_off=False,
                observation=self._view.text,
                state_key=state_key,
            )
        )
        if self._view.done:
            self.over = True
            self.trajectory.won = self._view.won
            self.trajectory.stop_reason = "won" if self._view.won else "environment_done"
        elif len(self.trajectory.steps) >= self.rules.max_episode_steps:
            self.over = True
            self.trajectory.stop_reason = "max_steps"
        return answer_text(before.actions, self._view, self.rules.admissible_commands)

    def reward(self) -> float:
        """The return so far, by the reward of the rules."""
        reward: Reward = REWARDS[self.rules.reward]
        return score(self.trajectory, reward).total

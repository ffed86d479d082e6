"""ALFWorld for TRL's GRPOTrainer (trl 1.16, extra `trl`): an environment factory and its dataset.

    from alfworld_rl.compat.trl import alfworld

    games = alfworld(split="train", max_episode_steps=30)
    trainer = GRPOTrainer(
        model="Qwen/Qwen3.5-0.8B",
        args=GRPOConfig(max_tool_calling_iterations=games.max_episode_steps),
        train_dataset=games.dataset(),
        environment_factory=games,
    )

TRL presents the tool to the model, reads its calls and writes the answers, by the model's chat template; the texts
and the reward are this project's. Two things differ from `alfworld-rl train`: a message without a call ends TRL's
rollout (here it costs a step), and once a game is over the tool says so until the model stops calling it.
"""

from dataclasses import dataclass
from typing import Any

from alfworld_rl.compat.chat import ChatGame, ChatRules
from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games import GameRef

GAME_OVER = "The game is over."


class ALFWorld:
    """One player of TRL's: every public method but `reset` and `get_reward` is a tool of the model."""

    def __init__(self, rules: ChatRules, games: dict[str, GameRef]) -> None:
        self._rules = rules
        self._games = games
        self._play: ChatGame | None = None

    def reset(self, game_id: str, **_: Any) -> str:
        """Begin the game of a row; returns what the user says."""
        if game_id not in self._games:
            raise UsageError(f"there is no game {game_id!r}; train on the rows that `dataset()` gives")
        self._play = self._rules.begin(self._games[game_id])
        return self._play.opening

    def alfworld_step(self, action: str) -> str:
        """
        Do one command in the house and see what happens.

        Args:
            action: an admissible command, word for word
        """
        if self._play is None:
            raise UsageError("call reset before alfworld_step")
        return GAME_OVER if self._play.over else self._play.act(action)

    def get_reward(self) -> float:
        """What the play was worth, by the reward of `alfworld`."""
        return 0.0 if self._play is None else self._play.reward()


# transformers would show the model what the tool returns, too, and its prompt would be none of ours.
del ALFWorld.alfworld_step.__annotations__["return"]


@dataclass(frozen=True)
class Factory:
    """What GRPOTrainer takes as its `environment_factory`; made by `alfworld`."""

    rules: ChatRules
    games: dict[str, GameRef]

    @property
    def max_episode_steps(self) -> int:
        return self.rules.max_episode_steps

    def __call__(self) -> ALFWorld:
        return ALFWorld(self.rules, self.games)

    def dataset(self) -> Any:
        """A `datasets.Dataset` with a row a game: `prompt`, to which a reset adds the first observation, `game_id`."""
        try:
            from datasets import Dataset
        except ImportError:
            raise UsageError(f"training with TRL needs the extra trl: run `{installing('trl')}`") from None
        prompt = [self.rules.system, {"role": "user", "content": ""}]
        return Dataset.from_list([{"prompt": prompt, "game_id": game_id} for game_id in self.games])


def alfworld(**rules: Any) -> Factory:
    """The games and rules that `chat.ChatRules` names: split, data_root, limit, admissible_commands, ...

    Raises UsageError for what cannot be.
    """
    played = ChatRules(**rules)
    return Factory(played, {game.game_id: game for game in played.games()})

"""ALFWorld for SkyRL (skyrl-gym 0.4, extra `skyrl`): a text environment and the rows of its dataset.

    import skyrl_gym
    from alfworld_rl.compat.skyrl_gym import ENV_ID, register, rows

    register()
    rows(split="train", max_episode_steps=30)    # write them to the parquet file that SkyRL trains on

A call is written as text, in the form that the system message tells; its answer comes as the user's message.
"""

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import register as register_environment
from skyrl_gym.envs.registration import registry

from alfworld_rl.compat.chat import ChatGame, ChatRules
from alfworld_rl.errors import UsageError

ENV_ID = "alfworld"


class ALFWorldTextEnv(BaseTextEnv):  # type: ignore[misc]
    """One play of the row's game. A turn's reward is what the return grew by, so that they sum up to it."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        wanted = (extras or {}).get("extra_info")
        if not wanted or "game_id" not in wanted:
            raise UsageError("a row of ALFWorld names its game in extra_info; train on the rows that `rows` gives")
        rules = ChatRules(**wanted["rules"], call_explained=True)
        self._play = ChatGame(rules.game(wanted["game_id"]), rules)
        self.max_turns = rules.max_episode_steps

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The first messages are the row's own."""
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do what the model's message asks for."""
        before = self._play.reward()
        answer = self._play.hear(action)
        over = self._play.over
        return BaseTextEnvStepOutput(
            observations=[] if over else [{"role": "user", "content": answer}],
            reward=self._play.reward() - before,
            done=over,
            metadata=self.get_metrics(),
        )

    def get_metrics(self) -> dict[str, Any]:
        """By the names of our own metrics."""
        trajectory = self._play.trajectory
        return {
            "won": float(trajectory.won),
            "steps": len(trajectory.steps),
            "invalid_actions": trajectory.invalid_action_count,
        }


def register() -> None:
    """Make `skyrl_gym.make("alfworld", ...)` work; once is enough."""
    if ENV_ID not in registry:
        register_environment(id=ENV_ID, entry_point=f"{__name__}:{ALFWorldTextEnv.__name__}")


def rows(**rules: Any) -> list[dict[str, Any]]:
    """A row a game, in the columns that SkyRL reads; what `chat.ChatRules` takes, by the same names.

    Raises UsageError for what cannot be.
    """
    played = ChatRules(**rules, call_explained=True)
    return [
        {
            "data_source": ENV_ID,
            "env_class": ENV_ID,
            "prompt": [played.system, {"role": "user", "content": played.begin(game).opening}],
            "extra_info": {"game_id": game.game_id, "rules": rules},
        }
        for game in played.games()
    ]

"""ALFWorld for verifiers (0.4, extra `verifiers`) and prime-rl: a taskset, and the environment that plays it.

    vf-eval alfworld-verifiers --env.taskset.split valid_seen -n 20 \\
        -m MODEL --client.base-url http://127.0.0.1:8000/v1 --no-push

Its evaluator would run the agent in a remote sandbox and upload the results; here the agent runs in a process of this
machine by default, and `--no-push` keeps the results here. A call is written as text, in the form that the system
message tells; its answer comes as the user's message.
"""

from collections.abc import Iterator
from typing import Any, Literal

import verifiers.v1 as vf

from alfworld_rl.compat.chat import ChatGame, ChatRules

__all__ = ["ALFWorldEnv", "ALFWorldTaskset", "load_environment"]


class ALFWorldTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which games are played, and how; see `chat.ChatRules`."""

    id: str = "alfworld-verifiers"
    data_root: str | None = None
    split: Literal["train", "valid_seen", "valid_unseen"] = "train"
    limit: int | None = None
    admissible_commands: Literal["full", "changes", "none"] = "full"
    max_episode_steps: int = 50
    reward: str = "document"

    def rules(self) -> ChatRules:
        """Raises UsageError for what cannot be."""
        return ChatRules(
            data_root=self.data_root,
            split=self.split,
            limit=self.limit,
            admissible_commands=self.admissible_commands,
            max_episode_steps=self.max_episode_steps,
            reward=self.reward,
            call_explained=True,
        )


class ALFWorldTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """One game; its name is the game's id."""


class ALFWorldTaskset(vf.Taskset[ALFWorldTask, ALFWorldTasksetConfig]):  # type: ignore[misc]
    """The games of a split, in an order that is the same everywhere."""

    def load(self) -> Iterator[ALFWorldTask]:
        """See `verifiers.v1.Taskset`."""
        rules = self.config.rules()
        for game in rules.games():
            opening = rules.begin(game).opening
            data = vf.TaskData(
                id=game.game_id, name=game.game_id, prompt=opening, system_prompt=rules.system["content"]
            )
            yield ALFWorldTask(data, self.config.task)


class ALFWorldEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Its one agent talks and calls no program, in a process of this machine."""

    taskset: ALFWorldTasksetConfig = ALFWorldTasksetConfig()
    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class ALFWorldEnv(vf.Env[ALFWorldEnvConfig]):  # type: ignore[misc]
    """The model plays; the game is the user."""

    async def run(self, task: ALFWorldTask, agents: Any) -> None:
        """One play. Raises UsageError where the taskset has no such game."""
        rules = self.config.taskset.rules()
        play = ChatGame(rules.game(task.data.id), rules)
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                answer = play.hear(segment.last_reply)
                if play.over:
                    break
                segment = await interaction.turn(answer)
        trace, trajectory = interaction.trace, play.trajectory
        trace.record_reward(rules.reward, play.reward(), 1.0)
        trace.record_metric("won", float(trajectory.won))
        trace.record_metric("steps", float(len(trajectory.steps)))
        trace.record_metric("invalid_actions", float(trajectory.invalid_action_count))
        trace.info["stop_reason"] = trajectory.stop_reason


def load_environment(**taskset: Any) -> ALFWorldEnv:
    """The environment for a program of one's own; takes what `ALFWorldTasksetConfig` has, by the same names."""
    return ALFWorldEnv(ALFWorldEnvConfig(taskset=ALFWorldTasksetConfig(**taskset)))

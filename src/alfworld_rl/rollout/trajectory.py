"""What a rollout leaves behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from alfworld_rl.agents.base import Message
from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.backends.protocol import Usage
from alfworld_rl.games import GameRef

StopReason = Literal["won", "environment_done", "max_steps", "token_limit", "failed"]

INVALID_ACTION_PENALTY = 0.1


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """One play of one game by the model.

    `branch` numbers the trajectories of a group. A step is a message of the model; it is a valid call if it is in
    the right form, and an invalid action if it is not that, was cut off, or asks for a command that is not
    admissible. `anchors` and `step_rewards` have one entry a step: equal anchors of the same game mean that the
    model chose in the same state of the world, and the rewards add up to `reward`. `usage` counts the requests of
    this trajectory alone (see `Group.opening_usage`). `error` says why a trajectory failed.
    """

    game: GameRef
    branch: int
    transcript: Transcript = field(default_factory=Transcript)
    messages: list[Message] = field(default_factory=list)
    task: str = ""
    steps: int = 0
    won: bool = False
    stop_reason: StopReason = "failed"
    invalid_action_count: int = 0
    valid_tool_call_count: int = 0
    admissible_action_count: int = 0
    anchors: list[int] = field(default_factory=list)
    step_rewards: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    sampling_seconds: float = 0.0
    environment_seconds: float = 0.0
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.stop_reason == "failed"

    @property
    def environment_done(self) -> bool:
        """Whether the environment, and not a limit of ours, ended the game."""
        return self.stop_reason in ("won", "environment_done")

    @property
    def truncated(self) -> bool:
        return self.stop_reason in ("max_steps", "token_limit")

    @property
    def reward(self) -> float:
        """1 for a won game, less 0.1 for every invalid action."""
        return float(self.won) - INVALID_ACTION_PENALTY * self.invalid_action_count


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one game, all from its initial state, in the order of their branches.

    `opening_usage` is that of the one request for all first messages.
    """

    game: GameRef
    trajectories: Sequence[Trajectory]
    opening_usage: Usage = field(default_factory=Usage)

    @property
    def usage(self) -> Usage:
        return sum((trajectory.usage for trajectory in self.trajectories), self.opening_usage)

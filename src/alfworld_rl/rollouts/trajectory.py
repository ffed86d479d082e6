"""What a rollout leaves behind."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.types import Message, Task, Usage

StopReason = Literal["won", "environment_done", "max_steps", "token_limit", "failed"]


@dataclass(frozen=True, slots=True)
class Step:
    """One message of the model and what came of it.

    - span: where its tokens start and end (exclusive) in the transcript.
    - text, thought: what it wrote, and what of it was a thought.
    - action: what it asked for, as it wrote it; None where the message is in no form that can be read.
    - accepted: whether the action was one of those on offer, so that the environment did it.
    - cut_off: whether a token limit ended the message before the model did.
    - observation: what the environment answered; empty where it was not asked because the message was cut off.
    - state_key: the state in which the model chose: equal keys of one task mean equal states.
    - thought_tokens: how many of its tokens the thought has.
    """

    span: tuple[int, int]
    text: str
    thought: str
    action: str | None
    accepted: bool
    cut_off: bool
    observation: str
    state_key: Hashable
    thought_tokens: int = 0

    @property
    def valid_call(self) -> bool:
        """Whether the message asks for an action, on offer or not."""
        return self.action is not None


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """One play of one task by the model.

    `branch` numbers the trajectories of a group. `messages` is the conversation for people to read; `transcript` has
    its tokens. A model that is spoken to in messages leaves it empty; `counted` is then what the service counted for
    each of its messages. `usage` counts the requests of this trajectory alone (see `Group.opening_usage`). `error` says
    why a trajectory failed.
    """

    game: Task
    branch: int = 0
    task: str = ""
    transcript: Transcript = field(default_factory=Transcript)
    counted: list[Usage] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    won: bool = False
    stop_reason: StopReason = "failed"
    usage: Usage = field(default_factory=Usage)
    sampling_seconds: float = 0.0
    environment_seconds: float = 0.0
    error: str | None = None

    @property
    def token_count(self) -> int:
        """Tokens of the whole conversation; what followed the last message a service may not have counted yet."""
        if self.counted:
            return self.counted[-1].prefill + self.counted[-1].sampled
        return len(self.transcript)

    @property
    def written_count(self) -> int:
        """Tokens that the model wrote."""
        return sum(one.sampled for one in self.counted) if self.counted else self.transcript.written_count

    @property
    def failed(self) -> bool:
        return self.stop_reason == "failed"

    @property
    def truncated(self) -> bool:
        """Whether a limit of ours, and not the environment, ended it."""
        return self.stop_reason in ("max_steps", "token_limit")

    @property
    def invalid_action_count(self) -> int:
        """Messages that were cut off, cannot be read, or ask for what is not on offer."""
        return sum(not step.accepted for step in self.steps)

    @property
    def thought_tokens(self) -> int:
        """Tokens that the model wrote as thoughts."""
        return sum(step.thought_tokens for step in self.steps)

    @property
    def valid_tool_call_count(self) -> int:
        """Messages in the right form."""
        return sum(step.valid_call for step in self.steps)

    @property
    def admissible_action_count(self) -> int:
        """Messages whose action the environment did."""
        return sum(step.accepted for step in self.steps)

    def __repr__(self) -> str:
        return (
            f"Trajectory({self.game.game_id}, branch {self.branch}: {self.stop_reason} after {len(self.steps)} steps, "
            f"{self.invalid_action_count} invalid, {self.token_count} tokens)"
        )


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one task, all from its initial state, in the order of their branches.

    `opening_usage` is that of the one request for all first messages.
    """

    game: Task
    trajectories: Sequence[Trajectory]
    opening_usage: Usage = field(default_factory=Usage)

    @property
    def usage(self) -> Usage:
        return sum((trajectory.usage for trajectory in self.trajectories), self.opening_usage)

    @property
    def success_rate(self) -> float:
        """Share of the trajectories that did not fail which were won; 0 where all failed."""
        finished = [trajectory.won for trajectory in self.trajectories if not trajectory.failed]
        return sum(finished) / len(finished) if finished else 0.0

    def __repr__(self) -> str:
        return f"Group({self.game.game_id}: {len(self.trajectories)} trajectories, {self.success_rate:.0%} won)"

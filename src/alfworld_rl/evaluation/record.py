"""The results row: one trajectory of an evaluation, or one that a training run kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from alfworld_rl.agents.texts import NOTHING_HAPPENS
from alfworld_rl.algorithms.rewards import StepRewards
from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.rollouts import Step, Trajectory
from alfworld_rl.types import Message, Usage

MOST = 1e9
"""No file counts more of anything; what claims to is refused before it overflows a figure."""

ALL = "all"
"""The name of all splits together in metric names."""


OLDER: Mapping[str, Any] = {"reward": "document"}
"""Settings of the score that results of version 0.1.0 do not name, since there was no choice."""


class ResultsError(AlfworldRLError):
    """A results file cannot be read, is not finished, or does not hold what it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A line of `"type": "trajectory"`; the fields are its keys, in their order.

    `steps` counts messages of the model. `accepted` tells of each whether the environment did its action; it is empty
    where the file does not say. `more` are keys that this version does not know, or that only some rows have.
    `reward` and `steps` are None where another program left them out, `thought_tokens` where there was no thought.
    """

    game_id: str
    split: str
    evaluation_split: str
    task_type: str = ""
    task: str = ""
    sample: int = 0
    won: bool
    reward: float | None = None
    steps: int | None = None
    truncated: bool = False
    stop_reason: str = ""
    invalid_action_count: float = 0
    valid_tool_call_count: int = 0
    admissible_action_count: int = 0
    prefill_tokens: int = 0
    sampled_tokens: int = 0
    thought_tokens: int | None = None
    messages: list[Message] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, trajectory: Trajectory, rewards: StepRewards, usage: Usage, **more: Any) -> "ResultRow":
        """The row of a trajectory; `usage` counts its requests."""
        return cls(
            game_id=trajectory.game.game_id,
            split=trajectory.game.split,
            evaluation_split=trajectory.game.split,
            task_type=trajectory.game.task_type,
            task=trajectory.task,
            sample=trajectory.branch,
            won=trajectory.won,
            reward=rewards.total,
            steps=len(trajectory.steps),
            truncated=trajectory.truncated,
            stop_reason=trajectory.stop_reason,
            invalid_action_count=trajectory.invalid_action_count,
            valid_tool_call_count=trajectory.valid_tool_call_count,
            admissible_action_count=trajectory.admissible_action_count,
            prefill_tokens=usage.prefill,
            sampled_tokens=trajectory.written_count,
            thought_tokens=trajectory.thought_tokens or None,
            messages=list(trajectory.messages),
            accepted=[step.accepted for step in trajectory.steps],
            more=more,
        )

    def to_json(self) -> dict[str, Any]:
        """The line's object; what is not known is left out."""
        known = {name: getattr(self, name) for name in _NAMES}
        return {
            "type": "trajectory",
            **{name: value for name, value in known.items() if value is not None and (value or name != "accepted")},
            **self.more,
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any], where: str) -> "ResultRow":
        """The row of a line, with the defaults of programs that write fewer keys.

        Raises ResultsError that begins with `where` for a line that cannot be.
        """
        game, won = line.get("game_id"), line.get("won")
        if not isinstance(game, str) or not isinstance(won, bool):
            raise ResultsError(f"{where}: a trajectory needs a game_id and won (true or false)")
        splits = [line.get("evaluation_split"), line.get("split")]
        split = next((name for name in splits if isinstance(name, str) and name not in ("", ALL)), None)
        if split is None:
            raise ResultsError(f"{where}: a trajectory needs an evaluation_split, the name of one split")
        invalid = line.get("invalid_action_count", 0)
        if not isinstance(invalid, int | float) or not 0 <= invalid <= MOST:
            raise ResultsError(f"{where}: invalid_action_count is not a count")
        for key in ("steps", "reward"):
            number = line.get(key)
            if isinstance(number, int | float) and not abs(number) <= MOST:  # NaN is neither below nor above
                raise ResultsError(f"{where}: {key} is {number}; write a finite number or leave it out")
        usable = {
            name: line[name] for name, kind in _OPTIONAL.items() if isinstance(line.get(name), kind) and name in line
        }
        return cls(
            **usable,
            game_id=game,
            split=line["split"] if isinstance(line.get("split"), str) else split,
            evaluation_split=split,
            won=won,
            invalid_action_count=invalid,
            more={name: value for name, value in line.items() if name != "type" and name not in _NAMES},
        )

    def trajectory(self) -> Trajectory:
        """The trajectory as far as the row tells, without tokens: enough to score it by another reward.

        Raises ResultsError where the row does not tell which actions were accepted.
        """
        said = [index for index, message in enumerate(self.messages) if message.get("role") == "assistant"]
        accepted = self.accepted or [self._was_accepted(index) for index in said]
        if len(accepted) != (self.steps or 0) or len(accepted) - sum(accepted) != self.invalid_action_count:
            raise ResultsError(
                f"the row of {self.game_id} does not tell which actions were accepted, so it cannot be scored again; "
                "evaluate with this version"
            )
        texts = [str(self.messages[index].get("content") or "") for index in said] or [""] * len(accepted)
        steps = [
            Step((0, 0), text, "", text, ok, False, "", number)
            for number, (text, ok) in enumerate(zip(texts, accepted, strict=False))
        ]
        reason = self.stop_reason if self.stop_reason in _REASONS else ("won" if self.won else "max_steps")
        return Trajectory(
            game=_RowTask(self.game_id, self.split, self.task_type),
            branch=self.sample,
            task=self.task,
            messages=self.messages,
            steps=steps,
            won=self.won,
            stop_reason=reason,  # type: ignore[arg-type]
        )

    def _was_accepted(self, index: int) -> bool:
        """Whether the answer to a message is another than that nothing happened; the last one may have none."""
        if index + 1 >= len(self.messages):
            return self.won
        answer = str(self.messages[index + 1].get("content") or "")
        return not answer.startswith(NOTHING_HAPPENS)


@dataclass(frozen=True, slots=True)
class _RowTask:
    game_id: str
    split: str
    task_type: str


_REASONS = ("won", "environment_done", "max_steps", "token_limit", "failed")
_NAMES = tuple(item.name for item in fields(ResultRow) if item.name != "more")
_OPTIONAL: Mapping[str, Any] = {
    **dict.fromkeys(("task_type", "task", "stop_reason"), str),
    **dict.fromkeys(("sample", "valid_tool_call_count", "admissible_action_count", "steps"), int),
    **dict.fromkeys(("prefill_tokens", "sampled_tokens", "thought_tokens"), int),
    "reward": int | float,
    "truncated": bool,
    "messages": list,
    "accepted": list,
}

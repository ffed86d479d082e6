"""The rules of a turn, for whoever plays: the model in a rollout, or the expert in a demonstration."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from alfworld_rl.agents import AgentFormat, match_action
from alfworld_rl.agents.texts import NOTHING_HAPPENS
from alfworld_rl.rollouts.trajectory import Step, StopReason, Trajectory
from alfworld_rl.types import Completion, Observation, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a trajectory ends if the environment does not end it.

    - max_episode_steps: messages of the model.
    - max_trajectory_tokens: tokens of the whole transcript, prompts and completions.
    - max_assistant_tokens: tokens of one message of the model.
    """

    max_episode_steps: int = 50
    max_trajectory_tokens: int = 12000
    max_assistant_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """The observation after an action that was not done: everything is as it was."""

    text: str
    task: str
    actions: Sequence[str]
    done: bool
    won: bool
    score: float


class Episode:
    """A trajectory under way. `act` takes a message in, `observe` what came of it, until `over`.

    `observation` is the last one; `over` whether the trajectory has ended, `trajectory.stop_reason` then says why.
    """

    def __init__(self, trajectory: Trajectory, agent: AgentFormat, limits: Limits, first: Observation) -> None:
        self.trajectory = trajectory
        self.observation = first
        self.over = False
        self._agent = agent
        self._limits = limits
        opening = agent.opening(first)
        trajectory.task = first.task
        trajectory.messages = list(opening.messages)
        trajectory.transcript.show(opening.tokens)
        if len(opening.tokens) >= limits.max_trajectory_tokens:
            self._end("token_limit")

    @property
    def max_tokens(self) -> int:
        """Tokens that the next message may have."""
        left = self._limits.max_trajectory_tokens - self.trajectory.token_count
        return min(self._limits.max_assistant_tokens, left)

    def act(self, completion: Completion) -> str | None:
        """Take in what was written; returns the action to do, or None where there is nothing to do.

        A message that a token limit cut off ends the trajectory: what the model meant to say nobody knows.
        """
        self._completion = completion
        self._parsed = parsed = self._agent.parse(completion)
        self.trajectory.transcript.write(completion)
        if isinstance(completion, Reply):
            self.trajectory.counted.append(completion.usage)
        self.trajectory.messages.append(parsed.message or {"role": "assistant", "content": parsed.text})
        if parsed.cut_off or parsed.action is None:
            return None
        return match_action(parsed.action, self.observation.actions)

    def observe(self, done: str | None, after: Observation | None, state_key: Hashable) -> None:
        """Take in what came of the message.

        `done` is what `act` returned, `after` what the environment answered to it (None where it was not asked), and
        `state_key` the state before.
        """
        trajectory, before, parsed = self.trajectory, self.observation, self._parsed
        if after is None:
            after = _Unchanged(NOTHING_HAPPENS, before.task, before.actions, before.done, before.won, before.score)
        trajectory.steps.append(
            Step(
                span=trajectory.transcript.turns[-1],
                text=parsed.text,
                thought=parsed.thought,
                action=None if parsed.cut_off else parsed.action,
                accepted=done is not None,
                cut_off=parsed.cut_off,
                observation="" if parsed.cut_off else after.text,
                state_key=state_key,
                thought_tokens=parsed.thought_tokens,
            )
        )
        if parsed.cut_off:
            self._end("token_limit")
            return
        answer = self._agent.answer(before, after, self._completion)
        trajectory.messages += answer.messages
        self.observation = after
        if after.done:
            trajectory.won = after.won
            self._end("won" if after.won else "environment_done")
        elif len(trajectory.steps) >= self._limits.max_episode_steps:
            self._end("max_steps")
        elif trajectory.token_count + len(answer.tokens) >= self._limits.max_trajectory_tokens:
            self._end("token_limit")
        else:
            trajectory.transcript.show(answer.tokens)

    def _end(self, reason: StopReason) -> None:
        self.trajectory.stop_reason = reason
        self.over = True

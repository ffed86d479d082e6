"""Measure a model: play every task, and count."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alfworld_rl.agents import AgentFormat
from alfworld_rl.algorithms.rewards import REWARDS, Reward, score
from alfworld_rl.backends.base import ChatModel, Sampler
from alfworld_rl.envs.base import EnvironmentFamily, Pool
from alfworld_rl.evaluation.metrics import intervals_of, metrics_of
from alfworld_rl.evaluation.record import ALL, ResultRow
from alfworld_rl.rollouts import DEFAULT_LIMITS, NEAR_GREEDY, Group, Limits, Sampling, rollout
from alfworld_rl.types import Task, Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that was not played to its end: why, and what its requests used nevertheless."""

    reason: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows of an evaluation, in the order of its tasks, and why tasks failed that could not be played."""

    rows: Sequence[ResultRow]
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """`eval/<split>/<metric>`, see docs/evaluation.md."""
        return metrics_of(self.rows)

    @property
    def intervals(self) -> dict[str, list[float]]:
        """95% intervals of the rates among `metrics`, by the same names."""
        return intervals_of(self.rows)

    @property
    def success_rate(self) -> float:
        """Share of the trajectories that were won."""
        return self.metrics.get(f"eval/{ALL}/success_rate", 0.0)

    def to_dataframe(self) -> Any:
        """A row a trajectory, without its messages; needs pandas."""
        import pandas

        columns = [row.to_json() for row in self.rows]
        return pandas.DataFrame(columns).drop(columns=["type", "messages", "accepted"], errors="ignore")

    def __repr__(self) -> str:
        if not self.rows:
            return f"Evaluation(no rows, {len(self.failures)} failed)"
        low, high = self.intervals[f"eval/{ALL}/success_rate"]
        games = self.metrics[f"eval/{ALL}/games"]
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Evaluation({self.success_rate:.1%} [{low:.1%}, {high:.1%}] of {games} games won{failed})"


async def evaluate(
    tasks: Sequence[Task],
    sampler: Sampler | ChatModel,
    agent: AgentFormat,
    environments: EnvironmentFamily | Pool,
    *,
    samples_per_task: int = 1,
    limits: Limits = DEFAULT_LIMITS,
    sampling: Sampling = NEAR_GREEDY,
    reward: Reward = REWARDS["document"],
    seed: int = 42,
    in_flight: int = 16,
    on_finished: Callable[[Sequence[ResultRow] | Failure], None] | None = None,
) -> Evaluation:
    """Play each task `samples_per_task` times, at most `in_flight` tasks at once.

    The score is the same for any `in_flight` and order of answers: the seed of a request depends on the task, the
    sample and the turn alone. `on_finished` is told of each task as it ends: its rows, or its failure.
    """
    rows: dict[str, Sequence[ResultRow]] = {}
    failures: dict[str, str] = {}

    def finished(group: Group) -> None:
        errors = [one.error or "for no known reason" for one in group.trajectories if one.failed]
        name = group.game.game_id
        if errors:
            failures[name] = errors[0]
        else:
            rows[name] = _rows(group, reward)
        if on_finished is not None:
            on_finished(Failure(errors[0], group.usage) if errors else rows[name])

    await rollout(
        tasks,
        sampler,
        agent,
        environments,
        group_size=samples_per_task,
        limits=limits,
        sampling=sampling,
        seed_path=(seed, "eval"),
        in_flight=in_flight,
        on_finished=finished,
    )
    return Evaluation([row for task in tasks for row in rows.get(task.game_id, ())], failures)


def _rows(group: Group, reward: Reward) -> list[ResultRow]:
    # The request for all first messages of a task is counted with its first trajectory.
    return [
        ResultRow.of(one, score(one, reward), one.usage if one.branch else one.usage + group.opening_usage)
        for one in group.trajectories
    ]

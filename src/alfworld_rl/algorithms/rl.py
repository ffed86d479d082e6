"""Reinforcement learning: play, score, compare, learn."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alfworld_rl.agents import AgentFormat
from alfworld_rl.algorithms.advantages import ESTIMATORS, Estimator
from alfworld_rl.algorithms.data import GroupAdvantages, estimate, make_data, replacements, with_kl_penalty
from alfworld_rl.algorithms.recipe import Batch
from alfworld_rl.algorithms.rewards import REWARDS, Reward, StepRewards, reward_metrics, score_groups
from alfworld_rl.backends.base import Sampler, Trainer
from alfworld_rl.console import Progress, tokens
from alfworld_rl.envs.base import Pool
from alfworld_rl.envs.tasks import TaskOrder
from alfworld_rl.rollouts import Group, Limits, Sampling, Trajectory, rollout
from alfworld_rl.rollouts.metrics import rollout_metrics
from alfworld_rl.types import AdamParams, LossSpec, Task, Usage

Row = Callable[[Trajectory, StepRewards, Sequence[float]], Mapping[str, Any]]


@dataclass(slots=True)
class Played:
    """What one update plays: groups, the rewards and advantages of each, and the position behind their tasks."""

    groups: list[Group] = field(default_factory=list)
    rewards: list[list[StepRewards]] = field(default_factory=list)
    advantages: list[GroupAdvantages] = field(default_factory=list)
    position: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class ReinforcementLearning:
    """A `Recipe`: a batch is `group_size` trajectories of each of `games_per_batch` tasks by the present weights.

    - reference, kl_coef: the policy that leaving is penalized for, and how much; None: no penalty.
    - dynamic_sampling: how many more tasks an update may play to replace groups without a gradient.
    - keep_trajectories, row: how many trajectories a batch keeps as `samples`, and how one becomes a row.
    """

    order: TaskOrder[Task]
    agent: AgentFormat
    pool: Pool
    runner: asyncio.Runner
    limits: Limits
    sampling: Sampling
    adam: Callable[[int], AdamParams]
    games_per_batch: int = 8
    group_size: int = 8
    reward: Reward = REWARDS["document"]
    estimator: Estimator = ESTIMATORS["mean"]
    loss: LossSpec = field(default_factory=LossSpec)
    epochs: int = 1
    minibatches: int = 1
    reference: Sampler | None = None
    kl_coef: float = 0.0
    dynamic_sampling: int = 0
    seed: int = 42
    progress: Progress = field(default_factory=Progress)
    keep_trajectories: int = 0
    row: Row | None = None

    def batch(self, trainer: Trainer, position: int, update: int) -> Batch:
        """See `Recipe.batch`."""
        return self.learn(self.play(trainer.sampler(), position, update, self.runner), update)

    def play(self, sampler: Sampler, position: int, update: int, runner: asyncio.Runner) -> Played:
        """The groups of one update, replacements of those without a gradient included."""
        started = time.monotonic()
        tasks, position = self.order.take(position, self.games_per_batch)
        wanted, extra = len(tasks), self.dynamic_sampling
        played = Played()
        while tasks:
            self.progress.start(f"update {update + 1}: games", len(tasks))
            groups = runner.run(
                rollout(
                    tasks,
                    sampler,
                    self.agent,
                    self.pool,
                    group_size=self.group_size,
                    limits=self.limits,
                    sampling=self.sampling,
                    seed_path=(self.seed, update),
                    on_finished=lambda _: self.progress.advance(),
                )
            )
            rewards = score_groups(groups, self.reward)
            played.groups += groups
            played.rewards += rewards
            played.advantages += estimate(groups, rewards, self.estimator)
            more = replacements(played.advantages, wanted=wanted, extra_left=extra) if self.dynamic_sampling else 0
            seen = [group.game for group in played.groups]
            tasks, position = self.order.take(position, more, without=seen) if more else ([], position)
            extra -= len(tasks)
        played.position, played.seconds = position, time.monotonic() - started
        return played

    def learn(self, played: Played, update: int) -> Batch:
        """The batch that an update makes of what was played."""
        groups = played.groups
        found = make_data(groups, played.advantages, keep_without=self.reference is not None)
        data, metrics = found.data, found.metrics()
        if self.reference is not None and data:
            data, kl = self.runner.run(with_kl_penalty(data, self.reference, self.kl_coef))
            metrics["train/kl_from_start"] = kl
        usage = sum((group.usage for group in groups), Usage())
        failures = sorted({one.error for group in groups for one in group.trajectories if one.error})
        return Batch(
            data=data,
            loss=self.loss,
            adam=self.adam(update),
            epochs=self.epochs,
            minibatches=self.minibatches,
            position=played.position,
            usage=usage,
            metrics={
                **rollout_metrics(groups, usage),
                **reward_metrics(groups, played.rewards),
                **metrics,
                "train/trajectories": len(data),
                "trainer/games_taken": played.position,
                "time/rollout": played.seconds,
            },
            notes=[f"a trajectory failed: {error}" for error in failures],
            samples=self._samples(played),
        )

    def _samples(self, played: Played) -> list[Mapping[str, Any]]:
        """The best and the worst trajectory of as many groups as may be kept, those that teach something first."""
        if self.row is None or self.keep_trajectories < 1:
            return []
        kept: list[Mapping[str, Any]] = []
        everything = zip(played.groups, played.rewards, played.advantages, strict=True)
        for group, of_group, found in sorted(everything, key=lambda one: not one[2].informative):
            ranked = sorted(found.members, key=lambda index: of_group[index].total)
            for index in dict.fromkeys([*ranked[-1:], *ranked[:1]]):
                if len(kept) == self.keep_trajectories:
                    return kept
                steps_S = found.of(index)
                values = [] if steps_S is None else steps_S.tolist()
                kept.append(self.row(group.trajectories[index], of_group[index], values))
        return kept

    def line(self, update: int, metrics: Mapping[str, float]) -> str:
        """See `Recipe.line`."""
        used = ", ".join(f"{tokens(int(metrics[f'rollout/{name}_tokens']))} {name}" for name in ("prefill", "sampled"))
        loss = (
            f"loss {metrics['train/loss_mean']:+.4f}" if "train/loss_mean" in metrics else "skipped: nothing to learn"
        )
        return (
            f"reward {metrics['reward/mean']:+.3f}  success {metrics['reward/success_rate']:.1%}  "
            f"steps {metrics['rollout/steps_mean']:.1f}  invalid {metrics['rollout/invalid_actions_mean']:.2f}  "
            f"groups {metrics['advantage/groups_used']:.0f}/{metrics['rollout/groups']:.0f}  {loss}  "
            f"{used}, {tokens(int(metrics['train/tokens_billed']))} trained"
        )

"""Validation during training: the same held-out tasks again and again, so that updates can be compared."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from alfworld_rl.agents import AgentFormat
from alfworld_rl.backends.base import Sampler
from alfworld_rl.config import Config, option
from alfworld_rl.console import seconds
from alfworld_rl.envs.base import Pool
from alfworld_rl.rollouts import NEAR_GREEDY, Limits, rollout
from alfworld_rl.rollouts.metrics import rollout_metrics
from alfworld_rl.types import Task, Usage


class ValidationConfig(Config):
    """Validation during training, on games of houses that are not trained on."""

    eval_every: int = option(0, "play the validation games every N updates, and save; 0: at every save", ge=0)
    eval_games: int = option(0, "games of held-out houses to validate on; 0: hold nothing out, train on all", ge=0)

    def conflicts(self) -> list[str]:
        if self.eval_every and not self.eval_games:
            return ["--eval-every needs --eval-games, the number of games to hold out for it"]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Tasks that are not trained on, played near-greedily with the same seeds every time.

    `every` is the number of updates between two measurements; 0 measures at every save.
    """

    tasks: Sequence[Task]
    agent: AgentFormat
    pool: Pool
    limits: Limits
    seed: int
    every: int = 0
    in_flight: int = 64

    def due(self, update: int, saving: bool) -> bool:
        """Whether `update`, counted from 1, is measured; `saving` is whether it is saved for good anyway."""
        return update % self.every == 0 if self.every else saving

    def measure(self, sampler: Sampler, runner: asyncio.Runner) -> tuple[dict[str, float], Usage]:
        """`validation/` metrics of the sampler's weights: success, steps, share of invalid actions. And the usage."""
        started = time.monotonic()
        groups = runner.run(
            rollout(
                self.tasks,
                sampler,
                self.agent,
                self.pool,
                limits=self.limits,
                sampling=NEAR_GREEDY,
                seed_path=(self.seed, "validation"),
                in_flight=self.in_flight,
            )
        )
        used = sum((group.usage for group in groups), Usage())
        found = rollout_metrics(groups, used)
        steps = found["rollout/steps_mean"]
        metrics = {
            "validation/games": len(self.tasks),
            "validation/success_rate": found["reward/success_rate"],
            "validation/steps_mean": steps,
            "validation/invalid_action_rate": found["rollout/invalid_actions_mean"] / steps if steps else 0.0,
            "time/validation": time.monotonic() - started,
        }
        return metrics, used

    def line(self, metrics: dict[str, float], update: int) -> str:
        """What a person reads about a measurement."""
        return (
            f"update {update}: {metrics['validation/success_rate']:.1%} of {len(self.tasks)} validation games won, "
            f"{metrics['validation/steps_mean']:.1f} steps, "
            f"{metrics['validation/invalid_action_rate']:.1%} invalid  {seconds(metrics['time/validation'])}"
        )

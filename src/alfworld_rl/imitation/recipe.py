"""Imitation: learn to write what the expert would have written."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from alfworld_rl.algorithms.recipe import Batch
from alfworld_rl.backends.base import Trainer
from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.imitation.dagger import DAgger
from alfworld_rl.imitation.demonstrations import Demonstration
from alfworld_rl.imitation.sources import Demonstrations
from alfworld_rl.types import AdamParams, Datum, LossSpec, Usage

EVERY_TENTH = 10
"""Updates between two lines for a person: they are short."""


@dataclass(slots=True, kw_only=True)
class Imitation:
    """A `Recipe`: a batch is demonstrations of at least `batch_tokens` tokens.

    Once the learner has played (`dagger`), half of what it learns from are its own plays.
    """

    source: Demonstrations
    adam: Callable[[int], AdamParams]
    batch_tokens: int
    observation_weight: float = 0.0
    dagger: DAgger | None = None

    def batch(self, trainer: Trainer, position: int, update: int) -> Batch:
        """See `Recipe.batch`. Raises AlfworldRLError where no demonstration has anything to learn."""
        started = time.monotonic()
        metrics: dict[str, float] = {}
        usage = Usage()
        if self.dagger is not None and (number := self.dagger.due(update)) is not None:
            metrics, usage = self.dagger.play(number, trainer.sampler())
        data: list[Datum] = []
        tokens = empty = 0
        while tokens < self.batch_tokens:
            demonstration = self._demonstration(position)
            position += 1
            datum = demonstration.datum(self.observation_weight) if demonstration.transcript.written_count else None
            if datum is not None and datum.advantages_T.any():
                data.append(datum)
                tokens += len(datum.tokens_T)
                empty = 0
            else:
                empty += 1
            if empty > 2 * len(self.source):
                longest = self.source.limits.max_trajectory_tokens
                raise AlfworldRLError(
                    f"none of the last {empty} demonstrations has a token to learn; "
                    f"does a first prompt fit into --max-trajectory-tokens {longest}?"
                )
        return Batch(
            data=data,
            loss=LossSpec("cross_entropy"),
            adam=self.adam(update),
            position=position,
            usage=usage,
            metrics={
                **metrics,
                "train/demonstrations": len(data),
                "train/tokens": tokens,
                "time/demonstrations": time.monotonic() - started,
            },
        )

    def _demonstration(self, number: int) -> Demonstration:
        if self.dagger is not None and len(self.dagger) and number % 2:
            return self.dagger.demonstration(number)
        return self.source.demonstration(number)

    def line(self, update: int, metrics: Mapping[str, float]) -> str | None:
        """See `Recipe.line`."""
        if update % EVERY_TENTH and "dagger/round" not in metrics:
            return None
        speed = metrics["train/tokens"] / max(metrics["time/update"], 1e-9)
        line = f"loss {metrics['train/loss_mean']:.4f}  {speed:,.0f} tokens/s"
        if "dagger/round" in metrics:
            line += f"  round {metrics['dagger/round']:.0f}: the learner won {metrics['dagger/success_rate']:.1%}"
        return line

"""One update: training data into changed weights."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from alfworld_rl.backends.protocol import AdamParams, BackendError, Datum, Loss, Trainer
from alfworld_rl.learning.advantages import ESTIMATORS, AdvantageName


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """How a model is updated. `adam.learning_rate` is what the warm-up rises to in `warmup_steps` updates.

    `epochs` passes over the data of an update, each in `minibatches` optimizer steps; `kl_coef` weighs the penalty
    for leaving the starting policy.
    """

    advantage: AdvantageName = "mean"
    loss: Loss = field(default_factory=Loss)
    adam: AdamParams = field(default_factory=AdamParams)
    warmup_steps: int = 0
    epochs: int = 1
    minibatches: int = 1
    kl_coef: float = 0.0

    def problems(self) -> list[str]:
        """What is wrong with the settings, a sentence each."""
        problems = []
        if self.advantage not in ESTIMATORS:
            problems.append(f"--advantage must be one of {', '.join(ESTIMATORS)}, not {self.advantage}")
        if self.loss.name not in ("ppo", "importance_sampling", "cispo"):
            problems.append(f"--loss must be ppo, importance_sampling or cispo, not {self.loss.name}")
        if not 0 <= self.loss.clip_low <= 1 <= self.loss.clip_high < math.inf:
            problems.append(
                "--ppo-clip-low must lie in [0, 1] and --ppo-clip-high be at least 1, "
                f"not {self.loss.clip_low} and {self.loss.clip_high}"
            )
        if not 0 < self.adam.learning_rate < math.inf:
            problems.append(f"--learning-rate must be above 0, not {self.adam.learning_rate}")
        for name, count, least in (
            ("--epochs", self.epochs, 1),
            ("--minibatches", self.minibatches, 1),
            ("--warmup-steps", self.warmup_steps, 0),
        ):
            if count < least:
                problems.append(f"{name} must be at least {least}, not {count}")
        if not 0 <= self.kl_coef < math.inf:
            problems.append(f"--kl-coef must be at least 0, not {self.kl_coef}")
        return problems

    def learning_rate(self, update: int) -> float:
        """The learning rate of an update, counted from 0: a linear rise that reaches the full one after the warm-up."""
        return self.adam.learning_rate * min(1.0, (update + 1) / (self.warmup_steps + 1))


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did. Of the metrics, means over tokens are taken over all optimizer steps; `optimizer_steps` is 0
    where nothing was sent because nothing was left to train on."""

    optimizer_steps: int
    trained_tokens: int
    metrics: dict[str, float]

    @property
    def skipped(self) -> bool:
        return self.optimizer_steps == 0


def update(trainer: Trainer, data: Sequence[Datum], settings: LearningSettings, *, number: int, seed: int) -> Update:
    """Update the trainer's weights on `data`; `number` counts updates from 0 and with `seed` orders the minibatches.

    Each gradient's result is looked at before the optimizer steps on it: a gradient that failed or whose loss is no
    number is never stepped on. Raises BackendError.
    """
    metrics: dict[str, float] = {}
    adam = replace(settings.adam, learning_rate=settings.learning_rate(number))
    steps, trained, seen = 0, 0, 0.0
    for batch in _minibatches(data, settings, np.random.default_rng([seed, number])):
        result = trainer.forward_backward(batch, settings.loss)
        if not all(math.isfinite(value) for value in result.values()):
            raise BackendError(
                f"the loss of update {number + 1} is not a finite number, so the optimizer was not stepped; "
                "go on from the last state with a lower --learning-rate"
            )
        stepped = trainer.optim_step(adam)
        steps += 1
        tokens = sum(int(datum.mask_T.sum()) for datum in batch)
        # Every datum's tokens go through the model, those it only reads included; that is what services charge for.
        trained += sum(len(datum.tokens_T) for datum in batch)
        seen += tokens
        for name, value in result.items():
            if name in ("loss_sum", "token_count"):
                metrics[name] = metrics.get(name, 0.0) + value
            else:
                before = metrics.get(name, 0.0)
                metrics[name] = before + (value - before) * tokens / seen
        for name, value in stepped.items():
            before = metrics.get(name, 0.0)
            metrics[name] = before + (value - before) / steps
    if steps:
        metrics["learning_rate"] = adam.learning_rate
    return Update(steps, trained, metrics)


def _minibatches(
    data: Sequence[Datum], settings: LearningSettings, rng: np.random.Generator
) -> Iterator[Sequence[Datum]]:
    """Every datum once an epoch, in `minibatches` parts that differ by at most one in size; shuffled if several."""
    if not data:
        return
    parts = min(settings.minibatches, len(data))
    for _ in range(settings.epochs):
        order = np.arange(len(data)) if parts == 1 else rng.permutation(len(data))
        for part in np.array_split(order, parts):
            yield [data[index] for index in part]

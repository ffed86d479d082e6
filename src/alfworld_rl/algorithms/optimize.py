"""One update: training data into changed weights."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from alfworld_rl.backends.base import BackendError, Trainer
from alfworld_rl.types import AdamParams, Datum, LossSpec

Fold = Literal["sum", "max", "per_token", "per_step"]

FOLDS: Final[Mapping[str, Fold]] = {
    "loss_sum": "sum",
    "token_count": "sum",
    "micro_batches": "sum",
    "peak_memory_mb": "max",
    "grad_norm": "per_step",
}
"""How a metric of several optimizer steps becomes one: added up, the largest, or a mean over tokens or over steps.

What a backend reports beside these is folded by the ending that the Tinker API gives it (`:sum`, `:max`, `:mean`), else
as a mean over tokens where `forward_backward` reports it and over steps where `optim_step` does.
"""


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did. `optimizer_steps` is 0 where nothing was sent because nothing was left to train on;
    `trained_tokens` are all that went through the model, those it only read included: what services charge for."""

    optimizer_steps: int
    trained_tokens: int
    metrics: dict[str, float]

    @property
    def skipped(self) -> bool:
        return self.optimizer_steps == 0

    def __repr__(self) -> str:
        if self.skipped:
            return "Update(skipped: nothing to learn)"
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items() if "memory" not in name)
        return f"Update({self.optimizer_steps} optimizer steps on {self.trained_tokens} tokens: {shown})"


class _Folded:
    """Metrics of several optimizer steps, as `FOLDS` says."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, metrics: Mapping[str, float], *, tokens: int, default: Fold) -> None:
        for name, value in metrics.items():
            fold = FOLDS.get(name) or _by_ending(name) or default
            if fold == "max":
                self.values[name] = max(value, self.values.get(name, value))
            elif fold == "sum":
                self.values[name] = self.values.get(name, 0.0) + value
            else:
                weight = tokens if fold == "per_token" else 1
                total = self._weights[name] = self._weights.get(name, 0.0) + weight
                before = self.values.get(name, 0.0)
                self.values[name] = before + (value - before) * weight / total


def _by_ending(name: str) -> Fold | None:
    endings: Mapping[str, Fold] = {"sum": "sum", "max": "max", "mean": "per_token"}
    return endings.get(name.rpartition(":")[2]) if ":" in name else None


def optimize(
    trainer: Trainer,
    data: Sequence[Datum],
    loss: LossSpec,
    adam: AdamParams,
    *,
    epochs: int = 1,
    minibatches: int = 1,
    seed_path: tuple[int, ...] = (0,),
    before_step: Callable[[], None] = lambda: None,
) -> Update:
    """Update the trainer's weights on `data`: `epochs` passes over it, each in `minibatches` optimizer steps.

    `seed_path` orders the minibatches. `before_step` is called before every optimizer step: until then the weights are
    as they were. Each gradient's result is looked at before the optimizer steps on it: a
    gradient that failed or whose loss is no number is never stepped on. Raises BackendError.
    """
    folded = _Folded()
    steps, trained = 0, 0
    for batch in _minibatches(data, epochs, minibatches, np.random.default_rng(list(seed_path))):
        result = trainer.forward_backward(batch, loss)
        if not all(math.isfinite(value) for value in result.values()):
            raise BackendError(
                "the loss is not a finite number, so the optimizer was not stepped; "
                "go on from the last state with a lower --learning-rate"
            )
        before_step()
        stepped = trainer.optim_step(adam)
        steps += 1
        trained += sum(len(datum.tokens_T) for datum in batch)
        folded.add(result, tokens=sum(int(datum.mask_T.sum()) for datum in batch), default="per_token")
        folded.add(stepped, tokens=0, default="per_step")
    metrics = folded.values
    if steps:
        metrics["learning_rate"] = adam.learning_rate
    return Update(steps, trained, metrics)


def _minibatches(
    data: Sequence[Datum], epochs: int, minibatches: int, rng: np.random.Generator
) -> Iterator[Sequence[Datum]]:
    """Every datum once an epoch, in `minibatches` parts that differ by at most one in size; shuffled if several."""
    if not data:
        return
    parts = min(minibatches, len(data))
    for _ in range(epochs):
        order = np.arange(len(data)) if parts == 1 else rng.permutation(len(data))
        for part in np.array_split(order, parts):
            yield [data[index] for index in part]

"""What differs between reinforcement learning, imitation and your idea: where the data of an update comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from alfworld_rl.backends.base import Trainer
from alfworld_rl.types import AdamParams, Datum, LossSpec, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """All that one update needs.

    - data, loss, adam, epochs, minibatches: what is optimized (see `optimize`); no data skips the update.
    - position: how much of the recipe's endless sequence is used up now; the next batch begins there.
    - usage: the tokens that were spent to make the batch; those of training are counted by the run.
    - metrics: what is worth knowing, by name.
    - notes: sentences for the person who watches, such as why a trajectory failed.
    - samples: trajectories to keep, as rows of a results file with `advantages` (see docs/runs.md).
    """

    data: Sequence[Datum]
    loss: LossSpec
    adam: AdamParams
    position: int
    epochs: int = 1
    minibatches: int = 1
    usage: Usage = field(default_factory=Usage)
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    samples: Sequence[Mapping[str, Any]] = ()


class Recipe(Protocol):
    """Makes the batch of every update; each depends on the run's settings, the position and the weights alone."""

    def batch(self, trainer: Trainer, position: int, update: int) -> Batch:
        """The batch of `update`, counted from 0, from `position` on."""
        ...

    def line(self, update: int, metrics: Mapping[str, float]) -> str | None:
        """What a person reads about a finished update, counted from 1; None: nothing worth a line."""
        ...

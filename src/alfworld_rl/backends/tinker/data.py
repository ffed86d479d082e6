"""What a training request carries, so that the gradient is `types.LossSpec`'s on every server of the Tinker API.

Servers differ in what they divide a loss by. Thinking Machines' service and SkyRL's torch engines add up all tokens;
SkyRL's JAX engine takes the mean over the weights of each sequence, and then over the sequences of a step. Here the
weights of every sequence of a batch of B add up to 1/B, by a weight on one position that has no advantage and hence
no gradient: dividing by their sum and by B then changes nothing, and both kinds of server compute the same gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.types import Datum


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence as it is sent; all arrays have one length. `weights_T` is None for a service that takes none."""

    tokens_T: NDArray[np.int64]
    targets_T: NDArray[np.int64]
    logprobs_T: NDArray[np.float32]
    advantages_T: NDArray[np.float32]
    weights_T: NDArray[np.float32] | None


def rows(data: Sequence[Datum], divisor: float, *, weighted: bool, sequences: int | None = None) -> list[Row]:
    """`data` for a policy loss whose sum over tokens is to be divided by `divisor`.

    `weighted`: balance the weights as the module says; else the service adds up what has an advantage. `sequences`
    is B, where it is not that of `data` (see TinkerTrainer.forward_backward).
    """
    if not weighted:
        return [_row(datum, datum.advantages_T / divisor, None) for datum in data]
    count = sequences or len(data)
    longest = max(int(datum.mask_T.sum()) for datum in data)
    weight = 1 / (count * longest)
    made = []
    for datum in data:
        if datum.mask_T.all():
            datum = _with_a_free_position(datum)
        weights_T = datum.mask_T * weight
        weights_T[int(np.argmin(datum.mask_T))] = 1 / count - weights_T.sum()
        made.append(_row(datum, datum.advantages_T / (divisor * weight), weights_T))
    return made


def _row(datum: Datum, advantages_T: NDArray[np.floating], weights_T: NDArray[np.floating] | None) -> Row:
    mask_T = datum.mask_T
    return Row(
        datum.tokens_T.astype(np.int64),
        datum.targets_T.astype(np.int64),
        np.where(mask_T, datum.logprobs_T, 0).astype(np.float32),
        np.where(mask_T, advantages_T, 0).astype(np.float32),
        None if weights_T is None else weights_T.astype(np.float32),
    )


def _with_a_free_position(datum: Datum) -> Datum:
    """The same with one more position behind the last, which no other one can see."""
    return Datum(
        np.append(datum.tokens_T, datum.targets_T[-1:]),
        np.append(datum.targets_T, datum.targets_T[-1:]),
        np.append(datum.mask_T, False),
        np.append(datum.logprobs_T, np.float32(0)),
        np.append(datum.advantages_T, np.float32(0)),
    )

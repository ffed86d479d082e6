"""What a batch of training data says by itself: how much of it is learned from, and how the loss of it is told."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.backends.base import BackendError
from alfworld_rl.types import Datum, LossSpec


def trained_tokens(data: Sequence[Datum]) -> int:
    """How many tokens of `data` have a part in the loss. Raises BackendError for none."""
    count = sum(int(datum.mask_T.sum()) for datum in data)
    if not count:
        raise BackendError("forward_backward was given no token to train on; leave such batches out")
    return count


def total_weight(data: Sequence[Datum], loss: LossSpec) -> float:
    """What `loss` divides its sum by: the tokens, or for cross-entropy their weights. Raises BackendError for none."""
    if loss.name != "cross_entropy":
        return float(trained_tokens(data))
    total = sum(float(datum.advantages_T[datum.mask_T].sum()) for datum in data)
    if total <= 0:
        raise BackendError("cross_entropy takes advantages as weights of tokens; give at least one above 0")
    return total


def loss_metrics(
    data: Sequence[Datum], logprobs: Sequence[NDArray[np.floating]], loss: LossSpec, divisor: float
) -> dict[str, float]:
    """The metrics of `base.Trainer.forward_backward`, from the logprobs that the server computed for each sequence.

    `clip_fraction` is the share of trained tokens whose gradient the bounds of the ratio cut off or bound;
    `approx_kl` the estimator k3 of http://joschu.net/blog/kl-approx.html of KL(sampling || current).
    """
    pairs = zip(data, logprobs, strict=True)
    new_K = np.concatenate([new[: len(datum.mask_T)][datum.mask_T] for datum, new in pairs]).astype(np.float64)
    old_K = np.concatenate([datum.logprobs_T[datum.mask_T] for datum in data]).astype(np.float64)
    advantages_K = np.concatenate([datum.advantages_T[datum.mask_T] for datum in data]).astype(np.float64)
    if loss.name == "cross_entropy":
        losses_K = -advantages_K * new_K
    else:
        ratio_K = np.exp(new_K - old_K)
        bounded_K = np.clip(ratio_K, loss.clip_low, loss.clip_high)
        clipped_K = np.zeros(len(ratio_K), bool)
        losses_K = -ratio_K * advantages_K
        if loss.name == "ppo":
            clipped_K = bounded_K * advantages_K < ratio_K * advantages_K
            losses_K = np.maximum(losses_K, -bounded_K * advantages_K)
        elif loss.name == "cispo":
            clipped_K = bounded_K != ratio_K
            losses_K = -bounded_K * advantages_K * new_K
    metrics = {
        "loss_sum": float(losses_K.sum()),
        "loss_mean": float(losses_K.sum() / divisor),
        "token_count": float(len(new_K)),
    }
    if loss.name != "cross_entropy":
        metrics |= {
            "clip_fraction": float(clipped_K.mean()),
            "approx_kl": float((np.expm1(new_K - old_K) - (new_K - old_K)).mean()),
        }
    return metrics

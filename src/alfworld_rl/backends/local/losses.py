"""The losses of `types.LossSpec`, over the masked tokens of a batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from alfworld_rl.types import LossSpec


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """All of shape (K,): the loss of each trained token, and whether the bounds of the ratio cut off its gradient."""

    losses_K: Tensor
    clipped_K: Tensor


def token_losses(loss: LossSpec, logprobs_K: Tensor, sampling_logprobs_K: Tensor, advantages_K: Tensor) -> TokenLosses:
    """`types.LossSpec` for each of K trained tokens; gradients flow through `logprobs_K` only."""
    ratio_K = torch.exp(logprobs_K - sampling_logprobs_K)
    unclipped = torch.zeros_like(ratio_K, dtype=torch.bool)
    match loss.name:
        case "cross_entropy":
            return TokenLosses(-advantages_K * logprobs_K, unclipped)
        case "importance_sampling":
            return TokenLosses(-ratio_K * advantages_K, unclipped)
        case "ppo":
            clipped_K = ratio_K.clamp(loss.clip_low, loss.clip_high) * advantages_K
            return TokenLosses(
                -torch.minimum(ratio_K * advantages_K, clipped_K), (clipped_K < ratio_K * advantages_K).detach()
            )
        case "cispo":
            weight_K = ratio_K.detach().clamp(loss.clip_low, loss.clip_high)
            return TokenLosses(-weight_K * advantages_K * logprobs_K, weight_K != ratio_K.detach())

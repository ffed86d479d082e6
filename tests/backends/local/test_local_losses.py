"""Each loss, worked out by hand on four tokens."""

import math

import pytest
import torch

from alfworld_rl.backends.local.losses import token_losses
from alfworld_rl.types import LossName, LossSpec

# Ratios 1.5, 1.5, 0.5, 1.1 with advantages 2, -2, -3, 1.
SAMPLING = [math.log(0.4), math.log(0.4), math.log(0.4), math.log(0.4)]
LOGPROBS = [math.log(0.6), math.log(0.6), math.log(0.2), math.log(0.44)]
ADVANTAGES = [2.0, -2.0, -3.0, 1.0]


@pytest.mark.parametrize(
    ("name", "losses", "gradients", "clipped"),
    [
        # -min(rA, clip(r)A): 1.2*2 instead of 3; -3 stays; 0.8*-3 is below 0.5*-3; 1.1 stays. d(rA)/dlogprob = rA.
        ("ppo", [-2.4, 3.0, 2.4, -1.1], [0.0, 3.0, 0.0, -1.1], [True, False, True, False]),
        ("importance_sampling", [-3.0, 3.0, 1.5, -1.1], [-3.0, 3.0, 1.5, -1.1], [False] * 4),
        # -clip(r) A logprob, the ratio held fixed.
        (
            "cispo",
            [-2.4 * math.log(0.6), 2.4 * math.log(0.6), 2.4 * math.log(0.2), -1.1 * math.log(0.44)],
            [-2.4, 2.4, 2.4, -1.1],
            [True, True, True, False],
        ),
        # A weight for each token: the advantage.
        (
            "cross_entropy",
            [-weight * logprob for weight, logprob in zip(ADVANTAGES, LOGPROBS, strict=True)],
            [-weight for weight in ADVANTAGES],
            [False] * 4,
        ),
    ],
)
def test_losses_and_gradients_equal_the_formula(
    name: LossName, losses: list[float], gradients: list[float], clipped: list[bool]
) -> None:
    logprobs_K = torch.tensor(LOGPROBS, dtype=torch.float64, requires_grad=True)
    found = token_losses(
        LossSpec(name), logprobs_K, torch.tensor(SAMPLING, dtype=torch.float64), torch.tensor(ADVANTAGES)
    )
    found.losses_K.sum().backward()
    assert found.losses_K.tolist() == pytest.approx(losses)
    assert logprobs_K.grad is not None
    assert logprobs_K.grad.tolist() == pytest.approx(gradients)
    assert found.clipped_K.tolist() == clipped


def test_clip_bounds_are_the_ones_given() -> None:
    logprobs_K = torch.tensor([math.log(0.6)])
    found = token_losses(
        LossSpec("ppo", clip_low=0.9, clip_high=1.01), logprobs_K, torch.tensor([math.log(0.4)]), torch.ones(1)
    )
    assert found.losses_K.item() == pytest.approx(-1.01)

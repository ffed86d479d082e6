"""The seam between the program and whatever holds the model.

Three rooms stand behind it: `trio` (PyTRIO's remote cluster), `tinker` (any server of the Tinker API) and
`local` (an engine in this process). Values crossing the seam are plain tokens and numpy arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.errors import AlfworldRLError, UsageError

StopReason = Literal["stop", "length"]
LossName = Literal["ppo", "importance_sampling", "cispo", "cross_entropy"]
Metrics = Mapping[str, float]


class BackendError(AlfworldRLError):
    """The service or engine behind the model refused or failed for good; one sentence says what to do."""


class SamplingError(BackendError):
    """One sampling request failed for good; the trajectory that needed it ends as `failed`, the run goes on."""


class BalanceError(BackendError):
    """The account behind the service cannot pay for more."""


class CheckpointError(BackendError, UsageError):
    """A checkpoint URI is malformed, of the wrong kind, or names nothing that exists: the command is wrong."""


class BaseModelError(BackendError, UsageError):
    """There is no such base model, or none that can be used: the command is wrong."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that the program uses."""

    @property
    def eos_token_id(self) -> int | None: ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str: ...

    def apply_chat_template(self, conversation: Sequence[Mapping[str, Any]], **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote. `tokens` and `logprobs` have one length; a stop token that was sampled is included.

    `logprobs` are natural logarithms under the distribution at temperature 1 and top-p 1 of the weights
    that sampled them, the same quantity that the trainer recomputes.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens by price class. `prefill` counts every prompt token, `cached` those of them served from a cache."""

    prefill: int = 0
    cached: int = 0
    sampled: int = 0
    trained: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prefill + other.prefill,
            self.cached + other.cached,
            self.sampled + other.sampled,
            self.trained + other.trained,
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    completions: tuple[Completion, ...]
    usage: Usage


@dataclass(frozen=True, slots=True, eq=False)
class Datum:
    """One training sequence, already shifted: position t predicts `targets_T[t]` from `tokens_T[: t + 1]`.

    All arrays have length T. `mask_T` is True where the target was written by the model; elsewhere
    `logprobs_T` and `advantages_T` are 0 and the position has no part in any loss.
    """

    tokens_T: NDArray[np.int32]
    targets_T: NDArray[np.int32]
    mask_T: NDArray[np.bool_]
    logprobs_T: NDArray[np.float32]
    advantages_T: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss by name, with the bounds on the probability ratio that `ppo` and `cispo` clip to.

    Over the masked positions of the whole batch, with r = exp(logprob - sampling logprob) and A the advantage,
    the gradient is that of the MEAN over masked tokens of:

    - ppo: -min(r A, clip(r, clip_low, clip_high) A)             (arXiv 1707.06347)
    - importance_sampling: -r A
    - cispo: -stop_gradient(clip(r, clip_low, clip_high)) A logprob   (arXiv 2506.13585)
    - cross_entropy: -A logprob, divided by the sum of A instead of the number of tokens: the advantage is a weight
      (sampling logprobs are ignored)
    """

    name: LossName = "ppo"
    clip_low: float = 0.8
    clip_high: float = 1.2


@dataclass(frozen=True, slots=True)
class AdamParams:
    """AdamW. `grad_clip_norm` bounds the global gradient norm; 0 turns clipping off."""

    learning_rate: float = 1e-6
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 1.0


class Sampler(Protocol):
    """Samples from one fixed set of weights. Calls may overlap freely; the engine batches them."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def sample(
        self,
        prompt: Sequence[int],
        *,
        n: int = 1,
        max_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Sampled:
        """Write `n` completions of `prompt`. Raises SamplingError when this request failed for good."""
        ...

    async def logprobs(self, tokens: Sequence[int]) -> list[float]:
        """The logprob of every token given those before it; length len(tokens), the first is 0."""
        ...


class Trainer(Protocol):
    """One training run: a model's trainable weights and their optimizer."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def forward_backward(self, data: Sequence[Datum], loss: Loss) -> Metrics:
        """Accumulate the gradient of `loss` over `data`.

        The metrics hold `loss_sum`, `loss_mean` and `token_count` (masked tokens), and where the backend
        can tell, `clip_fraction` and `approx_kl`.
        """
        ...

    def optim_step(self, adam: AdamParams) -> Metrics:
        """One AdamW step with the accumulated gradient, which is then cleared."""
        ...

    def sampler(self) -> Sampler:
        """A sampler of the weights as they are now; later steps do not change it."""
        ...

    def save_state(self, name: str) -> str:
        """Save weights and optimizer; returns `<scheme>://<run>/training_state/<name>`."""
        ...

    def save_sampler_weights(self, name: str) -> str:
        """Save weights for sampling; returns `<scheme>://<run>/sampler_weights/<name>`."""
        ...


class Backend(Protocol):
    """Opens trainers and samplers. `base_model` is a name the backend knows."""

    def new_trainer(self, base_model: str, *, lora_rank: int, seed: int) -> Trainer: ...

    def resume_trainer(self, state_uri: str) -> Trainer:
        """Weights and optimizer as `save_state` left them. Raises CheckpointError for any other URI."""
        ...

    def trainer_from(self, uri: str, *, seed: int) -> Trainer:
        """A new run that starts from the weights of a checkpoint of either kind, with a fresh optimizer."""
        ...

    def sampler(self, base_model: str, model_path: str | None = None) -> Sampler:
        """A sampler of the base model, or of saved sampler weights. Raises CheckpointError for a state URI."""
        ...

    def close(self) -> None:
        """Give back what the backend holds, within seconds whatever state the service is in."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint URI taken apart: `<scheme>://<run>/<kind>/<name>`."""

    scheme: str
    run: str
    kind: Literal["training_state", "sampler_weights"]
    name: str = field(default="")

    @classmethod
    def parse(cls, uri: str) -> "Checkpoint":
        """Raises CheckpointError with the shape a URI must have."""
        scheme, separator, rest = uri.partition("://")
        parts = rest.split("/")
        if not separator or len(parts) != 3 or not all(parts) or parts[1] not in ("training_state", "sampler_weights"):
            raise CheckpointError(
                f"{uri!r} is not a checkpoint URI; use one that a run printed, "
                "like local://RUN/sampler_weights/NAME or trio://RUN/training_state/NAME"
            )
        return cls(scheme, parts[0], "training_state" if parts[1] == "training_state" else "sampler_weights", parts[2])

    def __str__(self) -> str:
        return f"{self.scheme}://{self.run}/{self.kind}/{self.name}"

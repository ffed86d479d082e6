"""The contracts between the program and whatever holds the model. Values crossing them are tokens and numpy arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.types import (
    AdamParams,
    Capabilities,
    Datum,
    LossSpec,
    Message,
    Metrics,
    Reply,
    Sampled,
    SamplingParams,
    Tokenizer,
    TrainingStart,
)


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


class Sampler(Protocol):
    """Samples from one fixed set of weights. Calls may overlap freely; the engine batches them."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def sample(self, prompt: Sequence[int], params: SamplingParams, *, n: int = 1) -> Sampled:
        """Write `n` completions of `prompt`. Raises SamplingError when this request failed for good."""
        ...

    async def logprobs(self, tokens: Sequence[int]) -> Sequence[float]:
        """The logprob, at temperature 1, of every token given those before it; len(tokens) of them, the first is 0."""
        ...


@runtime_checkable
class ChatModel(Protocol):
    """A model that is spoken to in messages, to be measured alone: nobody here sees its tokens. Calls may overlap."""

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], params: SamplingParams
    ) -> Reply:
        """The model's next message. `tools` are those it may call, as JSON schemas in OpenAI's form.

        Raises SamplingError when this request failed for good.
        """
        ...


class Trainer(Protocol):
    """One training run: a model's trainable weights and their optimizer."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec) -> Metrics:
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

    def capabilities(self, base_model: str) -> Capabilities:
        """What it can do with this model; a remote backend asks the service."""
        ...

    def trainer(self, start: TrainingStart, *, lora_rank: int, seed: int) -> Trainer:
        """A trainer from a base model, a checkpoint's weights, or a saved state.

        `lora_rank` and `seed` matter to new weights; a checkpoint keeps its own. Raises CheckpointError for a URI of
        the wrong kind or of nothing, BaseModelError or UsageError for a model it does not have.
        """
        ...

    def sampler(self, base_model: str, weights: str | None = None) -> Sampler:
        """A sampler of the base model, or of saved sampler weights. Raises CheckpointError for a state URI."""
        ...

    def delete(self, uri: str) -> None:
        """Remove a checkpoint that this backend wrote; one that is gone already is no error."""
        ...

    def close(self) -> None:
        """Give back what the backend holds, within seconds whatever state the service is in."""
        ...


@runtime_checkable
class ChatBackend(Backend, Protocol):
    """A backend whose models are spoken to in messages: `sampler` and `trainer` raise UsageError."""

    def chat_model(self, base_model: str, weights: str | None = None) -> ChatModel:
        """The model of that name. Raises CheckpointError where weights are given and cannot be had."""
        ...


@dataclass(frozen=True, slots=True)
class Weights:
    """What a folder of weights holds: an adapter of `lora_rank` on `base_model`, or with rank 0 a whole model."""

    base_model: str
    lora_rank: int


@runtime_checkable
class WeightsSource(Protocol):
    """A backend that can give its weights away."""

    def download(self, uri: str, folder: Path) -> Weights:
        """Write the weights of a checkpoint of either kind into an existing, empty folder.

        A LoRA adapter is a folder of PEFT's, all weights one of transformers' `save_pretrained`. Raises CheckpointError
        for a URI of nothing.
        """
        ...


CheckpointKind = Literal["training_state", "sampler_weights"]
# How URIs spell a kind. The Tinker API calls a training state "weights".
_KINDS: dict[str, CheckpointKind] = {
    "training_state": "training_state",
    "sampler_weights": "sampler_weights",
    "weights": "training_state",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint URI taken apart: `<scheme>://<run>/<kind>/<name>`."""

    scheme: str
    run: str
    kind: CheckpointKind
    name: str

    @classmethod
    def parse(cls, uri: str) -> "Checkpoint":
        """Raises CheckpointError with the shape a URI must have."""
        scheme, separator, rest = uri.partition("://")
        parts = rest.split("/")
        if not separator or len(parts) != 3 or not all(parts) or parts[1] not in _KINDS:
            raise CheckpointError(
                f"{uri!r} is not a checkpoint URI; use one that a run printed, "
                "like local://RUN/sampler_weights/NAME, trio://RUN/training_state/NAME or tinker://RUN/weights/NAME"
            )
        return cls(scheme, parts[0], _KINDS[parts[1]], parts[2])

    def __str__(self) -> str:
        kind = "weights" if self.scheme == "tinker" and self.kind == "training_state" else self.kind
        return f"{self.scheme}://{self.run}/{kind}/{self.name}"

"""Values that cross rooms. Array suffixes (`tokens_T`) are explained in CONTRIBUTING.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Message = dict[str, Any]
"""One message of a conversation: `role` and `content`; also `tool_calls` and the like where a service gave them."""

THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""Where services put what a model thought, apart from `content`: DeepSeek and SGLang in the first; vLLM and OpenRouter
in the second; what OpenRouter wants to have back in the third."""

CompletionStop = Literal["stop", "length"]
LossName = Literal["ppo", "importance_sampling", "cispo", "cross_entropy"]
Metrics = Mapping[str, float]


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that the program uses."""

    @property
    def eos_token_id(self) -> int | None: ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str: ...

    def apply_chat_template(self, conversation: Sequence[Mapping[str, Any]], **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How completions are drawn.

    - max_tokens: bound on the tokens of one completion.
    - temperature: 0 takes the likeliest token.
    - top_p: sample from the smallest set of tokens that holds this much probability.
    - seed: equal seeds give equal completions where the backend can promise that.
    - stop: texts to stop at besides the tokenizer's own end token.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote. `tokens` and `logprobs` have one length; a stop token that was sampled is included.

    `logprobs` are natural logarithms of the probability that the token was sampled with, temperature and top-p
    included, where the backend can tell (`Capabilities.behaviour_logprobs`); else those at temperature 1 and top-p 1.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: CompletionStop


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Completion):
    """What a model wrote that is spoken to in messages: it has no tokens, but the message and the service's own counts.

    - message: role and content, and where there are any `tool_calls` and the fields of its thoughts, as they came.
    - usage: of the one request; prefill and sampled together are the length of the conversation.
    - thought_tokens: how many of the sampled ones were thought, as far as the service says.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    stop_reason: CompletionStop = "stop"
    message: Message
    usage: Usage
    thought_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sampled:
    """The completions of one request, and what they used."""

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
class LossSpec:
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
    """AdamW. `grad_clip_norm` bounds the global gradient norm; 0 turns clipping off.

    `eps` is far below Adam's usual 1e-8: the Tinker API's and PyTRIO's default (tinker 0.25 `AdamParams`), so that
    the small gradients of a policy loss are scaled alike on every backend.
    """

    learning_rate: float = 1e-6
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do; no code asks for a backend's name.

    - default_model: the base model where none is given; empty where one has to be given.
    - trains: it gives gradients, not samples alone.
    - losses: the losses that its trainer knows.
    - full_finetuning: LoRA rank 0, all weights, is possible.
    - saves_every_update: saving is cheap enough to do so after every update, so that a crash costs one update.
    - billed: tokens cost money.
    - behaviour_logprobs: completions carry the logprobs of the distribution they were drawn from (see `Completion`).
    - samples_while_training: it samples from the weights of before while it trains, without a harm to either.
    - max_sequence_tokens: the longest sequence it takes; None where it names no limit.
    """

    default_model: str
    trains: bool = True
    losses: tuple[LossName, ...] = ("ppo", "importance_sampling", "cispo", "cross_entropy")
    full_finetuning: bool = False
    saves_every_update: bool = False
    billed: bool = True
    behaviour_logprobs: bool = False
    samples_while_training: bool = True
    max_sequence_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingStart:
    """Where a trainer's weights come from; exactly one is given.

    - base_model: new weights on a base model.
    - weights: the weights of a checkpoint of either kind, with a fresh optimizer.
    - state: weights and optimizer as `Trainer.save_state` left them.
    """

    base_model: str | None = None
    weights: str | None = None
    state: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("base_model", "weights", "state") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a training start needs one of base_model, weights and state, not {given or 'none'}")


class Observation(Protocol):
    """What an agent sees after an action, in any environment; ALFWorld's `View` is one.

    `text` is what happened, `task` what is to be done, `actions` what may be done next, in a fixed order. `won` counts
    once `done` is true.
    """

    @property
    def text(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def actions(self) -> Sequence[str]: ...
    @property
    def done(self) -> bool: ...
    @property
    def won(self) -> bool: ...
    @property
    def score(self) -> float: ...


class Task(Protocol):
    """One thing to do in an environment, such as a game of ALFWorld; the names are those of a results file.

    `game_id` is its name, the same on every machine, `split` the part of the data it belongs to, `task_type` its kind.
    """

    @property
    def game_id(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def task_type(self) -> str: ...

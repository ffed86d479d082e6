"""The two backends: a service that is spoken to in messages, and one that is spoken to in tokens."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from alfworld_rl.backends.base import CheckpointError, Sampler
from alfworld_rl.backends.kinds import OPENAI
from alfworld_rl.backends.openai.chat import OpenAIChat
from alfworld_rl.backends.openai.completions import TextSampler, TokenSampler, load_tokenizer
from alfworld_rl.backends.openai.service import MAX_RETRIES, Service
from alfworld_rl.errors import UsageError
from alfworld_rl.types import Capabilities, TrainingStart

ONLY_MEASURED = "a service that speaks OpenAI's protocol can be measured but not trained, for it gives no gradients"


class _Measured:
    """What both share. `base_url` and `max_retries` are those of `Service`."""

    def __init__(self, base_url: str | None, *, extra_body: Mapping[str, Any], max_retries: int) -> None:
        self._service = Service(base_url, max_retries=max_retries)
        self._extra_body = extra_body

    def capabilities(self, base_model: str) -> Capabilities:
        """See `base.Backend`. The first request to the service: raises BackendError where it does not answer."""
        said = self._service.models().get(base_model, {})
        length = said.get("max_model_len")  # vLLM and SGLang
        return replace(OPENAI, max_sequence_tokens=length if isinstance(length, int) else None)

    def trainer(self, start: TrainingStart, *, lora_rank: int, seed: int) -> NoReturn:
        raise UsageError(ONLY_MEASURED)

    def delete(self, uri: str) -> None:
        """Nothing: no checkpoint is its own."""

    def close(self) -> None:
        self._service.close()


class ChatService(_Measured):
    """See `base.ChatBackend`; `OpenAIChat` explains `extra_body`."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        extra_body: Mapping[str, Any] = {},
        max_retries: int = MAX_RETRIES,
    ) -> None:
        super().__init__(base_url, extra_body=extra_body, max_retries=max_retries)

    def sampler(self, base_model: str, weights: str | None = None) -> NoReturn:
        raise UsageError("this service is spoken to in messages (chat_model); for tokens take --api completions")

    def chat_model(self, base_model: str, weights: str | None = None) -> OpenAIChat:
        _refuse_weights(weights)
        return OpenAIChat(self._service, base_model, self._extra_body)


class CompletionsService(_Measured):
    """See `base.Backend`.

    - texts: whether the server takes and gives texts instead of token ids.
    - tokenizer: folder or name of the model's tokenizer; None: that of the model's own name.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        texts: bool = False,
        tokenizer: str | None = None,
        extra_body: Mapping[str, Any] = {},
        max_retries: int = MAX_RETRIES,
    ) -> None:
        super().__init__(base_url, extra_body=extra_body, max_retries=max_retries)
        self._kind = TextSampler if texts else TokenSampler
        self._tokenizer = tokenizer

    def sampler(self, base_model: str, weights: str | None = None) -> Sampler:
        _refuse_weights(weights)
        return self._kind(self._service, base_model, load_tokenizer(self._tokenizer or base_model), self._extra_body)


def _refuse_weights(weights: str | None) -> None:
    if weights is not None:
        raise CheckpointError(
            f"{weights} is no model of the service; name the served model with --base-model, without --model-path"
        )

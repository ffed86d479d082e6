"""A model behind /completions, spoken to in tokens: exact where the server takes and gives token ids.

`return_token_ids` is an extension of vLLM (0.10.2 and later), SGLang and Tinker's server: every choice then has the
`token_ids` that were sampled and the `prompt_token_ids` that were read. Other servers, such as `transformers serve`,
take a text alone; that is as exact only as their tokenizer and ours agree, which the token counts are a check of.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from alfworld_rl.backends.base import BackendError, BaseModelError, SamplingError
from alfworld_rl.backends.openai.chat import SEED_BITS, read_usage
from alfworld_rl.backends.openai.service import Service
from alfworld_rl.errors import UsageError, installing
from alfworld_rl.types import Completion, CompletionStop, Sampled, SamplingParams, Tokenizer, Usage


class TokenSampler:
    """See `base.Sampler`: token ids in, token ids and logprobs out. Logprobs are those at temperature 1 and top-p 1."""

    def __init__(self, service: Service, model: str, tokenizer: Tokenizer, extra_body: Mapping[str, Any]) -> None:
        self.tokenizer = tokenizer
        self._service = service
        self._model = model
        self._extra_body = dict(extra_body)

    async def sample(self, prompt: Sequence[int], params: SamplingParams, *, n: int = 1) -> Sampled:
        """See `base.Sampler`. Raises BackendError where the server takes the prompt for another, or gives no ids."""
        tokens = list(prompt)
        body = _fields(self._model, tokens, params)
        body |= {"n": n, "logprobs": 1, "return_token_ids": True, "skip_special_tokens": False}
        answer = await self._service.complete(body | self._extra_body)
        usage = read_usage(answer)
        # Once: the completions share it.
        return Sampled(tuple(_completion(choice, tokens) for choice in _choices(answer)), usage)

    async def logprobs(self, tokens: Sequence[int]) -> Sequence[float]:
        raise BackendError("a service that is only measured is not asked for the logprobs of given tokens")


class TextSampler:
    """See `base.Sampler`: the text of the tokens in, text out, a request a completion; no logprobs (NaN)."""

    def __init__(self, service: Service, model: str, tokenizer: Tokenizer, extra_body: Mapping[str, Any]) -> None:
        self.tokenizer = tokenizer
        self._service = service
        self._model = model
        self._extra_body = dict(extra_body)

    async def sample(self, prompt: Sequence[int], params: SamplingParams, *, n: int = 1) -> Sampled:
        """See `base.Sampler`. Raises SamplingError where the server counts other tokens than our tokenizer makes."""
        tokens = list(prompt)
        text = self.tokenizer.decode(tokens, skip_special_tokens=False)
        bodies = [
            _fields(self._model, text, params) | {"seed": (params.seed + number) % 2**SEED_BITS} for number in range(n)
        ]
        asked = [self._service.complete(body | self._extra_body) for body in bodies]
        written = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            written.append(self._read(answer, len(tokens), ended=not params.stop))
        return Sampled(tuple(completion for completion, _ in written), sum((usage for _, usage in written), Usage()))

    def _read(self, answer: Mapping[str, Any], prompt_length: int, *, ended: bool) -> tuple[Completion, Usage]:
        usage = read_usage(answer)
        choice = _choices(answer)[0]
        if usage.prefill != prompt_length:
            raise BackendError(
                f"the server read {usage.prefill} tokens where ours are {prompt_length}: give the served model's own "
                "tokenizer with --tokenizer, or take --api chat"
            )
        tokens = self.tokenizer.encode(str(choice.get("text") or ""), add_special_tokens=False)
        stop = _stop_reason(choice)
        if stop == "stop" and ended and self.tokenizer.eos_token_id is not None and usage.sampled == len(tokens) + 1:
            tokens.append(self.tokenizer.eos_token_id)  # sampled, but left out of the text
        if usage.sampled != len(tokens):
            raise SamplingError(
                f"the server sampled {usage.sampled} tokens but their text has {len(tokens)}: nobody knows which"
            )
        return Completion(tuple(tokens), (math.nan,) * len(tokens), stop), usage

    async def logprobs(self, tokens: Sequence[int]) -> Sequence[float]:
        raise BackendError("a service that is only measured is not asked for the logprobs of given tokens")


def load_tokenizer(name: str) -> Tokenizer:
    """That of a folder, or of a model of the hub. Raises BaseModelError where this machine cannot get it."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UsageError(f"--api completions needs transformers; install it with `{installing('openai')}`") from error
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise BaseModelError(
            f"the tokenizer of {name!r} cannot be loaded on this machine ({reason}); "
            "name the model's folder with --tokenizer (its weights may lack)"
        ) from error
    return tokenizer


def _fields(model: str, prompt: list[int] | str, params: SamplingParams) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p if params.top_p < 1 else None,
        "seed": params.seed % 2**SEED_BITS,
        "stop": list(params.stop) or None,
    }


def _choices(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    match answer:
        case {"choices": [dict(), *_] as choices} if all(isinstance(choice, dict) for choice in choices):
            return sorted(choices, key=lambda choice: choice.get("index") or 0)
        case {"error": error}:
            raise SamplingError(f"the service answered with an error ({str(error)[:300]})")
    raise SamplingError("the service answered with something that is no completion")


def _completion(choice: Mapping[str, Any], prompt: Sequence[int]) -> Completion:
    tokens = choice.get("token_ids")
    if not isinstance(tokens, list):
        raise BackendError(
            "the server returns no token ids (vLLM and SGLang do); take --api text-completions or --api chat"
        )
    read = choice.get("prompt_token_ids")
    if read is not None and read != prompt:
        raise BackendError("the server read other tokens than were sent; is its prompt cut off or changed on the way?")
    match choice.get("logprobs"):
        case {"token_logprobs": [*logprobs]} if len(logprobs) == len(tokens):
            numbers = tuple(math.nan if one is None else float(one) for one in logprobs)
        case _:
            raise SamplingError("the service answered with another number of logprobs than of tokens")
    return Completion(tuple(map(int, tokens)), numbers, _stop_reason(choice))


def _stop_reason(choice: Mapping[str, Any]) -> CompletionStop:
    return "length" if choice.get("finish_reason") == "length" else "stop"

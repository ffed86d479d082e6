"""Sampling through the Tinker API."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from alfworld_rl.backends.base import BackendError, SamplingError
from alfworld_rl.backends.tinker.service import Service
from alfworld_rl.backends.tinker.tokenizers import Vocabulary
from alfworld_rl.types import Completion, Sampled, SamplingParams, Tokenizer, Usage

SEEDS = 2**31 - 1024  # servers hold a seed in 32 bits, and add a completion's number to it


class TinkerSampler:
    """Samples from one set of weights. `check` raises where the server does not hold these weights any more."""

    def __init__(self, service: Service, client: Any, vocabulary: Vocabulary, check: Callable[[], None]) -> None:
        self._service = service
        self._client = client
        self._vocabulary = vocabulary
        self._check = check

    @property
    def tokenizer(self) -> Tokenizer:
        return self._vocabulary.tokenizer

    async def sample(self, prompt: Sequence[int], params: SamplingParams, *, n: int = 1) -> Sampled:
        """See `base.Sampler`. The tokens that end a message are sent as stops: servers know none by themselves."""
        parameters = self._service.sdk.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed % SEEDS,
            stop=self._vocabulary.stops(params.stop),
        )
        response = await self._asked(
            lambda: self._client.sample(self._input(prompt), num_samples=n, sampling_params=parameters), "sampling"
        )
        completions = tuple(_completion(sequence) for sequence in response.sequences)
        if len(completions) != n:
            raise SamplingError(f"the server wrote {len(completions)} completions where {n} were asked for")
        return Sampled(
            completions,
            Usage(
                prefill=len(prompt),
                cached=min(response.prompt_cache_hit_tokens or 0, len(prompt)),
                sampled=sum(len(completion.tokens) for completion in completions),
            ),
        )

    async def logprobs(self, tokens: Sequence[int]) -> list[float]:
        """See `base.Sampler`. The API writes one token to get there."""
        given = await self._asked(lambda: self._client.compute_logprobs(self._input(tokens)), "computing logprobs")
        given = list(given or [])
        # The hosted service begins with None for the first token, which nothing precedes; SkyRL leaves it out.
        known = given[1:] if len(given) == len(tokens) else given
        if len(known) != len(tokens) - 1 or any(value is None or not math.isfinite(value) for value in known):
            raise SamplingError("the server left out logprobs of the prompt; not every engine computes them")
        return [0.0, *map(float, known)]

    def _input(self, tokens: Sequence[int]) -> Any:
        return self._service.sdk.ModelInput.from_ints([int(token) for token in tokens])

    async def _asked(self, call: Callable[[], Any], doing: str) -> Any:
        self._check()
        try:
            return await self._service.watched(call(), doing)
        except Exception as error:
            explained = self._service.explained(error, doing)
            if type(explained) is BackendError and not _ends_the_run(error, str(explained)):
                explained = SamplingError(str(explained))
            raise explained from error


def _ends_the_run(error: Exception, said: str) -> bool:
    """Whether no other request can do better: refused credentials, a server that is gone or has lost the model."""
    return (
        isinstance(error, BackendError)
        or getattr(error, "status_code", 0) in (401, 403)
        or "no longer" in said
        or "do not understand each other" in said
    )


def _completion(sequence: Any) -> Completion:
    tokens, logprobs = tuple(sequence.tokens), tuple(sequence.logprobs or ())
    if len(tokens) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise SamplingError(
            f"the server sent {len(tokens)} tokens with {len(logprobs)} logprobs, or logprobs that are not finite"
        )
    return Completion(tokens, logprobs, "length" if sequence.stop_reason == "length" else "stop")

"""Prompts, completions and training data for tests of any backend."""

import asyncio
import math
from collections.abc import Sequence

import numpy as np

from alfworld_rl.backends.base import Sampler
from alfworld_rl.types import Completion, Datum, Sampled, SamplingParams


def prompt_of(
    sampler: Sampler, text: str = "You are in the middle of a room. Put a mug on the desk."
) -> tuple[int, ...]:
    messages = [{"role": "system", "content": "You play."}, {"role": "user", "content": text}]
    written = sampler.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tuple(sampler.tokenizer.encode(written, add_special_tokens=False))


def sample(sampler: Sampler, prompt: Sequence[int], n: int = 1, seed: int = 1, **changes: float) -> Sampled:
    params = SamplingParams(**{"max_tokens": 12, "temperature": 1.0, **changes}, seed=seed)  # type: ignore[arg-type]
    return asyncio.run(sampler.sample(prompt, params, n=n))


def two(sampler: Sampler, prompt: Sequence[int]) -> tuple[Completion, Completion]:
    """The shortest and the longest of some completions."""
    found = sorted(sample(sampler, prompt, n=4).completions, key=lambda one: len(one.tokens))
    assert len(found[0].tokens) >= 2
    assert found[0].tokens != found[-1].tokens
    return found[0], found[-1]


def logprobs(sampler: Sampler, tokens: Sequence[int]) -> np.ndarray:
    return np.asarray(asyncio.run(sampler.logprobs(tokens)))


def datum(
    prompt: Sequence[int], written: Completion, advantage: float, *, ratio: float = 1.0, tokens: int | None = None
) -> Datum:
    """The completion (its first `tokens`), as if it had been sampled with 1 / `ratio` of its probability."""
    row = [*prompt, *written.tokens[:tokens]]
    mask_T = np.arange(len(row) - 1) >= len(prompt) - 1
    logprobs_T = np.zeros(len(mask_T), np.float32)
    logprobs_T[mask_T] = np.asarray(written.logprobs[:tokens]) - math.log(ratio)
    advantages_T = np.where(mask_T, advantage, 0).astype(np.float32)
    return Datum(np.array(row[:-1], np.int32), np.array(row[1:], np.int32), mask_T, logprobs_T, advantages_T)


def count(*data: Datum) -> int:
    return sum(int(one.mask_T.sum()) for one in data)

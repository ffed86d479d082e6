"""One forward pass for each sequence, with transformers' own cache: for models that `packed` cannot lay in one row.

Those are models that look at a window of the past, or keep of it a state that cannot be cut (Qwen3.5's linear
attention, Mamba). What is sampled and trained is the same; only speed and reuse of beginnings suffer.
"""

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from transformers import DynamicCache

from alfworld_rl.backends.local.packed import Span


class StateCache:
    """The past of one sequence of `length` tokens, as transformers keeps it for a model of this configuration."""

    def __init__(self, config: Any) -> None:
        self.length = 0
        self.state = DynamicCache(config=config)
        self._config = config

    @property
    def nbytes(self) -> int:
        return sum(_tensor_bytes(vars(layer)) for layer in self.state.layers)

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def fork(self, length: int) -> Self:
        """A copy, or an empty one if only a part is wanted: a state cannot be cut."""
        return copy.deepcopy(self) if length == self.length else type(self)(self._config)


def forward(module: Any, spans: Sequence[Span], keep: Sequence[int]) -> Tensor:
    """As `packed.forward`."""
    logits: list[Tensor] = []
    start = taken = 0
    for span in spans:
        stop = start + len(span.tokens)
        kept = taken
        while kept < len(keep) and keep[kept] < stop:
            kept += 1
        # A span of which nothing is kept is still read, for its cache.
        rows = [position - start for position in keep[taken:kept]] or [len(span.tokens) - 1]
        cache = span.cache.state if isinstance(span.cache, StateCache) else None
        answer = module(
            input_ids=torch.tensor([span.tokens], device=module.device),
            cache=cache,
            use_cache=cache is not None,
            logits_to_keep=torch.tensor(rows, device=module.device),
        )
        if kept > taken:
            logits.append(answer.logits[0])
        if span.cache is not None:
            span.cache.advance(len(span.tokens))
        start, taken = stop, kept
    return torch.cat(logits) if logits else torch.empty(0, device=module.device)


def _tensor_bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_tensor_bytes, value.values()))
    return sum(map(_tensor_bytes, value)) if isinstance(value, list | tuple) else 0

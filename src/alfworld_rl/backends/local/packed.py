"""One forward pass over many sequences laid end to end in one row: nothing is padded, nothing is shared.

transformers lets a model's attention be replaced by name. Ours cuts the row into its sequences, lets each look
only at itself (and at what its key/value cache holds of its past), and puts the answers back. Everything else in a
decoder works token by token, so one row serves training, prefill and decoding of any mix of sequences alike.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "alfworld_packed"

# With a row count that is a multiple of 16, matrix products give each row the same bits whatever the other rows are
# (smaller and odd counts take other kernels). So a completion does not depend on what happens to be batched with it.
_ROW_MULTIPLE = 16

# Attention with a cache is computed in pieces that end at multiples of this position. So the keys and values of a
# prompt up to such a position are the same bits whether it was read at once or found in the cache up to another.
PIECE = 128


class KVCache:
    """Keys and values of the first `length` tokens of one sequence, for each layer (2, 1, kv heads, capacity, d)."""

    def __init__(self) -> None:
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # all, and views of its keys and its values

    @property
    def nbytes(self) -> int:
        return sum(stored.nbytes for stored, _, _ in self._layers.values())

    def extend(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values (2, 1, kv heads, n, d) behind `length`; returns all up to there, each 4-d.

        `length` itself moves by `advance`, after every layer has written.
        """
        stop = self.length + new.shape[3]
        held = self._layers.get(layer)
        if held is None or held[0].shape[3] < stop:
            grown = _with_slack(new, stop)
            if held is not None:
                grown.narrow(3, 0, self.length).copy_(held[0].narrow(3, 0, self.length))
            held = self._layers[layer] = (grown, grown[0], grown[1])
        stored, keys, values = held
        stored.narrow(3, self.length, new.shape[3]).copy_(new)
        return keys.narrow(2, 0, stop), values.narrow(2, 0, stop)

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def fork(self, length: int) -> "KVCache":
        """A copy of the first `length` tokens."""
        twin = KVCache()
        twin.length = length
        for layer, (stored, _, _) in self._layers.items():
            copied = _with_slack(stored, length)
            copied.narrow(3, 0, length).copy_(stored.narrow(3, 0, length))
            twin._layers[layer] = (copied, copied[0], copied[1])
        return twin


def _with_slack(like: Tensor, length: int) -> Tensor:
    """Room for `length` tokens and a quarter more: a sequence grows by tokens, and copying for each is quadratic."""
    capacity = (length + length // 4 + 63) // 64 * 64
    return like.new_empty(*like.shape[:3], capacity, like.shape[4])


class Past(Protocol):
    """What a forward pass remembers of one sequence."""

    length: int

    @property
    def nbytes(self) -> int: ...

    def advance(self, tokens: int) -> None:
        """Count tokens that a forward pass has read."""

    def fork(self, length: int) -> "Past":
        """A copy of the first `length` tokens, or of as many as can be had."""
        ...


@dataclass(slots=True)
class Span:
    """`tokens` of one sequence in the row; `cache` holds what came before them (None: nothing did)."""

    tokens: Sequence[int]
    cache: Past | None = None
    masks: dict[int, Tensor] = field(default_factory=dict, init=False)

    @property
    def past(self) -> int:
        return self.cache.length if self.cache is not None else 0


_row: ContextVar[Sequence[Span]] = ContextVar("row")


@contextmanager
def _laid_out(spans: Sequence[Span]) -> Iterator[None]:
    reset = _row.set(spans)
    try:
        yield
    finally:
        _row.reset(reset)


def forward(module: Any, spans: Sequence[Span], keep: Sequence[int]) -> Tensor:
    """Logits (len(keep), vocabulary) at the row positions `keep`; the spans' caches have grown by their tokens."""
    tokens = [token for span in spans for token in span.tokens]
    positions = [span.past + i for span in spans for i in range(len(span.tokens))]
    spans = list(spans)
    if fill := -len(tokens) % _ROW_MULTIPLE:
        spans.append(Span([0] * fill))
        tokens += [0] * fill
        positions += range(fill)
    kept = len(keep)
    keep = [*keep, *[0] * (-kept % _ROW_MULTIPLE)]
    device = next(module.parameters()).device
    with _laid_out(spans):
        logits: Tensor = module(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(keep, device=device),
        ).logits
    for span in spans:
        if span.cache is not None:
            span.cache.advance(len(span.tokens))
    return logits[0, :kept]


def _packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """query (1, heads, N, d), key and value (1, kv heads, N, d) -> (1, N, heads, d).

    When 64 sequences write a token each, what costs is the number of operations for each: hence one split and one
    write where several would read more simply.
    """
    spans = _row.get()
    lengths = [len(span.tokens) for span in spans]
    queries = torch.split(query, lengths, dim=2)
    out = []
    if not any(isinstance(span.cache, KVCache) for span in spans):
        keys, values = torch.split(key, lengths, dim=2), torch.split(value, lengths, dim=2)
        out = [_attend(*one, None, scaling) for one in zip(queries, keys, values, strict=True)]
    else:
        both = torch.split(torch.stack((key, value)), lengths, dim=3)
        for span, asked, new in zip(spans, queries, both, strict=True):
            if isinstance(span.cache, KVCache):
                out += _attend_in_pieces(asked, *span.cache.extend(module.layer_idx, new), span, scaling)
            else:
                out.append(_attend(asked, new[0], new[1], None, scaling))
    return torch.cat(out, dim=2).transpose(1, 2), None


def _attend_in_pieces(query: Tensor, key: Tensor, value: Tensor, span: Span, scaling: float) -> list[Tensor]:
    past, length = span.past, key.shape[2]
    if length - past == 1:
        return [_attend(query, key, value, None, scaling)]
    ends = [*range(past - past % PIECE + PIECE, length, PIECE), length]
    starts = [past, *ends[:-1]]
    return [
        _attend(query[:, :, first - past : last - past], key[:, :, :last], value[:, :, :last], span.masks, scaling)
        for first, last in zip(starts, ends, strict=True)
    ]


def _attend(query: Tensor, key: Tensor, value: Tensor, masks: dict[int, Tensor] | None, scaling: float) -> Tensor:
    """query (1, heads, n, d) over key and value (1, kv heads, L, d), the last n of them its own -> (1, heads, n, d).

    `masks` keeps masks by L, since they are the same for all layers.
    """
    (_, heads, n, width), (_, kv_heads, length, _) = query.shape, key.shape
    groups = heads // kv_heads
    if n == 1:
        # One query sees everything, so the heads that share a key head can be the rows of one product.
        rows = query.reshape(1, kv_heads, groups, width)
        return F.scaled_dot_product_attention(rows, key, value, scale=scaling).reshape(1, heads, 1, width)
    mask = None
    if length > n:
        assert masks is not None
        if length not in masks:
            masks[length] = torch.ones(n, length, dtype=torch.bool, device=query.device).tril(length - n)
        mask = masks[length]
    # Expanding (no copy) instead of enable_gqa, which leaves the fast kernel on the CPU.
    seen = F.scaled_dot_product_attention(
        query.reshape(kv_heads, groups, n, width),
        key.transpose(0, 1).expand(-1, groups, -1, -1),
        value.transpose(0, 1).expand(-1, groups, -1, -1),
        attn_mask=mask,
        is_causal=length == n,
        scale=scaling,
    )
    return seen.reshape(1, heads, n, width)


AttentionInterface.register(ATTENTION, _packed_attention)


def fits(module: Any) -> bool:
    """Whether `module` gives the same logits on packed rows; if so, they are its attention from now on.

    Its configuration rules out what shows on long sequences only; the rest is tried.
    """
    config = module.config.get_text_config()
    if (
        set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}
        or getattr(config, "sliding_window", None)
        or not module._supports_attention_backend
    ):
        return False
    tokens = [index * 7 % config.vocab_size for index in range(24)]
    before = module.config._attn_implementation
    with torch.inference_mode():
        expected = module(torch.tensor([tokens], device=module.device), use_cache=False).logits[0, -1].float()
        try:
            module.set_attn_implementation(ATTENTION)
            cache = KVCache()
            forward(module, [Span(tokens[:9]), Span(tokens[:17], cache)], [0])
            found = forward(module, [Span(tokens[17:], cache), Span(tokens)], [6, 30]).float()
            if torch.allclose(found, expected.expand_as(found), rtol=0.01, atol=0.01 * float(expected.std())):
                return True
        except (RuntimeError, AttributeError, TypeError, ValueError):
            pass
    module.set_attn_implementation(before)
    return False

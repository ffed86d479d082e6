"""The keys and values of sequences whose next turn may come."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.backends.local.packed import PIECE, Past


class PrefixCache:
    """Finished sequences' keys and values, at most `capacity_bytes`, least recently used out first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._stored: OrderedDict[int, tuple[NDArray[np.int32], Past]] = OrderedDict()
        self._keys = 0
        self._bytes = 0
        self._token_bytes = 0.0

    def take(self, prompt: Sequence[int], in_use: Iterable[tuple[Sequence[int], Past]]) -> Past | None:
        """The keys and values of the longest known beginning of `prompt`, for the caller to extend.

        A stored sequence that `prompt` continues (a trajectory's last turn) is handed out itself. Otherwise a common
        beginning, with one of those or with one of the sequences `in_use`, is copied up to the end of a piece: there
        it is what reading the prompt would have computed, bit for bit, so that it does not matter who came first.
        The last prompt token is always left to the caller: its logits are where a completion begins.
        """
        prompt_T = np.array(prompt[:-1], dtype=np.int32)
        continued, continued_key = 0, None
        shared, shared_with, shared_key = PIECE - 1, None, None
        for key, (tokens_T, cache) in self._stored.items():
            length = _common(tokens_T, prompt_T, min(continued, shared))
            if length == len(tokens_T) > continued:
                continued, continued_key = length, key
            if length > shared:
                shared, shared_with, shared_key = length, cache, key
        if continued_key is not None:
            return self._drop(continued_key)
        for tokens, cache in in_use:
            length = _common(np.array(tokens[: cache.length], dtype=np.int32), prompt_T, shared)
            if length > shared:
                shared, shared_with, shared_key = length, cache, None
        if shared_with is None:
            return None
        if shared_key is not None:
            self._stored.move_to_end(shared_key)
        return shared_with.fork(shared - shared % PIECE)

    def put(self, tokens: Sequence[int], cache: Past) -> None:
        self._stored[self._keys] = np.array(tokens, dtype=np.int32), cache
        self._keys += 1
        self._bytes += cache.nbytes
        self._token_bytes = cache.nbytes / max(cache.length, 1)
        self._evict(self._capacity)

    def make_room(self, held_bytes: int, tokens: int) -> bool:
        """Whether `tokens` more fit beside `held_bytes` in use, once everything stored has given way."""
        wanted = held_bytes + int(tokens * self._token_bytes)
        if wanted > self._capacity:
            return False
        self._evict(self._capacity - wanted)
        return True

    def _evict(self, capacity: int) -> None:
        while self._stored and self._bytes > capacity:
            self._drop(next(iter(self._stored)))

    def _drop(self, key: int) -> Past:
        _, cache = self._stored.pop(key)
        self._bytes -= cache.nbytes
        return cache


def _common(tokens_T: NDArray[np.int32], prompt_T: NDArray[np.int32], at_least: int) -> int:
    """Length of the common beginning, or 0 where it is plainly no longer than `at_least`."""
    length = min(len(tokens_T), len(prompt_T))
    if length <= at_least or tokens_T[at_least] != prompt_T[at_least]:
        return 0
    different = np.flatnonzero(tokens_T[:length] != prompt_T[:length])
    return int(different[0]) if len(different) else length

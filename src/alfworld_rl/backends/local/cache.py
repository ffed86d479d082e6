"""The keys and values of sequences whose next turn may come."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.backends.local.packed import KVCache

# Shorter common beginnings are cheaper to compute again than to copy and keep.
_WORTH_COPYING = 16


class PrefixCache:
    """Finished sequences' keys and values, at most `capacity_bytes`, least recently used out first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._stored: OrderedDict[int, tuple[NDArray[np.int32], KVCache]] = OrderedDict()
        self._keys = 0
        self._bytes = 0
        self._token_bytes = 0.0

    def take(self, prompt: Sequence[int], limit: int, others: Iterable[tuple[Sequence[int], KVCache]] = ()) -> KVCache:
        """The longest known beginning of `prompt`, of at most `limit` tokens, for the caller to extend.

        A stored sequence that is a beginning of the prompt as a whole is handed out itself; of any other, and of the
        `others` that are in use, the common beginning is copied.
        """
        prompt_T = np.array(prompt[:limit], dtype=np.int32)
        best, best_key, best_cache = 0, None, None
        for key, (tokens_T, cache) in self._stored.items():
            if (length := _common(tokens_T, prompt_T, best)) > best:
                best, best_key, best_cache = length, key, cache
        for tokens, cache in others:
            tokens_T = np.array(tokens[: cache.length], dtype=np.int32)
            if (length := _common(tokens_T, prompt_T, best)) > best:
                best, best_key, best_cache = length, None, cache
        if best_cache is None or best < _WORTH_COPYING:
            return KVCache()
        if best_key is None:
            return best_cache.fork(best)
        if best_cache.length == best:
            self._drop(best_key)
            return best_cache
        self._stored.move_to_end(best_key)
        return best_cache.fork(best)

    def put(self, tokens: Sequence[int], cache: KVCache) -> None:
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

    def _drop(self, key: int) -> None:
        self._bytes -= self._stored.pop(key)[1].nbytes


def _common(tokens_T: NDArray[np.int32], prompt_T: NDArray[np.int32], at_least: int) -> int:
    """Length of the common beginning, or 0 where it is plainly no longer than `at_least`."""
    length = min(len(tokens_T), len(prompt_T))
    if length <= at_least or tokens_T[at_least] != prompt_T[at_least]:
        return 0
    different = np.flatnonzero(tokens_T[:length] != prompt_T[:length])
    return int(different[0]) if len(different) else length

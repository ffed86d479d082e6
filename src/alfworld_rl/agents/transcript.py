"""The exact tokens a model saw and wrote in one episode, each stored once."""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.types import Completion, Datum


class Transcript:
    """An append-only buffer of token ids with, for every token, whether the model wrote it and its logprob.

    What the model is shown next is always everything so far: prompt k+1 is prompt k, completion k and the
    environment's answer, token for token. Nine bytes a token, whatever the number of turns.
    """

    __slots__ = ("_logprobs", "_tokens", "_turns", "_written")

    def __init__(self, prompt: Sequence[int] = ()) -> None:
        self._tokens = array("i")
        self._written = bytearray()
        self._logprobs = array("f")
        self._turns: list[tuple[int, int]] = []
        self.show(prompt)

    def show(self, tokens: Sequence[int]) -> None:
        """Append tokens that the model reads: the first prompt, later the environment's answers."""
        self._tokens.extend(tokens)
        self._written.extend(bytes(len(tokens)))
        self._logprobs.frombytes(bytes(4 * len(tokens)))

    def write(self, completion: Completion) -> None:
        """Append what the model wrote, with the logprobs it was sampled with."""
        if len(completion.tokens) != len(completion.logprobs):
            raise ValueError(
                f"a completion has {len(completion.tokens)} tokens but {len(completion.logprobs)} logprobs; "
                "each token needs its own"
            )
        start = len(self._tokens)
        self._tokens.extend(completion.tokens)
        self._written.extend(b"\x01" * len(completion.tokens))
        self._logprobs.extend(completion.logprobs)
        self._turns.append((start, len(self._tokens)))

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def prompt(self) -> "Tokens":
        """Everything so far as a sequence that costs nothing and stays as it is while the transcript grows."""
        return Tokens(self._tokens, len(self._tokens))

    @property
    def turns(self) -> Sequence[tuple[int, int]]:
        """Where each completion starts and ends (exclusive), in order."""
        return self._turns

    @property
    def written_count(self) -> int:
        """Tokens that the model wrote."""
        return sum(end - start for start, end in self._turns)

    @property
    def prefill_count(self) -> int:
        """Prompt tokens of all turns together: what a service without a cache has to read."""
        return sum(start for start, _ in self._turns)

    @property
    def cacheable_count(self) -> int:
        """Those of them that earlier turns of this transcript had already sent or sampled."""
        return sum(end for _, end in self._turns[:-1])

    def datum(self, advantages: float | Sequence[float]) -> Datum:
        """One training sequence up to the last token that the model wrote.

        `advantages` is one number for the whole trajectory or one for each turn. Tokens that the model only read
        get no advantage and no place in the loss. Raises ValueError where the model wrote nothing.
        """
        length = max((end for start, end in self._turns if end > start), default=0)
        if length < 2:
            raise ValueError("a transcript in which the model wrote nothing after a prompt cannot be trained on")
        tokens = np.array(self._tokens[:length], np.int32)
        mask_T = np.frombuffer(bytes(self._written[1:length]), np.bool_)
        per_turn = [advantages] * len(self._turns) if isinstance(advantages, float | int) else advantages
        advantages_T = np.zeros(length - 1, np.float32)
        for (start, end), advantage in zip(self._turns, per_turn, strict=True):
            # The token at position i is the target at i - 1; nothing predicts the very first token.
            advantages_T[max(start - 1, 0) : max(end - 1, 0)] = advantage
        return Datum(
            tokens_T=tokens[:-1],
            targets_T=tokens[1:],
            mask_T=mask_T,
            logprobs_T=np.array(self._logprobs[1:length], np.float32),
            advantages_T=advantages_T,
        )


class Tokens(Sequence[int]):
    """The first `length` tokens of a growing buffer, without a copy: growth does not change what stands before."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, buffer: array[int], length: int) -> None:
        self._buffer = buffer
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._buffer[start:stop:step].tolist() if stop >= 0 else self._whole().tolist()[index]
        if not -self._length <= index < self._length:
            raise IndexError("token index out of range")
        return self._buffer[index if index >= 0 else self._length + index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return len(other) == self._length and all(map(int.__eq__, self._whole(), other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        # A view would hold the buffer's memory in place and forbid the transcript to grow.
        return np.array(self._whole(), np.int32 if dtype is None else dtype)

    def __repr__(self) -> str:
        return f"Tokens({self._whole().tolist()})"

    def _whole(self) -> array[int]:
        return self._buffer[: self._length]

"""What the service sampled and what it was sent to train on, and whether the two agree."""

import threading
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class SampleRecord:
    """One completion: `weights` is the checkpoint URI that wrote it ("" for the base model)."""

    weights: str
    prompt: Tokens
    tokens: Tokens
    logprobs: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class DatumRecord:
    """One training sequence as it arrived; targets that take no part are -100."""

    tokens_T: Tokens
    targets_T: Tokens
    logprobs_T: NDArray[np.float32] | None
    advantages_T: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class TrainRecord:
    """One part of a batch. `total_active_tokens` belongs to the whole batch, whose parts share `step`."""

    run: str
    step: int
    loss: str
    config: dict[str, object]
    total_samples: int
    total_active_tokens: int
    data: list[DatumRecord]


@dataclass
class Ledger:
    samples: list[SampleRecord] = field(default_factory=list)
    trained: list[TrainRecord] = field(default_factory=list)
    optimizer_steps: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    prefill_tokens: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_sample(self, record: SampleRecord) -> None:
        with self.lock:
            self.samples.append(record)
            self.sampled_tokens += len(record.tokens)

    def add_training(self, record: TrainRecord) -> None:
        with self.lock:
            self.trained.append(record)
            self.trained_tokens += sum(len(datum.tokens_T) for datum in record.data)

    def trained_data(self) -> list[DatumRecord]:
        return [datum for record in self.trained for datum in record.data]

    def first_prompts(self) -> list[SampleRecord]:
        """The samples that no earlier prompt and completion lead up to, token for token: the first turns."""
        known = {_key(np.concatenate((sample.prompt, sample.tokens))) for sample in self.samples}
        lengths = sorted({length for length, _ in known})
        return [sample for sample in self.samples if not _extends(sample.prompt, known, lengths)]

    def check_training(self) -> int:
        """Assert that every trained token was sampled here, after these very tokens and with that logprob.

        Returns the number of completions that were trained on, for the caller to compare.
        """
        written: dict[tuple[int, bytes], list[SampleRecord]] = defaultdict(list)
        for sample in self.samples:
            written[_key(sample.prompt)].append(sample)
        completions = 0
        for datum in self.trained_data():
            assert datum.logprobs_T is not None, "no policy loss"
            assert datum.advantages_T is not None, "no policy loss"
            trained_T = datum.targets_T != -100
            assert np.array_equal(datum.targets_T[:-1][trained_T[:-1]], datum.tokens_T[1:][trained_T[:-1]]), "shifted"
            assert not datum.advantages_T[~trained_T].any(), "an advantage outside the completions"
            assert len(set(datum.advantages_T[trained_T].tolist())) <= 1, "one trajectory, more than one advantage"
            for start, end in _spans(trained_T):
                prompt, tokens = datum.tokens_T[: start + 1], datum.targets_T[start:end]
                candidates = written[_key(prompt)]
                assert candidates, f"trained on a prompt of {len(prompt)} tokens that was never sampled from"
                assert any(
                    np.array_equal(sample.tokens, tokens)
                    and np.array_equal(sample.logprobs, datum.logprobs_T[start:end])
                    for sample in candidates
                ), f"trained on {len(tokens)} tokens, or logprobs of them, that were not handed out"
                completions += 1
        return completions


def _key(tokens: Tokens) -> tuple[int, bytes]:
    return len(tokens), tokens.astype("<i4").tobytes()


def _extends(prompt: Tokens, known: set[tuple[int, bytes]], lengths: list[int]) -> bool:
    raw = prompt.astype("<i4").tobytes()
    return any((length, raw[: 4 * length]) in known for length in lengths if length < len(prompt))


def _spans(flags_T: NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags_T.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))

"""Sampling with continuous batching: requests join and leave the running batch at any token.

The event loop only hands requests over; all computing happens in one worker thread. Each of its steps is one forward
pass over one packed row: the next token of every sequence that is being written and a stretch of every prompt that
is being read. The keys and values of a finished sequence stay (within a bound, least recently used out first), so
the next turn of a trajectory, whose prompt begins with all of that, computes its new tokens only.

A completion depends on the weights, the prompt, the sampling parameters and the seed: each one draws from its own
random stream, stretches of a prompt are cut by its own length, and `packed` keeps rows independent.
"""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from alfworld_rl.backends.local.cache import PrefixCache
from alfworld_rl.backends.local.models import Model
from alfworld_rl.backends.local.packed import Past, Span
from alfworld_rl.types import Completion, Sampled, CompletionStop, SamplingParams, Tokenizer, Usage
from alfworld_rl.backends.base import SamplingError

# Tokens of one prompt, and of all prompts, that one step reads: long enough to fill the processor, short enough
# that the sequences being written meanwhile are not kept waiting.
_STRETCH = 512
_STEP_TOKENS = 2048


@dataclass(slots=True, eq=False)
class _Request:
    """What `sample` or, with `score`, `logprobs` asked for, and where the answer goes."""

    prompt: tuple[int, ...]
    n: int
    params: SamplingParams
    score: bool
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Sampled | list[float]]"
    cached: int = 0
    scores: list[float] = field(default_factory=lambda: [0.0])
    completions: dict[int, Completion] = field(default_factory=dict)

    @property
    def abandoned(self) -> bool:
        return self.future.cancelled() or self.loop.is_closed()

    def answer(self, result: Sampled | list[float] | BaseException) -> None:
        def deliver() -> None:
            if self.future.done():  # cancelled meanwhile
                return
            if isinstance(result, BaseException):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)

        with contextlib.suppress(RuntimeError):  # the event loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(deliver)


@dataclass(slots=True, eq=False)
class _Sequence:
    """One sequence under way: its prompt is read until `cache` holds it, then completion `index` is written."""

    request: _Request
    index: int
    cache: Past
    tokens: list[int]
    random: np.random.Generator
    logprobs: list[float] = field(default_factory=list)

    @property
    def reading(self) -> bool:
        return not self.logprobs

    def next_tokens(self) -> list[int]:
        return self.tokens[self.cache.length : self.cache.length + _STRETCH]


def _random(seed: int, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, index], dtype=np.uint64)))


class LocalSampler:
    """Samples from the weights of `model`, which must not change any more.

    `cache_bytes` bounds the keys and values kept for sequences whose next turn may come; requests that do not fit
    beside those being computed wait for their turn.
    """

    def __init__(self, model: Model, *, cache_bytes: int | None = None) -> None:
        self._model = model
        self._cache = PrefixCache(cache_bytes or _default_cache_bytes(model))
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._waiting: list[_Request] = []
        self._active: list[_Sequence] = []
        self._completes: dict[tuple[str, ...], dict[int, bool]] = {}
        # Its thread ends with the sampler: an executor's threads do not keep it alive. A new thread would compute with
        # as many threads as were asked for last, and a trainer's workers ask for one each.
        self._executor = ThreadPoolExecutor(1, "sampler", torch.set_num_threads, (torch.get_num_threads(),))
        self._lock = threading.Lock()
        self._running = False

    @property
    def tokenizer(self) -> Tokenizer:
        return self._model.tokenizer

    async def sample(self, prompt: Sequence[int], params: SamplingParams, *, n: int = 1) -> Sampled:
        """Write `n` completions of `prompt`; equal seeds give equal completions, whatever else is being sampled.

        A completion ends with a token that ends a message, with the token that completes one of the `stop` strings,
        or after `max_tokens`. Temperature 0 takes the likeliest token.
        """
        if n < 1 or params.max_tokens < 1 or params.temperature < 0 or not 0 < params.top_p <= 1:
            raise SamplingError(
                f"cannot sample with n={n}, max_tokens={params.max_tokens}, temperature={params.temperature}, "
                f"top_p={params.top_p}; n and max_tokens start at 1, temperature at 0, and top_p lies in (0, 1]"
            )
        sampled = await self._submit(prompt, n, params, score=False)
        assert isinstance(sampled, Sampled)
        return sampled

    async def logprobs(self, tokens: Sequence[int]) -> list[float]:
        scores = await self._submit(tokens, 1, SamplingParams(max_tokens=0), score=True)
        assert isinstance(scores, list)
        return scores

    async def _submit(
        self, prompt: Sequence[int], n: int, params: SamplingParams, *, score: bool
    ) -> Sampled | list[float]:
        tokens = tuple(map(int, prompt))
        if not tokens or min(tokens) < 0 or max(tokens) >= self._model.vocabulary:
            raise SamplingError(
                f"a prompt must hold at least one token, all from 0 to {self._model.vocabulary - 1}; "
                "was it made by another model's tokenizer?"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sampled | list[float]] = loop.create_future()
        self._requests.put(_Request(tokens, n, params, score, loop, future))
        with self._lock:
            if not self._running:
                self._running = True
                self._executor.submit(self._work)
        return await future

    # From here on everything runs in the worker thread.

    def _work(self) -> None:
        try:
            with torch.inference_mode():
                while self._admit():
                    self._step()
        except Exception as error:
            failure = SamplingError(f"sampling failed in the local engine ({type(error).__name__}: {error})")
            failure.__cause__ = error
            with self._lock:
                self._running = False
                while not self._requests.empty():
                    self._waiting.append(self._requests.get())
            for request in {*self._waiting, *(sequence.request for sequence in self._active)}:
                request.answer(failure)
            self._waiting.clear()
            self._active.clear()

    def _admit(self) -> bool:
        """Start the requests there is room for; False when nothing is left to do and the worker may rest."""
        while True:
            try:
                self._waiting.append(self._requests.get_nowait())
            except queue.Empty:
                break
        self._active = [sequence for sequence in self._active if not sequence.request.abandoned]
        while self._waiting:
            request = self._waiting[0]
            if not request.abandoned:
                held = sum(sequence.cache.nbytes for sequence in self._active)
                tokens = request.n * (len(request.prompt) + min(request.params.max_tokens, 256))
                if self._active and not self._cache.make_room(held, tokens):
                    break
                self._active.append(self._start(request))
            self._waiting.pop(0)
        if not self._active:
            with self._lock:
                if self._requests.empty():
                    self._running = False
                    return False
            return self._admit()
        return True

    def _start(self, request: _Request) -> _Sequence:
        in_use = ((sequence.tokens, sequence.cache) for sequence in self._active)
        known = None if request.score else self._cache.take(request.prompt, in_use)
        cache = known or self._model.new_cache()
        request.cached = cache.length
        return _Sequence(request, 0, cache, list(request.prompt), _random(request.params.seed, 0))

    def _step(self) -> None:
        spans: list[Span] = []
        stepping: list[_Sequence] = []
        keep: list[int] = []
        row = 0
        for sequence in self._active:
            tokens = sequence.next_tokens()
            if sequence.reading and row and row + len(tokens) > _STEP_TOKENS:
                continue
            spans.append(Span(tokens, sequence.cache))
            stepping.append(sequence)
            keep.extend(range(row, row + len(tokens)) if sequence.request.score else [row + len(tokens) - 1])
            row += len(tokens)
        logits = self._model.forward(spans, keep).float()
        first = 0
        writing: list[tuple[_Sequence, int]] = []
        for sequence, span in zip(stepping, spans, strict=True):
            if sequence.request.score:
                self._score(sequence, span, logits[first : first + len(span.tokens)])
                first += len(span.tokens)
                continue
            if sequence.cache.length == len(sequence.tokens):
                writing.append((sequence, first))
                if sequence.reading:
                    writing.extend((self._branch(sequence, index), first) for index in range(1, sequence.request.n))
            first += 1
        if writing:
            self._write(writing, logits)

    def _branch(self, sequence: _Sequence, index: int) -> _Sequence:
        """Another completion of a prompt that has been read."""
        request = sequence.request
        branch = _Sequence(
            request,
            index,
            sequence.cache.fork(sequence.cache.length),
            list(sequence.tokens),
            _random(request.params.seed, index),
        )
        self._active.append(branch)
        return branch

    def _score(self, sequence: _Sequence, span: Span, logits_TV: Tensor) -> None:
        stop = sequence.cache.length
        following = sequence.tokens[stop - len(span.tokens) + 1 : stop + 1]
        log_softmax = torch.log_softmax(logits_TV[: len(following)], dim=-1)
        index = torch.tensor(following, device=logits_TV.device).unsqueeze(1)
        sequence.request.scores.extend(log_softmax.gather(1, index).squeeze(1).tolist())
        if stop == len(sequence.tokens):
            self._active.remove(sequence)
            sequence.request.answer(sequence.request.scores)

    def _write(self, writing: list[tuple[_Sequence, int]], logits: Tensor) -> None:
        requests = [sequence.request for sequence, _ in writing]
        tokens, logprobs = draw(
            logits[[row for _, row in writing]],
            [request.params.temperature for request in requests],
            [request.params.top_p for request in requests],
            [sequence.random.random() for sequence, _ in writing],
        )
        for (sequence, _), token, logprob in zip(writing, tokens, logprobs, strict=True):
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
            if reason := self._ended(sequence, token):
                self._finish(sequence, reason)

    def _ended(self, sequence: _Sequence, token: int) -> CompletionStop | None:
        request = sequence.request
        if token in self._model.stop_tokens or (request.params.stop and self._completes_stop(sequence, token)):
            return "stop"
        return "length" if len(sequence.logprobs) == request.params.max_tokens else None

    def _completes_stop(self, sequence: _Sequence, token: int) -> bool:
        stop = sequence.request.params.stop
        # A stop string is complete only when its last character arrives, which few tokens bring: ask those alone.
        known = self._completes.setdefault(stop, {})
        if token not in known:
            text = self.tokenizer.decode([token], skip_special_tokens=False)
            known[token] = any(string[-1] in text or not string.isascii() for string in stop)
        if not known[token]:
            return False
        # Each token brings at least one byte of the text.
        window = max(len(string.encode()) for string in stop)
        written = sequence.tokens[len(sequence.request.prompt) :]
        text = self.tokenizer.decode(written[-window:], skip_special_tokens=False)
        return any(string in text for string in stop)

    def _finish(self, sequence: _Sequence, reason: CompletionStop) -> None:
        request = sequence.request
        self._active.remove(sequence)
        self._cache.put(sequence.tokens[: sequence.cache.length], sequence.cache)
        request.completions[sequence.index] = Completion(
            tuple(sequence.tokens[len(request.prompt) :]), tuple(sequence.logprobs), reason
        )
        if len(request.completions) == request.n:
            completions = tuple(request.completions[index] for index in range(request.n))
            usage = Usage(
                prefill=len(request.prompt),  # once: the completions share it
                cached=request.cached,
                sampled=sum(len(completion.tokens) for completion in completions),
            )
            request.answer(Sampled(completions, usage))


def draw(
    logits_BV: Tensor, temperatures_B: Sequence[float], top_ps_B: Sequence[float], uniforms_B: Sequence[float]
) -> tuple[list[int], list[float]]:
    """One token for each row, by inverting its cumulative distribution at a uniform number from [0, 1).

    Returns the tokens and the logprobs they were drawn with, temperature and top-p included.
    """
    device = logits_BV.device
    log_softmax_BV = torch.log_softmax(logits_BV, dim=-1)
    temperature_B1 = torch.tensor(temperatures_B, device=device).unsqueeze(1)
    greedy_B = torch.tensor([temperature == 0 for temperature in temperatures_B], device=device)
    # The best token is at 0 and all others below, so no temperature, however low, can overflow.
    below_best_BV = log_softmax_BV - log_softmax_BV.amax(dim=-1, keepdim=True)
    weights_BV = torch.exp(below_best_BV / temperature_B1.clamp_min(1e-6)).double()
    if min(top_ps_B) < 1:
        weights_BV = _nucleus(weights_BV, torch.tensor(top_ps_B, device=device, dtype=torch.float64).unsqueeze(1))
    cumulative_BV = weights_BV.cumsum(dim=-1)
    total_B1 = cumulative_BV[:, -1:]
    point_B1 = torch.tensor(uniforms_B, device=device, dtype=torch.float64).unsqueeze(1) * total_B1
    # Strictly below the total, or rounding could point behind the last token that has any weight.
    point_B1 = torch.minimum(point_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    drawn_B = torch.searchsorted(cumulative_BV, point_B1, right=True).squeeze(1)
    tokens_B = torch.where(greedy_B, below_best_BV.argmax(dim=-1), drawn_B)
    index_B1 = tokens_B.unsqueeze(1)
    logprobs_B = log_softmax_BV.gather(1, index_B1).squeeze(1)
    as_is_B = (temperature_B1.squeeze(1) == 1) & torch.tensor([top_p == 1 for top_p in top_ps_B], device=device)
    if not bool(as_is_B.all()):
        drawn_with_B = torch.log(weights_BV.gather(1, index_B1) / total_B1).squeeze(1).float()
        logprobs_B = torch.where(as_is_B, logprobs_B, torch.where(greedy_B, 0.0, drawn_with_B))
    return tokens_B.tolist(), logprobs_B.tolist()


def _nucleus(weights_BV: Tensor, top_p_B1: Tensor) -> Tensor:
    """Keep the fewest, heaviest tokens that together reach the share top_p (arXiv 1904.09751)."""
    sorted_BV, order_BV = weights_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV
    kept_BV = sorted_BV * (before_BV < top_p_B1 * sorted_BV.sum(dim=-1, keepdim=True))
    return torch.zeros_like(weights_BV).scatter(1, order_BV, kept_BV)


def _default_cache_bytes(model: Model) -> int:
    if model.device.type == "cuda":
        return torch.cuda.mem_get_info(model.device)[0] // 2
    if not hasattr(os, "sysconf"):  # Windows
        return 2**31
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4

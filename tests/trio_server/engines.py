"""What stands behind the service: the local engine, or a script."""

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from alfworld_rl.types import AdamParams, Completion, Datum, LossSpec, SamplingParams, TrainingStart


@dataclass(frozen=True, slots=True)
class PartResult:
    """Of a part of a batch. `logprobs` are per datum, shape (T,), where the engine tells them."""

    loss_sum: float
    logprobs: list[np.ndarray[Any, Any]] | None = None


class EngineSampler(Protocol):
    def sample(self, prompt: Sequence[int], n: int, params: SamplingParams) -> list[Completion]: ...

    def logprobs(self, tokens: Sequence[int]) -> list[float]: ...


class EngineTrainer(Protocol):
    def forward_backward(self, data: Sequence[Datum], loss: LossSpec, share: float) -> PartResult:
        """Accumulate `share` times the gradient of the mean over these data's trained tokens."""
        ...

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]: ...

    def save(self, kind: str, name: str) -> str:
        """Save; returns what `Engine.sampler` and `Engine.trainer` find it by."""
        ...


class Engine(Protocol):
    def trainer(self, run: str, rank: int, seed: int, source: str | None, restore_optimizer: bool) -> EngineTrainer: ...

    def sampler(self, source: str | None) -> EngineSampler: ...


class LearningEngine:
    """This project's local engine: what is trained through the service really learns.

    - longest_completion: tokens after which a completion ends, whatever was asked for, so that a policy that does
      not know when to stop takes no hours.
    """

    def __init__(self, runs_dir: Path, policy: str = "alfworld-tiny", *, longest_completion: int = 64) -> None:
        from alfworld_rl.backends.local import LocalBackend

        self._open = lambda run: LocalBackend(runs_dir, run_name=run, device="cpu")
        self._policy = policy
        self._longest_completion = longest_completion
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="engine", daemon=True).start()

    def trainer(self, run: str, rank: int, seed: int, source: str | None, restore_optimizer: bool) -> EngineTrainer:
        backend = self._open(run)
        if source is None:
            return _LearningTrainer(backend.trainer(TrainingStart(base_model=self._policy), lora_rank=rank, seed=seed))
        if restore_optimizer:
            return _LearningTrainer(backend.trainer(TrainingStart(state=source), lora_rank=0, seed=0))
        return _LearningTrainer(backend.trainer(TrainingStart(weights=source), lora_rank=0, seed=seed))

    def sampler(self, source: str | None) -> EngineSampler:
        if source is not None and source.startswith("scripted://"):
            source = None  # what a script trained is what it began with
        sampler = self._open("samplers").sampler(self._policy, source)
        return _LearningSampler(sampler, self._loop, self._longest_completion)


class _LearningTrainer:
    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec, share: float) -> PartResult:
        # Every loss of the protocol is linear in the advantage, which can therefore carry the weight of this part
        # of the batch. Cross entropy is cispo with a ratio held at 1 and the token's weight as its advantage.
        if loss.name == "cross_entropy":
            loss = LossSpec("cispo", 1.0, 1.0)
        weighted = [replace(datum, advantages_T=datum.advantages_T * np.float32(share)) for datum in data]
        metrics = self._trainer.forward_backward(weighted, loss)
        return PartResult(metrics["loss_sum"] / share)

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        return dict(self._trainer.optim_step(adam))

    def save(self, kind: str, name: str) -> str:
        save = self._trainer.save_state if kind == "training_state" else self._trainer.save_sampler_weights
        return str(save(name))


class _LearningSampler:
    def __init__(self, sampler: Any, loop: asyncio.AbstractEventLoop, longest: int) -> None:
        self._sampler = sampler
        self._loop = loop
        self._longest = longest

    def sample(self, prompt: Sequence[int], n: int, params: SamplingParams) -> list[Completion]:
        bounded = replace(params, max_tokens=min(params.max_tokens, self._longest))
        sampled = self._run(self._sampler.sample(prompt, bounded, n=n))
        return list(sampled.completions)

    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        return list(self._run(self._sampler.logprobs(tokens)))

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class ScriptedEngine:
    """Writes tool calls by a script, trains nothing, and answers in microseconds.

    With `walkthroughs`, it plays the game whose first observation it finds in the prompt by that game's walkthrough;
    otherwise it looks around. About one trajectory in three first says something that is no tool call, so that
    the trajectories of a group differ in reward.
    """

    def __init__(self, tokenizer_folder: Path, walkthroughs: Mapping[str, Sequence[str]] | None = None) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
        config = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())
        self.eos = self._tokenizer.token_to_id(config["eos_token"])
        self.walkthroughs = {_spaced(text): tuple(commands) for text, commands in (walkthroughs or {}).items()}
        self._plays: dict[bytes, tuple[str, int]] = {}  # hash of prompt and completion -> (game, next command)

    def trainer(self, run: str, rank: int, seed: int, source: str | None, restore_optimizer: bool) -> EngineTrainer:
        return _ScriptedTrainer(run)

    def sampler(self, source: str | None) -> EngineSampler:
        self._plays.clear()
        return self

    def sample(self, prompt: Sequence[int], n: int, params: SamplingParams) -> list[Completion]:
        game, step = self._where(prompt)
        return [self._completion(prompt, game, step, params, index) for index in range(n)]

    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        return [0.0, *(_logprob(token, 0) for token in tokens[1:])]

    def _where(self, prompt: Sequence[int]) -> tuple[str, int]:
        """Which game the prompt plays, and how many commands of its walkthrough have been given."""
        raw = np.asarray(prompt, dtype="<i4")
        for end in np.flatnonzero(raw == self.eos)[::-1][:4] + 1:
            if (play := self._plays.get(_digest(raw[:end]))) is not None:
                return play
        if not self.walkthroughs:
            return "", 0
        text = _spaced(self._tokenizer.decode(list(prompt), skip_special_tokens=False))
        return next((opening for opening in self.walkthroughs if opening in text), ""), 0

    def _completion(
        self, prompt: Sequence[int], game: str, step: int, params: SamplingParams, index: int
    ) -> Completion:
        walkthrough = self.walkthroughs.get(game, ())
        if step == 0 and (params.seed + index) % 3 == 0:
            text, step = "I would rather think about it.", -1
        else:
            command = walkthrough[max(step, 0)] if max(step, 0) < len(walkthrough) else "look"
            text = _tool_call(command)
            step = max(step, 0) + 1
        for stop in params.stop:
            text = text.split(stop)[0] + stop if stop in text else text
        tokens = [*self._tokenizer.encode(text, add_special_tokens=False).ids, self.eos][: params.max_tokens]
        self._plays[_digest(np.asarray([*prompt, *tokens], dtype="<i4"))] = (game, step)
        logprobs = tuple(_logprob(token, params.seed) for token in tokens)
        return Completion(tuple(tokens), logprobs, "stop" if tokens[-1] == self.eos else "length")


class _ScriptedTrainer:
    def __init__(self, run: str) -> None:
        self._run = run

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec, share: float) -> PartResult:
        return PartResult(
            float(sum(-datum.advantages_T[datum.mask_T].sum() for datum in data)),
            [datum.logprobs_T for datum in data],
        )

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        return {"grad_norm": 0.0}

    def save(self, kind: str, name: str) -> str:
        return f"scripted://{self._run}/{kind}/{name}"


def walkthroughs(data_root: Path) -> dict[str, list[str]]:
    """Of every game under a data root: what its first observation says of the room and the task -> commands."""
    from alfworld_rl.world import Game, World

    found = {}
    for path in sorted(data_root.glob("json_2.1.1/*/*/*/game.tw-pddl")):
        game = Game.load(path)
        found[World(game).reset().observation] = list(game.walkthrough)
    return found


def _tool_call(command: str) -> str:
    return (
        f"<tool_call>\n<function=alfworld_step>\n<parameter=action>\n{command}\n</parameter>\n</function>\n</tool_call>"
    )


def _spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _logprob(token: int, seed: int) -> float:
    """Some number below 0 that depends on token and seed and that float32 holds exactly."""
    return -((token * 31 + seed * 17) % 1024 + 1) / 1024


def _digest(tokens: np.ndarray[Any, Any]) -> bytes:
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()

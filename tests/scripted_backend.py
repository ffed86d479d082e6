"""A backend without a model: what it plays and learns is a function of its weights, and its weights are a number.

It keeps checkpoints on the disk as the local one does, so that runs can die and go on. Its weights take in every
token and advantage they were ever trained on: two runs with equal metrics were trained on the same data in the same
order.
"""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent_models import ScriptedSampler, call, qwen_like
from alfworld_rl.backends.base import Checkpoint, CheckpointError
from alfworld_rl.backends.kinds import LOCAL
from alfworld_rl.types import (
    AdamParams,
    Capabilities,
    Completion,
    Datum,
    LossSpec,
    SamplingParams,
    TrainingStart,
)

TOKENIZER = qwen_like()

Player = Callable[[str, int, float], str]


def random_player(prompt: str, seed: int, weights: float) -> str:
    """An admissible command (of two that always are, where none is listed) or, one time in four, rubbish."""
    choice = random.Random(f"{seed}/{weights}")
    lists = re.findall(r"Admissible commands:\n(.*?)(?:<\||\n</tool)", prompt, re.DOTALL)
    listed = lists[-1] if lists else "look\ninventory"
    return call(choice.choice(listed.splitlines())) if choice.random() < 0.75 else "I give up."


class PolicySampler(ScriptedSampler):
    """Writes what `player(text of the prompt, seed of the completion, weights)` says.

    Its logprobs tell its weights: two policies with the same weights agree on every token, others on none.
    """

    def __init__(self, player: Player, weights: float, fail: Callable[[str], Exception | None] | None = None) -> None:
        super().__init__(TOKENIZER, lambda text, number: "")
        self.weights = weights
        self._player = player
        self._fail = fail

    def write(self, text: str, number: int, params: SamplingParams) -> str | Completion | Exception:
        if self._fail is not None and (error := self._fail(text)):
            return error
        return self._player(text, params.seed + number, self.weights)

    def token_logprobs(self, count: int) -> tuple[float, ...]:
        return (-0.5 - self.weights,) * count

    async def logprobs(self, tokens: Sequence[int]) -> list[float]:
        return [0.0] + [-0.5 - self.weights] * (len(tokens) - 1)


class ScriptedTrainer:
    tokenizer = TOKENIZER

    def __init__(self, backend: "ScriptedBackend", weights: float, steps: int) -> None:
        self.backend = backend
        self.weights = weights
        self.steps = steps
        self._gradient = hashlib.sha256()

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec) -> dict[str, float]:
        self.backend.moment("forward_backward")
        for datum in data:
            for array in (datum.tokens_T, datum.targets_T, datum.logprobs_T, datum.advantages_T):
                self._gradient.update(array.tobytes())
        count = float(sum(datum.mask_T.sum() for datum in data))
        value = int.from_bytes(self._gradient.digest()[:4]) / 2**32
        return {"loss_sum": value * count, "loss_mean": value, "token_count": count}

    def optim_step(self, adam: AdamParams) -> dict[str, float]:
        self.backend.moment("optim_step")
        self._gradient.update(repr((self.weights, self.steps, adam)).encode())
        self.weights = int.from_bytes(self._gradient.digest()[:4]) / 2**32
        self.steps += 1
        self._gradient = hashlib.sha256()
        return {"grad_norm": self.weights}

    def sampler(self) -> PolicySampler:
        return PolicySampler(self.backend.player, self.weights, self.backend.fail)

    def save_state(self, name: str) -> str:
        return self.backend.save("training_state", name, {"weights": self.weights, "steps": self.steps})

    def save_sampler_weights(self, name: str) -> str:
        return self.backend.save("sampler_weights", name, {"weights": self.weights})


class ScriptedBackend:
    """`moment` is told of every call that costs something; `fail` may refuse a sampling request.

    `deleted` are the URIs of the checkpoints that were removed through it.
    """

    def __init__(
        self,
        runs_dir: Path,
        run_name: str | None,
        *,
        player: Player = random_player,
        fail: Callable[[str], Exception | None] | None = None,
        moment: Callable[[str], None] = lambda name: None,
        capabilities: Capabilities = LOCAL,
    ) -> None:
        self.runs_dir = runs_dir
        self.run_name = run_name
        self.player = player
        self.fail = fail
        self.moment = moment
        self.closed = False
        self.deleted: list[str] = []
        self._capabilities = capabilities

    def save(self, kind: str, name: str, values: dict[str, float]) -> str:
        self.moment("save")
        folder = self.runs_dir / str(self.run_name) / kind / name
        folder.mkdir(parents=True)  # never twice under one name
        (folder / "checkpoint.json").write_text(json.dumps(values))
        return f"local://{self.run_name}/{kind}/{name}"

    def capabilities(self, base_model: str) -> Capabilities:
        return self._capabilities

    def trainer(self, start: TrainingStart, *, lora_rank: int, seed: int) -> ScriptedTrainer:
        if start.state is not None:
            values = self._load(start.state)
            return ScriptedTrainer(self, values["weights"], values["steps"])
        return ScriptedTrainer(self, self._load(start.weights)["weights"] if start.weights else seed / 1000, 0)

    def sampler(self, base_model: str, weights: str | None = None) -> PolicySampler:
        return PolicySampler(self.player, self._load(weights)["weights"] if weights else 0.0, self.fail)

    def delete(self, uri: str) -> None:
        found = Checkpoint.parse(uri)
        shutil.rmtree(self.runs_dir / found.run / found.kind / found.name, ignore_errors=True)
        self.deleted.append(uri)

    def close(self) -> None:
        self.closed = True

    def _load(self, uri: str) -> dict[str, Any]:
        found = Checkpoint.parse(uri)
        path = self.runs_dir / found.run / found.kind / found.name / "checkpoint.json"
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint {uri}")
        values: dict[str, Any] = json.loads(path.read_text())
        return values


def opener(**options: Any) -> Callable[..., ScriptedBackend]:
    """What to give as `open_backend`; the last backend it opened is its attribute `backend`."""

    def open_backend(config: Any, *, runs_dir: Path, run_name: str | None = None, **_: Any) -> ScriptedBackend:
        backend = ScriptedBackend(runs_dir, run_name, **options)
        open_backend.backend = backend  # type: ignore[attr-defined]
        return backend

    return open_backend

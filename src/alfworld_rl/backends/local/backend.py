"""The engine in this process, behind the same seam as the remote ones."""

import secrets
import shutil
import time
from pathlib import Path

import torch
from peft import PeftModel
from safetensors import SafetensorError

from alfworld_rl.backends.base import BackendError, Checkpoint, CheckpointError, Weights
from alfworld_rl.backends.kinds import LOCAL
from alfworld_rl.backends.local import models
from alfworld_rl.backends.local.checkpoints import RECORD, CheckpointStore, Record
from alfworld_rl.backends.local.engine import LocalSampler
from alfworld_rl.backends.local.trainer import OPTIMIZER, LocalTrainer
from alfworld_rl.types import Capabilities, TrainingStart


class LocalBackend:
    """Trains and samples with torch, on CUDA where there is one, else on the CPU.

    Checkpoints lie under `runs_dir/<run>/` as `local://<run>/<kind>/<name>`. One backend writes one run: `run_name`,
    or a name of its own making that no other run has. It reads the checkpoints of every run under `runs_dir`.

    - micro_batch_tokens: how many tokens one forward and backward pass holds; peak memory grows with it.
    - bfloat16: whether a training pass computes its matrix products in bfloat16.
    - device: a torch device name; None takes CUDA if there is one.
    - cache_bytes: bound on the keys and values that one sampler keeps; None takes a quarter of the memory.
    """

    def __init__(
        self,
        runs_dir: Path,
        *,
        run_name: str | None = None,
        micro_batch_tokens: int = 8192,
        bfloat16: bool = False,
        device: str | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        if micro_batch_tokens < 1:
            raise BackendError(f"micro_batch_tokens is {micro_batch_tokens}; give a positive number of tokens")
        self.run_name = run_name or f"local-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        self._store = CheckpointStore(runs_dir)
        self._micro_batch_tokens = micro_batch_tokens
        self._bfloat16 = bfloat16
        self._cache_bytes = cache_bytes
        try:
            self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
            torch.empty(0, device=self._device)
        except (RuntimeError, AssertionError) as error:
            raise BackendError(f"torch cannot use the device {device!r} here; use 'cpu' or leave it out") from error

    def capabilities(self, base_model: str) -> Capabilities:
        """See `base.Backend`."""
        return LOCAL

    def trainer(self, start: TrainingStart, *, lora_rank: int, seed: int) -> LocalTrainer:
        """See `base.Backend`."""
        if start.state is not None:
            return self._resumed(start.state)
        if start.weights is not None:
            return self._started_from(start.weights, seed)
        return self._new_trainer(str(start.base_model), lora_rank, seed)

    def _new_trainer(self, base_model: str, lora_rank: int, seed: int) -> LocalTrainer:
        """A run from the base model's weights: an adapter of rank `lora_rank`, or with 0 all weights."""
        if lora_rank < 0:
            raise BackendError(f"lora_rank is {lora_rank}; give a rank from 1 up, or 0 to train all weights")
        model = models.load(base_model, self._device, float32=lora_rank == 0)
        if lora_rank:
            adapter = models.add_lora(model, rank=lora_rank, seed=seed)
        else:
            adapter = None
            model.module.requires_grad_(True)
        return self._trainer(model, adapter, Record(base_model, lora_rank, seed, 0))

    def _resumed(self, state_uri: str) -> LocalTrainer:
        checkpoint = self._store.parse(state_uri)
        if checkpoint.kind != "training_state":
            raise CheckpointError(
                f"{state_uri} holds weights without an optimizer; resume from the run's training_state URI, "
                "or start a new run from these weights"
            )
        folder, record = self._store.open(checkpoint)
        trainer = self._trainer(*self._restored(checkpoint, folder, record, trainable=True), record)
        try:
            trainer.restore_optimizer(folder)
        except (OSError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"the optimizer state of {state_uri} in {folder} is damaged; use another") from error
        return trainer

    def _started_from(self, uri: str, seed: int) -> LocalTrainer:
        checkpoint = self._store.parse(uri)
        folder, record = self._store.open(checkpoint)
        started = Record(record.base_model, record.lora_rank, seed, 0)
        return self._trainer(*self._restored(checkpoint, folder, record, trainable=True), started)

    def sampler(self, base_model: str, weights: str | None = None) -> LocalSampler:
        """See `base.Backend`."""
        if weights is None:
            return LocalSampler(models.load(base_model, self._device, float32=False), cache_bytes=self._cache_bytes)
        checkpoint = self._store.parse(weights)
        if checkpoint.kind == "training_state":
            raise CheckpointError(
                f"{weights} is a training state, for going on with training; to sample, use the URI printed as "
                f"'Saved sampler weights', like {Checkpoint('local', checkpoint.run, 'sampler_weights', 'NAME')}"
            )
        folder, record = self._store.open(checkpoint)
        if record.base_model != base_model:
            raise CheckpointError(
                f"{weights} was trained from {record.base_model}, not from {base_model}; "
                f"give --base-model {record.base_model}"
            )
        model, _ = self._restored(checkpoint, folder, record, trainable=False)
        return LocalSampler(model, cache_bytes=self._cache_bytes)

    def delete(self, uri: str) -> None:
        """Remove a checkpoint under `runs_dir`."""
        self._store.delete(self._store.parse(uri))

    def download(self, uri: str, folder: Path) -> Weights:
        """See `base.WeightsSource`."""
        saved, record = self._store.open(self._store.parse(uri))
        for path in saved.iterdir():
            if path.name not in (RECORD, OPTIMIZER):
                shutil.copy(path, folder)
        return Weights(record.base_model, record.lora_rank)

    def close(self) -> None:
        """Nothing is held beyond the trainers and samplers themselves."""

    def _restored(
        self, checkpoint: Checkpoint, folder: Path, record: Record, *, trainable: bool
    ) -> tuple[models.Model, PeftModel | None]:
        model = models.load(record.base_model, self._device, float32=record.lora_rank == 0)
        try:
            if record.lora_rank:
                return model, models.load_lora(model, folder, trainable=trainable)
            models.load_weights(model, folder)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise CheckpointError(
                f"the checkpoint {checkpoint} in {folder} is damaged ({type(error).__name__}); use another"
            ) from error
        model.module.requires_grad_(trainable)
        return model, None

    def _trainer(self, model: models.Model, adapter: PeftModel | None, record: Record) -> LocalTrainer:
        return LocalTrainer(
            model,
            adapter,
            record,
            store=self._store,
            run=self.run_name,
            micro_batch_tokens=self._micro_batch_tokens,
            bfloat16=self._bfloat16,
            cache_bytes=self._cache_bytes,
        )

"""Gradients and optimizer steps in this process."""

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from alfworld_rl.backends.base import BackendError, Checkpoint
from alfworld_rl.backends.batch import total_weight, trained_tokens
from alfworld_rl.backends.local.checkpoints import SCHEME, CheckpointStore, Record
from alfworld_rl.backends.local.engine import LocalSampler
from alfworld_rl.backends.local.losses import token_losses
from alfworld_rl.backends.local.models import Model
from alfworld_rl.backends.local.packed import Span
from alfworld_rl.types import AdamParams, Datum, LossSpec, Metrics, Tokenizer

OPTIMIZER = "optimizer.safetensors"


class LocalTrainer:
    """Trains the weights of `model` that require a gradient (an adapter's, or all).

    Several `forward_backward` calls before one `optim_step` add up: the step sees the sum of the calls' gradients,
    each call's being that of the mean over its own masked tokens. With `bfloat16` the matrix products of a training
    pass are rounded to that (torch.autocast); weights, optimizer and sampling stay as they are.
    """

    def __init__(
        self,
        model: Model,
        adapter: PeftModel | None,
        record: Record,
        *,
        store: CheckpointStore,
        run: str,
        micro_batch_tokens: int,
        bfloat16: bool,
        cache_bytes: int | None,
    ) -> None:
        self._model = model
        self._device: torch.device = model.device
        self._adapter = adapter
        self._record = record
        self._store = store
        self._run = run
        self._micro_batch_tokens = micro_batch_tokens
        self._cache_bytes = cache_bytes
        self._bfloat16 = bfloat16
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._weights: dict[str, torch.nn.Parameter] = {
            name: weight for name, weight in model.module.named_parameters() if weight.requires_grad
        }
        self._adam = torch.optim.AdamW(self._weights.values())
        self._steps = record.optimizer_steps

    @property
    def tokenizer(self) -> Tokenizer:
        return self._model.tokenizer

    @property
    def weights(self) -> Mapping[str, torch.nn.Parameter]:
        """The weights under training, by name; `.grad` is the gradient accumulated since the last step."""
        return self._weights

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec) -> Metrics:
        """Accumulate the gradient of `loss` over `data`, by micro-batches whose sum it exactly is.

        On a CPU they are computed side by side, a thread each, which is faster than sharing out every small operation;
        those in flight together hold no more tokens than one may.

        Besides the protocol's metrics: `entropy` of the model at the trained positions (nats), `micro_batches`,
        and `peak_memory_mb` of the call (of the device if there is one, else of the process).
        """
        data = [_without_tail(datum) for datum in data if datum.mask_T.any()]
        trained, weight = trained_tokens(data), total_weight(data, loss)
        sums = torch.zeros(4, dtype=torch.float64)
        _reset_peak_memory(self._device)
        workers = self._workers(data)
        batches = _micro_batches(data, workers, self._micro_batch_tokens)
        one = partial(self._micro_batch, loss=loss, weight=weight)
        for gradients, batch_sums in self._pool(workers).map(one, batches) if workers > 1 else map(one, batches):
            sums += batch_sums
            for parameter, gradient in zip(self._weights.values(), gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        loss_sum, clipped, kl, entropy = sums.tolist()
        metrics = {
            "loss_sum": loss_sum,
            "loss_mean": loss_sum / weight,
            "token_count": float(trained),
            "entropy": entropy / trained,
            "micro_batches": float(len(batches)),
            "peak_memory_mb": _peak_memory_mb(self._device),
        }
        if loss.name != "cross_entropy":
            metrics |= {"clip_fraction": clipped / trained, "approx_kl": kl / trained}
        return metrics

    def _micro_batch(
        self, batch: Sequence[Datum], loss: LossSpec, weight: float
    ) -> tuple[Sequence[torch.Tensor | None], torch.Tensor]:
        """The gradients of the weights, and over the trained tokens the sums (4,) of loss, clipped, KL and entropy."""
        mask_N = np.concatenate([datum.mask_T for datum in batch])
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bfloat16):
            logits = self._model.forward(
                [Span(datum.tokens_T.tolist()) for datum in batch],
                np.flatnonzero(mask_N).tolist(),
            )
        log_softmax = torch.log_softmax(logits.float(), dim=-1)
        targets_K = self._masked(batch, "targets_T", mask_N).long()
        logprobs_K = log_softmax.gather(1, targets_K.unsqueeze(1)).squeeze(1)
        sampling_logprobs_K = self._masked(batch, "logprobs_T", mask_N)
        per_token = token_losses(loss, logprobs_K, sampling_logprobs_K, self._masked(batch, "advantages_T", mask_N))
        total = per_token.losses_K.sum() / weight
        gradients = torch.autograd.grad(total, list(self._weights.values()), allow_unused=True)
        with torch.no_grad():
            log_ratio_K = logprobs_K - sampling_logprobs_K
            sums = torch.stack(
                [
                    per_token.losses_K.double().sum(),
                    per_token.clipped_K.double().sum(),
                    # An unbiased, never negative estimate of KL(sampling || current): r - 1 - log r
                    # (http://joschu.net/blog/kl-approx.html)
                    (torch.expm1(log_ratio_K) - log_ratio_K).double().sum(),
                    -(log_softmax.exp() * log_softmax).sum(-1).double().sum(),
                ]
            )
        return gradients, sums.cpu()

    def _workers(self, data: Sequence[Datum]) -> int:
        """How many micro-batches to compute at once, each of them with room for the longest sequence."""
        if self._device.type != "cpu":
            return 1
        return max(1, min(torch.get_num_threads(), self._micro_batch_tokens // max(len(one.tokens_T) for one in data)))

    def _pool(self, workers: int) -> ThreadPoolExecutor:
        """Threads are kept, since the first pass of a new one is slow."""
        if workers not in self._pools:
            threads = torch.get_num_threads() // workers
            self._pools[workers] = ThreadPoolExecutor(workers, "trainer", torch.set_num_threads, (threads,))
        return self._pools[workers]

    def optim_step(self, adam: AdamParams) -> Metrics:
        """One AdamW step (decoupled weight decay, arXiv 1711.05101). Returns `grad_norm`, from before clipping."""
        if all(weight.grad is None for weight in self._weights.values()):
            raise BackendError("optim_step has no gradient to apply; call forward_backward first")
        bound = adam.grad_clip_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self._weights.values(), bound)
        if not torch.isfinite(norm):
            self._adam.zero_grad(set_to_none=True)
            raise BackendError(
                "the gradient is not finite, so the step was left out; look for infinite advantages, "
                "or go on from the last state with a lower learning rate"
            )
        for group in self._adam.param_groups:
            group |= {
                "lr": adam.learning_rate,
                "betas": (adam.beta1, adam.beta2),
                "eps": adam.eps,
                "weight_decay": adam.weight_decay,
            }
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self._steps += 1
        return {"grad_norm": float(norm)}

    def sampler(self) -> LocalSampler:
        return LocalSampler(self._model.snapshot(), cache_bytes=self._cache_bytes)

    def save_state(self, name: str) -> str:
        """Weights and optimizer, all that later steps depend on: training draws no random numbers.

        A gradient accumulated since the last step is not part of the state.
        """
        checkpoint = Checkpoint(SCHEME, self._run, "training_state", name)
        with self._store.writing(checkpoint, self._now()) as folder:
            self._save_weights(folder)
            save_file(self._moments(), folder / OPTIMIZER)
        return str(checkpoint)

    def save_sampler_weights(self, name: str) -> str:
        checkpoint = Checkpoint(SCHEME, self._run, "sampler_weights", name)
        with self._store.writing(checkpoint, self._now()) as folder:
            self._save_weights(folder)
        return str(checkpoint)

    def restore_optimizer(self, folder: Path) -> None:
        """Take the moments that `save_state` left in `folder`."""
        moments = load_file(folder / OPTIMIZER)
        for name, weight in self._weights.items():
            if f"{name}/exp_avg" in moments:
                self._adam.state[weight] = {
                    "step": torch.tensor(float(self._steps)),
                    "exp_avg": moments[f"{name}/exp_avg"].to(weight.device),
                    "exp_avg_sq": moments[f"{name}/exp_avg_sq"].to(weight.device),
                }

    def _now(self) -> Record:
        return Record(self._record.base_model, self._record.lora_rank, self._record.seed, self._steps)

    def _moments(self) -> dict[str, torch.Tensor]:
        return {
            f"{name}/{moment}": self._adam.state[weight][moment]
            for name, weight in self._weights.items()
            if weight in self._adam.state
            for moment in ("exp_avg", "exp_avg_sq")
        }

    def _save_weights(self, folder: Path) -> None:
        if self._adapter is not None:
            self._adapter.save_pretrained(folder)
        else:
            self._model.module.save_pretrained(folder)
            self._model.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]

    def _masked(self, batch: Sequence[Datum], name: str, mask_N: np.ndarray) -> torch.Tensor:
        values_N = np.concatenate([getattr(datum, name) for datum in batch])
        return torch.from_numpy(values_N[mask_N]).to(self._device)


def _without_tail(datum: Datum) -> Datum:
    """Nothing behind the last trained position can change the loss."""
    stop = int(np.flatnonzero(datum.mask_T)[-1]) + 1
    return Datum(
        datum.tokens_T[:stop],
        datum.targets_T[:stop],
        datum.mask_T[:stop],
        datum.logprobs_T[:stop],
        datum.advantages_T[:stop],
    )


def _micro_batches(data: Sequence[Datum], workers: int, budget: int) -> list[list[Datum]]:
    """Rows of at most `budget` / `workers` tokens, longest sequence first, each into the row with most room left.

    A sequence longer than that has a row to itself.
    """
    rows: list[list[Datum]] = [[] for _ in range(workers)]
    used = [0] * workers
    for datum in sorted(data, key=lambda datum: len(datum.tokens_T), reverse=True):
        length = len(datum.tokens_T)
        index = min(range(len(rows)), key=used.__getitem__)
        if used[index] and used[index] + length > budget // workers:
            index = len(rows)
            rows.append([])
            used.append(0)
        rows[index].append(datum)
        used[index] += length
    return [row for row in rows if row]


def _reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # Linux: let the high-water mark start again from what is resident now
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory_mb(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    except (OSError, IndexError):
        import resource  # not on Windows; elsewhere, the mark of the process's whole life has to do

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

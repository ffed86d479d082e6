"""Trained tokens per second and peak memory of the local trainer against a plain padded batch.

    uv run --group test python benchmarks/training.py

Both take the gradient of one cross-entropy batch of the built-in policy over sequences whose lengths and shares of
trained tokens are those of episodes. The rival is what one would write with transformers alone: batches of eight,
padded on the right, logits at every position.

Claims: faster than the rival, the same gradient to 1e-5, no padding, and memory that follows the token budget.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from alfworld_rl.backends.local import LocalBackend, builtin
from alfworld_rl.types import Datum, LossSpec, TrainingStart

RIVAL_BATCH = 8


def episodes(count: int, vocabulary: int, seed: int) -> list[Datum]:
    """Random tokens in the shape of episodes: 300 to 3,000 tokens, a turn of 18 in every 120 written by the model."""
    random = np.random.default_rng(seed)
    data = []
    for length in np.exp(random.uniform(np.log(300), np.log(3000), count)).astype(int):
        row = random.integers(0, vocabulary, length + 1, dtype=np.int32)
        mask = np.arange(length) % 120 >= 102
        data.append(Datum(row[:-1], row[1:], mask, np.zeros(length, np.float32), mask.astype(np.float32)))
    return data


def padded(model: torch.nn.Module, data: Sequence[Datum]) -> None:
    """The rival's forward and backward passes."""
    trained = sum(int(datum.mask_T.sum()) for datum in data)
    for start in range(0, len(data), RIVAL_BATCH):
        batch = data[start : start + RIVAL_BATCH]
        longest = max(len(datum.tokens_T) for datum in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        attention = torch.zeros_like(ids)
        labels = torch.full_like(ids, -100)
        for row, datum in enumerate(batch):
            length = len(datum.tokens_T)
            ids[row, :length] = torch.from_numpy(datum.tokens_T)
            attention[row, :length] = 1
            labels[row, :length] = torch.from_numpy(np.where(datum.mask_T, datum.targets_T, -100))
        logits = model(ids, attention_mask=attention, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        (loss / trained).backward()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-model", default="alfworld-tiny")
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--budgets", type=int, nargs="+", default=[2048, 8192, 32768], help="--micro-batch-tokens")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--short", action="store_true", help="the smallest run: does it still work? No speed is judged")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.episodes, arguments.budgets = 2, [1024, 8192]
    torch.set_num_threads(arguments.threads)

    source = builtin.path(arguments.base_model) if arguments.base_model in builtin.NAMES else arguments.base_model
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    data = episodes(arguments.episodes, model.config.vocab_size, seed=0)
    tokens = sum(len(datum.tokens_T) for datum in data)

    fastest, worst, memory = 0.0, 0.0, []
    gradients: dict[str, torch.Tensor] = {}
    for budget in arguments.budgets:
        with tempfile.TemporaryDirectory() as runs:
            backend = LocalBackend(Path(runs), device="cpu", micro_batch_tokens=budget)
            trainer = backend.trainer(TrainingStart(base_model=arguments.base_model), lora_rank=0, seed=0)
        start = time.perf_counter()
        metrics = trainer.forward_backward(data, LossSpec("cross_entropy"))
        speed = tokens / (time.perf_counter() - start)
        fastest = max(fastest, speed)
        memory.append(metrics["peak_memory_mb"])
        print(
            f"trainer, {budget} tokens a micro-batch: {speed:.0f} tokens/s, "
            f"{metrics['micro_batches']:.0f} micro-batches, peak {metrics['peak_memory_mb']:.0f} MB"
        )
        found = {name: weight.grad for name, weight in trainer.weights.items() if weight.grad is not None}
        gradients = gradients or found
        worst = max(worst, *(float((found[name] - gradients[name]).abs().max()) for name in found))

    start = time.perf_counter()
    padded(model, data)
    theirs = tokens / (time.perf_counter() - start)
    difference = max(
        float((weight.grad - gradients[name]).abs().max())
        for name, weight in model.named_parameters()
        if name in gradients
    )
    print(f"padded transformers, batches of {RIVAL_BATCH}: {theirs:.0f} tokens/s")
    print(
        f"ratio: {fastest / theirs:.2f}; gradients differ by at most {worst:.1e} between budgets and "
        f"{difference:.1e} from the rival's (claim: 1e-5)"
    )
    same = max(worst, difference) <= 1e-5
    return 0 if same and (arguments.short or (fastest > theirs and memory == sorted(memory))) else 1


if __name__ == "__main__":
    sys.exit(main())

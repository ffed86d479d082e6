"""The local backend on CUDA against the same code on the CPU: do they agree, and how fast is it?

    uv run --group test python benchmarks/gpu.py

Takes under 5 minutes with the built-in policy. Without a GPU it says so and exits with 0, since nothing is wrong.

Claims, in float32: logprobs agree to 1e-4, greedy completions are the same, gradients agree to 1e-5.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from alfworld_rl.backends.local import LocalBackend, LocalSampler
from alfworld_rl.types import Completion, Datum, LossSpec, SamplingParams, TrainingStart


def prompts(count: int, vocabulary: int) -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(0, vocabulary, int(random.integers(200, 1500))).tolist() for _ in range(count)]


async def play(
    sampler: LocalSampler, asked: list[list[int]], temperature: float, max_tokens: int
) -> tuple[list[Completion], float]:
    """A completion of every prompt, and sampled tokens per second."""
    start = time.perf_counter()
    answers = await asyncio.gather(
        *(
            sampler.sample(prompt, SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed))
            for seed, prompt in enumerate(asked)
        )
    )
    completions = [answer.completions[0] for answer in answers]
    return completions, sum(len(completion.tokens) for completion in completions) / (time.perf_counter() - start)


def data_of(asked: list[list[int]], completions: list[Completion]) -> list[Datum]:
    data = []
    for index, (prompt, completion) in enumerate(zip(asked, completions, strict=True)):
        row = np.array([*prompt, *completion.tokens], dtype=np.int32)
        mask = np.arange(len(row) - 1) >= len(prompt) - 1
        logprobs = np.zeros(len(row) - 1, dtype=np.float32)
        logprobs[mask] = completion.logprobs
        data.append(Datum(row[:-1], row[1:], mask, logprobs, mask * np.float32(1 - index % 3)))
    return data


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-model", default="alfworld-tiny")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--short", action="store_true", help="the smallest run: does it still work?")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.prompts, arguments.max_tokens = 8, 8
    if not torch.cuda.is_available():
        print("torch finds no CUDA device here; run this on a machine with one (nothing was checked)")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False

    with tempfile.TemporaryDirectory() as runs:
        start = TrainingStart(base_model=arguments.base_model)
        trainers = {
            device: LocalBackend(Path(runs), device=device).trainer(start, lora_rank=0, seed=0)
            for device in ("cpu", "cuda")
        }
    samplers = {device: trainer.sampler() for device, trainer in trainers.items()}
    vocabulary = len(samplers["cpu"].tokenizer)  # type: ignore[arg-type]
    asked = prompts(arguments.prompts, vocabulary)
    few = asked[:8]
    greedy = {device: asyncio.run(play(sampler, few, 0.0, 24))[0] for device, sampler in samplers.items()}
    same = sum(a.tokens == b.tokens for a, b in zip(greedy["cpu"], greedy["cuda"], strict=True))
    scores = {device: [asyncio.run(sampler.logprobs(one)) for one in few] for device, sampler in samplers.items()}
    apart = max(abs(a - b) for one, two in zip(*scores.values(), strict=True) for a, b in zip(one, two, strict=True))

    completions, speed = asyncio.run(play(samplers["cuda"], asked, 1.0, arguments.max_tokens))
    data = data_of(asked, completions)
    tokens = sum(len(datum.tokens_T) for datum in data)
    trainers["cuda"].forward_backward(data, LossSpec("ppo"))  # first use compiles and allocates
    for weight in trainers["cuda"].weights.values():
        weight.grad = None
    began = time.perf_counter()
    metrics = trainers["cuda"].forward_backward(data, LossSpec("ppo"))
    seconds = time.perf_counter() - began
    few_data = data[:8]
    for trainer in trainers.values():
        for weight in trainer.weights.values():
            weight.grad = None
        trainer.forward_backward(few_data, LossSpec("ppo"))
    gradient = max(
        float((weight.grad.cpu() - trainers["cpu"].weights[name].grad).abs().max())  # type: ignore[union-attr,operator]
        for name, weight in trainers["cuda"].weights.items()
        if weight.grad is not None
    )
    print(f"{torch.cuda.get_device_name()}: {speed:.0f} tokens/s sampled, {tokens / seconds:.0f} tokens/s trained")
    print(
        f"logprobs differ by at most {apart:.1e} (claim: 1e-4), gradients by {gradient:.1e} (claim: 1e-5), "
        f"{same} of {len(few)} greedy completions are the same, approx_kl {metrics['approx_kl']:.1e}"
    )
    return 0 if apart <= 1e-4 and gradient <= 1e-5 and same == len(few) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Any causal language model of transformers: those that fit in one row, and those that are run one by one."""

import asyncio
from pathlib import Path

import pytest
import torch
from local_data import datum, save_small
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen3_5TextConfig,
)

from alfworld_rl.backends.local import LocalBackend
from alfworld_rl.backends.local.models import load
from alfworld_rl.types import AdamParams, LossSpec, SamplingParams, TrainingStart

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
}
HYBRID = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}


@pytest.mark.parametrize(
    ("config", "packs"),
    [
        (LlamaConfig(**SHAPE), True),
        (GPT2Config(n_embd=32, n_layer=2, n_head=4, initializer_range=0.3), True),
        (MistralConfig(**SHAPE, sliding_window=16), False),
        (Gemma3TextConfig(**SHAPE, sliding_window=16), False),
        (Qwen3_5TextConfig(**SHAPE | HYBRID), False),
    ],
    ids=lambda value: value.model_type if isinstance(value, PretrainedConfig) else "",
)
def test_sampling_and_training_agree_with_transformers(tmp_path: Path, config: PretrainedConfig, packs: bool) -> None:
    folder = str(tmp_path / "model")
    save_small(Path(folder), config)
    assert load(folder, torch.device("cpu"), float32=True).packs == packs
    trainer = LocalBackend(tmp_path, micro_batch_tokens=100).trainer(
        TrainingStart(base_model=folder), lora_rank=2, seed=0
    )
    sampler = trainer.sampler()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    async def play() -> None:
        prompt = [index * 5 % 40 for index in range(60)]
        with torch.no_grad():
            logits = reference(torch.tensor([prompt])).logits[0, :-1]
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(prompt[1:]).unsqueeze(1)).squeeze(1)
        assert await sampler.logprobs(prompt) == pytest.approx([0.0, *expected.tolist()], abs=1e-4)

        first = await sampler.sample(prompt, SamplingParams(max_tokens=6, seed=1), n=2)
        contexts = [[*prompt, *completion.tokens, 7, 8, 9] for completion in first.completions]
        seconds = await asyncio.gather(
            *(sampler.sample(context, SamplingParams(max_tokens=6, seed=2)) for context in contexts)
        )
        assert [second.usage.cached for second in seconds] == [
            len(prompt) + len(completion.tokens) - 1 for completion in first.completions
        ]
        data = [datum(prompt, completion, 1.0) for completion in first.completions]
        data += [datum(context, second.completions[0], -1.0) for context, second in zip(contexts, seconds, strict=True)]
        metrics = trainer.forward_backward(data, LossSpec("ppo"))
        assert metrics["approx_kl"] < 1e-9
        assert trainer.optim_step(AdamParams(learning_rate=0.01))["grad_norm"] > 0

    asyncio.run(play())

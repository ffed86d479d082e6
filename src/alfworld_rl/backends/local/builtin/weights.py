"""The architecture of the built-in policy, and weights to begin learning from."""

import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def new_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """A narrow Qwen3: small heads and many of them, since copying and comparing instances is what they are for.

    With so large a base of the rotary embedding most of a head's dimensions hardly turn within an episode, so that
    an instance is recognised at any distance.
    """
    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        dtype="float32",
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=32,
        max_position_embeddings=16384,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def new_model(tokenizer: PreTrainedTokenizerFast, config: Qwen3Config, seed: int) -> Qwen3ForCausalLM:
    """Random weights, the same for the same seed, that know nothing of any game.

    Two things that a model of this size takes long to find out are there from the start. A token's embedding is the
    sum of random vectors for the words and numbers in its text and of one of its own, so "cabinet 3" begins near
    "cabinet" and near every other "3". And attention begins as in mimetic initialization (arXiv 2305.09828): heads
    look for what resembles the present token and pass on what they find, each in its own random directions.
    """
    generator = torch.Generator().manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    width = config.hidden_size
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() == 2:
                # What is added to the residual stream begins small, so that depth does not add up.
                shrink = (2 * config.num_hidden_layers) ** -0.5 if name.endswith("down_proj.weight") else 1
                weight.normal_(0, shrink * weight.shape[1] ** -0.5, generator=generator)
        for layer in model.model.layers:
            attention = layer.self_attn
            alike = _rotation(width, generator)
            for projection in (attention.q_proj, attention.k_proj):
                noise = torch.randn(width, width, generator=generator) * width**-0.5
                projection.weight.copy_(0.7 * alike + 0.3 * noise)
            passed_on = _rotation(width, generator)
            attention.v_proj.weight.copy_(passed_on)
            attention.o_proj.weight.copy_(0.5 * passed_on.T)
        words: dict[str, torch.Tensor] = {}
        for index in range(len(tokenizer)):
            parts = re.findall(r"[a-z]+|[0-9]+", tokenizer.decode([index]).lower())
            for part in parts:
                if part not in words:
                    words[part] = torch.randn(width, generator=generator)
            own = torch.randn(width, generator=generator)
            mean = sum((words[part] for part in parts), torch.zeros(width)) / max(len(parts), 1) ** 0.5
            model.model.embed_tokens.weight[index] = config.initializer_range * (mean + own * (0.5 if parts else 1))
    model.tie_weights()
    return model


def _rotation(width: int, generator: torch.Generator) -> torch.Tensor:
    rotation: torch.Tensor = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    return rotation


def save_model(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Write config.json and model.safetensors. Half precision halves the package; the model computes in float32."""
    tensors = {
        name: tensor.detach().to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    path = folder / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors lets nobody else read it, and an installed package has other readers
    model.config.save_pretrained(folder)

"""A randomly initialised small Qwen3 with a character tokenizer: everything but the wits of a real model."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CHARACTERS = "abcdefghijklmnopqrstuvwxyz <>/=_.,0123456789\n"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "small"
    save_small_qwen3(folder)
    return str(folder)


def save_small_qwen3(folder: Path, **overrides: object) -> None:
    vocabulary = {character: index for index, character in enumerate(CHARACTERS)} | {"<|im_end|>": len(CHARACTERS)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    options = {
        "vocab_size": len(vocabulary),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "eos_token_id": len(CHARACTERS),
        "bos_token_id": None,
        "initializer_range": 0.3,
    }
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**options | overrides))
    model.generation_config.eos_token_id = [len(CHARACTERS)]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

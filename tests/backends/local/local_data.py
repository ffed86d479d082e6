"""Small models with a character tokenizer, and training data made of completions as the learner makes it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerFast, Qwen3Config

from alfworld_rl.types import Completion, Datum

CHARACTERS = "abcdefghijklmnopqrstuvwxyz <>/=_.,0123456789\n"


def save_small_qwen3(folder: Path) -> None:
    save_small(
        folder,
        Qwen3Config(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            tie_word_embeddings=True,
            initializer_range=0.3,
        ),
    )


def save_small(folder: Path, config: PretrainedConfig) -> None:
    """A random model of `config`, but for its vocabulary, which is the character tokenizer's."""
    vocabulary = {character: index for index, character in enumerate(CHARACTERS)}
    end = len(vocabulary)
    backend = Tokenizer(models.BPE(vocab=vocabulary | {"<|im_end|>": end}, merges=[]))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<|im_end|>"])
    config.vocab_size = end + 1
    config.eos_token_id = end
    config.bos_token_id = config.pad_token_id = None
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = [end]
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>").save_pretrained(folder)


def datum(prompt: Sequence[int], completion: Completion, advantage: float) -> Datum:
    return datum_of(prompt, completion.tokens, completion.logprobs, [advantage] * len(completion.tokens))


def datum_of(
    prompt: Sequence[int], written: Sequence[int], logprobs: Sequence[float], advantages: Sequence[float]
) -> Datum:
    row = [*prompt, *written]
    unmasked = len(prompt) - 1
    return Datum(
        np.array(row[:-1], dtype=np.int32),
        np.array(row[1:], dtype=np.int32),
        np.array([False] * unmasked + [True] * len(written)),
        np.array([0.0] * unmasked + [*logprobs], dtype=np.float32),
        np.array([0.0] * unmasked + [*advantages], dtype=np.float32),
    )

"""Base models: found by name, loaded with transformers, made trainable with PEFT."""

import contextlib
import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from alfworld_rl.backends.base import BaseModelError
from alfworld_rl.backends.local import builtin, packed, sequential
from alfworld_rl.backends.local.packed import KVCache, Past, Span
from alfworld_rl.backends.local.sequential import StateCache
from alfworld_rl.types import Tokenizer

# Fixed at 32, so that PEFT scales an adapter by 32 / rank and one learning rate suits all ranks: "LoRA Without
# Regret" (Schulman et al., Thinking Machines, 2025).
_LORA_ALPHA = 32


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A causal language model with its tokenizer and the tokens that end a message."""

    name: str
    module: Any
    tokenizer: Tokenizer
    stop_tokens: frozenset[int]
    packs: bool

    def forward(self, spans: Sequence[Span], keep: Sequence[int]) -> Tensor:
        """Logits (len(keep), vocabulary) at the positions `keep`, counted through all spans; caches grow."""
        logits: Tensor = (packed if self.packs else sequential).forward(self.module, spans, keep)
        return logits

    def new_cache(self) -> Past:
        return KVCache() if self.packs else StateCache(self.module.config)

    @property
    def device(self) -> torch.device:
        return torch.device(self.module.device)

    @property
    def vocabulary(self) -> int:
        return int(self.module.get_input_embeddings().weight.shape[0])

    def snapshot(self) -> "Model":
        """The model as it is now. Frozen weights are shared, since nothing changes them; the others are copied."""
        shared = {id(weight): weight for weight in self.module.parameters() if not weight.requires_grad}
        module = copy.deepcopy(self.module, shared)
        for weight in module.parameters():
            weight.grad = None
        return replace(self, module=module.requires_grad_(False))


def load(name: str, device: torch.device, *, float32: bool) -> Model:
    """The base model `name`: a built-in policy, a folder, or a model of the hub; the hub is asked last.

    With `float32` it computes in that; otherwise, where there is a GPU, in the precision it was published in.
    Raises BaseModelError when there is none that can be used.
    """
    source = _folder(name)
    try:
        config = _config(source)
        tokenizer = AutoTokenizer.from_pretrained(source)
        dtype = torch.float32 if float32 or device.type == "cpu" else "auto"
        module = AutoModelForCausalLM.from_pretrained(source, config=config, dtype=dtype)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise BaseModelError(
            f"the base model {name!r} could not be loaded ({reason}); give the folder of a causal language model, "
            f"a model of the hub that this machine can reach, or {' or '.join(builtin.NAMES)}"
        ) from error
    stops = {tokenizer.eos_token_id}
    generation = module.generation_config.eos_token_id if module.generation_config else None
    stops.update(generation if isinstance(generation, list) else [generation])
    module.to(device).eval().requires_grad_(False)  # no dropout: the trainer must see the sampler's own distribution
    return Model(name, module, tokenizer, frozenset(stops - {None}), packed.fits(module))


def _config(source: str) -> Any:
    try:
        return AutoConfig.from_pretrained(source, local_files_only=True)
    except OSError:
        if Path(source).is_dir():
            raise
        # transformers would try an unreachable hub again and again; this asks once whether the model is there.
        try:
            HfApi().model_info(source, timeout=10)
        except Exception as error:  # of whatever HTTP library the hub's client is built on
            raise OSError(f"there is no such folder, and the hub says: {error}") from error
        return AutoConfig.from_pretrained(source)


def _folder(name: str) -> str:
    if name in builtin.NAMES:
        return str(builtin.path(name))
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise BaseModelError(f"the base model folder {name} holds no config.json; give a folder of save_pretrained")
    if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") != 1):
        raise BaseModelError(
            f"there is no base model {name!r}: no such folder, and hub models are named OWNER/NAME; "
            f"the built-in ones are {' and '.join(builtin.NAMES)}"
        )
    return name


def add_lora(model: Model, *, rank: int, seed: int) -> PeftModel:
    """Put a fresh adapter into `model` (in place; its output does not change yet) and leave only it trainable."""
    with torch.random.fork_rng(), _peft_quietly():
        torch.manual_seed(seed)
        config = LoraConfig(r=rank, lora_alpha=_LORA_ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(model.module, config)


def load_weights(model: Model, folder: Path) -> None:
    """Take all weights from a folder of `save_pretrained`."""
    saved = AutoModelForCausalLM.from_pretrained(folder, config=model.module.config, dtype=torch.float32)
    model.module.load_state_dict(saved.state_dict())


def load_lora(model: Model, folder: Path, *, trainable: bool) -> PeftModel:
    with _peft_quietly():
        return PeftModel.from_pretrained(model.module, folder, is_trainable=trainable)


@contextlib.contextmanager
def _peft_quietly() -> Iterator[None]:
    """PEFT uses names that transformers calls old, and says what it corrects by itself; users need not read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


transformers_logging.disable_progress_bar()

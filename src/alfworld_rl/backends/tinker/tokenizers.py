"""The tokenizer of a model that lives on a server, and the tokens that end its messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alfworld_rl.backends.base import BackendError
from alfworld_rl.types import Tokenizer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer with the ids of the tokens that end a message."""

    tokenizer: Tokenizer
    ends: tuple[int, ...]

    @classmethod
    def of(cls, model: str) -> "Vocabulary":
        """That of a folder, or of a model of the hub. Raises BackendError where this machine cannot get it."""
        from transformers import AutoTokenizer, GenerationConfig

        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise BackendError(
                f"the tokenizer of {model} cannot be loaded on this machine ({reason}): put a copy of the model's "
                "folder where the server has it (the weights may be left out), or serve a model of the hub by its name"
            ) from error
        ends: list[Any] = [tokenizer.eos_token_id]
        try:
            given = GenerationConfig.from_pretrained(model).eos_token_id
        except (OSError, ValueError):  # not every model comes with such a file
            given = None
        ends += given if isinstance(given, list) else [given]
        return cls(tokenizer, tuple(sorted({int(end) for end in ends if end is not None})))

    def stops(self, texts: Sequence[str]) -> list[int] | list[str]:
        """What to send as stops: token ids, or where texts are asked for all as texts, since no server takes both."""
        if not texts:
            return list(self.ends)
        return [*texts, *(self.tokenizer.decode([end], skip_special_tokens=False) for end in self.ends)]

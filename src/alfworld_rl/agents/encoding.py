"""Text to tokens, so that no text of an environment ever becomes a control token."""

import re
from collections.abc import Mapping

from alfworld_rl.agents.base import ChatTemplateError
from alfworld_rl.types import Tokenizer


class Encoder:
    """Encodes texts that are partly ours and partly an environment's.

    `control` maps text to id of the tokens that the tokenizer finds before it tokenizes, special or not: Qwen's
    <tool_call> and <think> are among them without being "special", so split_special_tokens would not do.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added: Mapping[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
        # Runs of white space and single characters, which some tokenizers add, carry no meaning and stay as they are.
        self.control = {text: token for text, token in added.items() if len(text) > 1 and text.strip()}
        spelled = sorted(self.control, key=len, reverse=True)
        self._spelled = re.compile(f"(?=({'|'.join(map(re.escape, spelled))}))") if spelled else None

    def encode(self, *parts: tuple[str, bool]) -> tuple[int, ...]:
        """Tokens of the joined texts; a part is (text, whether it is foreign).

        Control tokens are made only where a part that is not foreign spells them.
        """
        text = "".join(part for part, _ in parts)
        if self._spelled is None:
            return tuple(self._tokenizer.encode(text, add_special_tokens=False))
        foreign, position = [], 0
        for part, is_foreign in parts:
            if is_foreign:
                foreign.append((position, position + len(part)))
            position += len(part)
        tokens: list[int] = []
        done = 0
        for match in self._spelled.finditer(text):
            # Cut inside the spelling: neither half is the control token, and the text stays the same.
            if any(match.start() < end and match.end(1) > start for start, end in foreign):
                tokens += self._tokenizer.encode(text[done : match.start() + 1], add_special_tokens=False)
                done = match.start() + 1
        return (*tokens, *self._tokenizer.encode(text[done:], add_special_tokens=False))

    def turn_end(self, following: str) -> tuple[int, str]:
        """The token that ends the assistant's turn, and its text, by what a template writes after the message.

        Raises ChatTemplateError where there is none.
        """
        tokens = self._tokenizer.encode(following, add_special_tokens=False)
        texts = {token: text for text, token in self.control.items()}
        eos = self._tokenizer.eos_token_id
        for token in [eos] if eos in tokens and eos is not None else tokens:
            text = texts.get(token) or (
                self._tokenizer.decode([token], skip_special_tokens=False) if token == eos else ""
            )
            if text and text in following:
                return token, text
        raise ChatTemplateError(
            "the model's chat template does not end the assistant's turn with a token of its own, so a sampler cannot "
            "know where to stop; use a model with a chat template such as ChatML"
        )

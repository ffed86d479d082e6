"""One model's conversations as tokens, by the layout of its chat template."""

from functools import lru_cache

from alfworld_rl.agents.encoding import Encoder
from alfworld_rl.agents.templates import Between, Layout
from alfworld_rl.agents.thinking import closing, open_mark, split_thought
from alfworld_rl.types import Completion, Tokenizer


class Conversation:
    """How openings and answers become tokens, and completions become text.

    `stop` is what to tell a sampler to stop at besides the tokenizer's own end, `answers_alike` whether calls and other
    messages are answered in the same way.
    """

    def __init__(self, tokenizer: Tokenizer, encoder: Encoder, layout: Layout) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._layout = layout
        self.system = layout.system
        betweens = (layout.after_call, layout.after_text)
        self._ends = {tokenizer.eos_token_id, *(between.end for between in betweens)}
        self.stop = tuple(
            dict.fromkeys(between.end_text for between in betweens if between.end != tokenizer.eos_token_id)
        )
        self.answers_alike = layout.after_call == layout.after_text
        self._opened = open_mark(layout.tail)
        # The trajectories of a group read much the same; bounded, a few megabytes.
        self._encoded_answer = lru_cache(maxsize=2048)(self._encode_answer)

    def opening(self, text: str) -> tuple[int, ...]:
        """The first prompt, the user saying `text`, up to where the model begins to write."""
        return self._encoder.encode((self._layout.head, False), (text, True), (self._layout.tail, False))

    def answer(self, text: str, completion: Completion, *, called: bool = False) -> tuple[int, ...]:
        """What to append after a completion: the rest of its turn, the answer `text`, the next turn's start.

        `called`: whether the completion is a call of the tool.
        """
        between = self._layout.after_call if called else self._layout.after_text
        ended = bool(completion.tokens) and completion.tokens[-1] == between.end
        return self._encoded_answer(between, ended, text)

    def read(self, completion: Completion) -> tuple[str, str, str]:
        """The message of a completion without the token that ended it; what of it is thought, and what is not."""
        tokens = completion.tokens
        if tokens and tokens[-1] in self._ends:
            tokens = tokens[:-1]
        text = self._tokenizer.decode(tokens, skip_special_tokens=False)
        return text, *split_thought(text, opened=self._opened)

    def cut_off(self, completion: Completion) -> bool:
        """Whether a token limit ended the completion before the model did."""
        return completion.stop_reason == "length" and (not completion.tokens or completion.tokens[-1] not in self._ends)

    def message(self, text: str) -> tuple[int, ...]:
        """A whole message of the assistant that says `text` and calls nothing, without a thought."""
        return (*self._encoder.encode((closing(self._opened), False), (text, True)), self._layout.after_text.end)

    def call(self, action: str) -> tuple[int, ...]:
        """A whole message that calls the tool with `action`, as the template writes it, without a thought."""
        call = self._layout.call
        before = closing(self._opened) + call.before
        tokens = self._encoder.encode((before, False), (call.escape(action), True), (call.after, False))
        return (*tokens, self._layout.after_call.end)

    def _encode_answer(self, between: Between, ended: bool, text: str) -> tuple[int, ...]:
        before = between.rest if ended else between.before
        return self._encoder.encode((before, False), (between.escape(text), True), (between.after, False))

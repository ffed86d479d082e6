"""One model's conversations as tokens, by the layout of its chat template."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from alfworld_rl.agents.base import Rendered
from alfworld_rl.agents.encoding import Encoder
from alfworld_rl.agents.templates import Between, Layout
from alfworld_rl.agents.thinking import Thought, open_mark, said_in, thoughts_of, without
from alfworld_rl.types import Completion, Tokenizer


@dataclass(frozen=True, slots=True)
class Written:
    """A message of the model: its text, the thoughts in it, what it says without them, and whether a limit cut it."""

    text: str
    thoughts: Sequence[Thought]
    said: str
    cut_off: bool

    @property
    def thought(self) -> str:
        return said_in(self.thoughts)


class Conversation:
    """How openings and answers become tokens, and completions become text.

    `stop` is what to tell a sampler to stop at besides the tokenizer's own end, `answers_alike` whether calls and other
    messages are answered in the same way.
    """

    def __init__(self, tokenizer: Tokenizer, encoder: Encoder, layout: Layout) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._layout = layout
        betweens = (layout.after_call, layout.after_text)
        self._ends = {tokenizer.eos_token_id, *(between.end for between in betweens)}
        self.stop = tuple(
            dict.fromkeys(between.end_text for between in betweens if between.end != tokenizer.eos_token_id)
        )
        self.answers_alike = layout.after_call == layout.after_text
        self._opened = open_mark(layout.tail)
        # The trajectories of a group read much the same; bounded, a few megabytes.
        self._encoded_answer = lru_cache(maxsize=2048)(self._encode_answer)

    def opening(self, text: str) -> Rendered:
        """The first prompt, the user saying `text`, up to where the model begins to write."""
        layout = self._layout
        tokens = self._encoder.encode((layout.head, False), (text, True), (layout.tail, False))
        return Rendered(tokens, ({"role": "system", "content": layout.system}, {"role": "user", "content": text}))

    def answer(self, text: str, completion: Completion, *, called: bool = False) -> tuple[int, ...]:
        """What to append after a completion: the rest of its turn, the answer `text`, the next turn's start.

        `called`: whether the completion is a call of the tool.
        """
        between = self._layout.after_call if called else self._layout.after_text
        ended = bool(completion.tokens) and completion.tokens[-1] == between.end
        return self._encoded_answer(between, ended, text)

    def read(self, completion: Completion) -> "Written":
        """The message of a completion, without the token that ended it."""
        tokens = completion.tokens
        ended = bool(tokens) and tokens[-1] in self._ends
        text = self._text(tokens[:-1] if ended else tokens)
        thoughts = thoughts_of(text, opened=self._opened)
        return Written(text, thoughts, without(text, thoughts), completion.stop_reason == "length" and not ended)

    def count_tokens(self, completion: Completion, start: int, end: int) -> int:
        """How many tokens of `completion` it took to write the characters from `start` to `end` of its text."""

        def tokens_of(characters: int) -> int:
            counts = range(len(completion.tokens) + 1)
            return bisect_left(counts, characters, key=lambda count: len(self._text(completion.tokens[:count])))

        return tokens_of(end) - tokens_of(start)

    def message(self, text: str) -> tuple[int, ...]:
        """A whole message of the assistant that says `text` and calls nothing, without a thought."""
        around = self._layout.after_text
        return (*self._encoder.encode((around.lead, False), (text, True), (around.last, False)), around.end)

    def call(self, action: str) -> tuple[int, ...]:
        """A whole message that calls the tool with `action`, as the template writes it, without a thought."""
        call, around = self._layout.call, self._layout.after_call
        before, after = around.lead + call.before, call.after + around.last
        return (*self._encoder.encode((before, False), (call.escape(action), True), (after, False)), around.end)

    def _text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=False)

    def _encode_answer(self, between: Between, ended: bool, text: str) -> tuple[int, ...]:
        before = between.rest if ended else between.before
        return self._encoder.encode((before, False), (between.escape(text), True), (between.after, False))

"""A model's chat template, taken apart once, so that a conversation grows by tokens and is never rendered again.

A conversation is rendered by the model's own chat template once, at the start. What stands between an assistant's
message and the next one (end of turn, tool response, next turn) is taken from the same template with place-holders,
so that later answers are appended as tokens and nothing that was said is ever rendered or tokenized again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from alfworld_rl.agents.base import ChatTemplateError
from alfworld_rl.agents.calls import CALL_CLOSES, CALL_EXPLAINED, CALL_OPENS, TOOL, TOOL_NAME, XML_CALL, read_action
from alfworld_rl.types import Completion, Message, Tokenizer


class Conversation:
    """The fixed texts of a model's chat template around those that vary, and how both become tokens.

    Raises ChatTemplateError at once if the template cannot carry a conversation that only ever grows. `turn_end` is
    the token that ends the model's turn, `stop` what to tell a sampler to stop at besides the tokenizer's own end.
    """

    def __init__(self, tokenizer: Tokenizer, system: str) -> None:
        self.tokenizer = tokenizer
        self._control = _control_tokens(tokenizer)
        spelled = sorted(self._control, key=len, reverse=True)
        self._spelled = re.compile(f"(?=({'|'.join(map(re.escape, spelled))}))") if spelled else None

        form = _render_form(tokenizer, system)
        self.system, self._head, self._tail = form.system, form.head, form.tail
        self.call = form.call
        self._answer_tail = form.after_answer
        self.turn_end, ends_with = self._find_turn_end(form.before_answer)
        self._answer_head = form.before_answer
        self._answer_head_ended = form.before_answer.split(ends_with, 1)[1]
        self._ends = {self.turn_end, tokenizer.eos_token_id}
        # The trajectories of a group read much the same; bounded, a few megabytes.
        self._encoded_answer = lru_cache(maxsize=2048)(self._encode_answer)
        self.stop: tuple[str, ...] = () if tokenizer.eos_token_id == self.turn_end else (ends_with,)

    def opening(self, text: str) -> tuple[int, ...]:
        """The first prompt, the user saying `text`, up to where the model begins to write."""
        return tuple(self.encode((self._head, False), (text, True), (self._tail, False)))

    def answer(self, text: str, completion: Completion) -> tuple[int, ...]:
        """What to append after a completion: the rest of its turn, the answer `text`, the next turn's start."""
        ended = bool(completion.tokens) and completion.tokens[-1] == self.turn_end
        return self._encoded_answer(self._answer_head_ended if ended else self._answer_head, text)

    def read(self, completion: Completion) -> str:
        """The message of a completion, without the token that ended it."""
        tokens = completion.tokens
        if tokens and tokens[-1] in self._ends:
            tokens = tokens[:-1]
        return self.tokenizer.decode(tokens, skip_special_tokens=False)

    def cut_off(self, completion: Completion) -> bool:
        """Whether a token limit ended the completion before the model did."""
        return completion.stop_reason == "length" and (not completion.tokens or completion.tokens[-1] not in self._ends)

    def _encode_answer(self, head: str, text: str) -> tuple[int, ...]:
        return tuple(self.encode((head, False), (text, True), (self._answer_tail, False)))

    def encode(self, *parts: tuple[str, bool]) -> list[int]:
        """Tokens of the joined texts; control tokens are made only where a part that is not `foreign` spells them."""
        text = "".join(part for part, _ in parts)
        if self._spelled is None:
            return self.tokenizer.encode(text, add_special_tokens=False)
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
                tokens += self.tokenizer.encode(text[done : match.start() + 1], add_special_tokens=False)
                done = match.start() + 1
        return tokens + self.tokenizer.encode(text[done:], add_special_tokens=False)

    def _find_turn_end(self, before_answer: str) -> tuple[int, str]:
        tokens = self.tokenizer.encode(before_answer, add_special_tokens=False)
        control = {token: text for text, token in self._control.items()}
        eos = self.tokenizer.eos_token_id
        for token in [eos] if eos in tokens and eos is not None else tokens:
            text = control.get(token) or (
                self.tokenizer.decode([token], skip_special_tokens=False) if token == eos else ""
            )
            if text and text in before_answer:
                return token, text
        raise ChatTemplateError(
            "the model's chat template does not end the assistant's turn with a token of its own, so a sampler cannot "
            "know where to stop; use a model with a chat template such as ChatML"
        )


def _control_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Text -> id of the tokens that the tokenizer finds before it tokenizes, special or not.

    Qwen's <tool_call> and <think> are among them without being "special", so split_special_tokens would not do.
    Runs of white space and single characters, which some tokenizers add, carry no meaning and stay as they are.
    """
    added: Mapping[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
    return {text: token for text, token in added.items() if len(text) > 1 and text.strip()}


@dataclass(frozen=True, slots=True)
class _Form:
    """A template's texts around what varies."""

    system: str
    head: str
    tail: str
    before_answer: str
    after_answer: str
    call: tuple[str, str, bool]


_OPENING, _REPLY, _ANSWER, _ACTION = "OPENINGPLACE", "REPLYPLACE", "ANSWERPLACE", "ACTIONPLACE"


def _render_form(tokenizer: Tokenizer, system: str) -> _Form:
    def render(messages: Sequence[Message], generate: bool = True) -> str:
        text = tokenizer.apply_chat_template(
            list(messages), tools=[TOOL], tokenize=False, add_generation_prompt=generate, enable_thinking=False
        )
        if not isinstance(text, str):
            raise TypeError("apply_chat_template(tokenize=False) gives no text")
        return text

    def opening(system: str) -> list[Message]:
        return [{"role": "system", "content": system}, {"role": "user", "content": _OPENING}]

    try:
        messages = opening(system)
        shown = render(messages)
    except Exception:
        # Some templates know no system role; the user then says it all.
        try:
            messages = [{"role": "user", "content": f"{system}\n\n{_OPENING}"}]
            shown = render(messages)
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ChatTemplateError(
                f"the model's tokenizer has no chat template that works ({reason[:200]}); use a chat model"
            ) from error
    native = str(TOOL["function"]["description"]) in shown
    if not native:
        system = f"{system}\n\n{CALL_EXPLAINED}"
        messages = opening(system) if len(messages) == 2 else [{"role": "user", "content": f"{system}\n\n{_OPENING}"}]
        shown = render(messages)
    if shown.count(_OPENING) != 1 or system not in shown:
        raise ChatTemplateError("the model's chat template leaves out or repeats what it is given; use a chat model")

    between = None
    for role in ("tool", "user") if native else ("user",):
        try:
            between = _between_turns(render, messages, role)
            break
        except ChatTemplateError:
            raise
        except Exception:
            continue
    if between is None:
        raise ChatTemplateError("the model's chat template takes no answer after an assistant's message")
    head, tail = shown.split(_OPENING)
    return _Form(system, head, tail, *between, _call_form(render, messages) if native else _XML_FORM)


def _between_turns(render: Any, messages: Sequence[Message], role: str) -> tuple[str, str]:
    """The texts from the assistant's message to the answer, and from the answer to the next assistant's message."""
    start = render(messages, generate=False)
    rounds: list[Message] = []
    seen: list[tuple[str, str]] = []
    for turn in ("A", "B"):
        reply, answer = _REPLY + turn, _ANSWER + turn
        rounds += [{"role": "assistant", "content": reply}, {"role": role, "content": answer}]
        shown = render([*messages, *rounds])
        if shown.count(reply) != 1 or shown.count(answer) != 1 or shown.index(reply) > shown.index(answer):
            raise ValueError("a message is left out or repeated")
        if not (shown.startswith(start) and render(messages).startswith(start)):
            raise ChatTemplateError(
                "the model's chat template changes earlier messages when later ones come, so a conversation cannot "
                "be continued token for token; use another model or template"
            )
        rest = shown.split(reply, 1)[1]
        before, after = rest.split(answer, 1)
        seen.append((before, after))
    if seen[0] != seen[1]:
        raise ChatTemplateError(
            "the model's chat template writes the second answer in another way than the first, so a conversation "
            "cannot be continued token for token; use another model or template"
        )
    return seen[0]


def _xml_form() -> tuple[str, str, bool]:
    before, after = XML_CALL.split("{action}")
    return before, after, False


_XML_FORM = _xml_form()


def _call_form(render: Any, messages: Sequence[Message]) -> tuple[str, str, bool]:
    """How the template itself writes a call, around the action; whether as JSON."""
    function = {"name": TOOL_NAME, "arguments": {"action": _ACTION}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    try:
        shown: str = render([*messages, call], generate=False)
    except Exception:
        return _XML_FORM
    before, place, after = shown.rpartition(_ACTION)
    start, end = before.rfind(CALL_OPENS), after.find(CALL_CLOSES)
    if (
        not place
        or start < 0
        or end < 0
        or read_action(f"{before[start:]}{place}{after[: end + len(CALL_CLOSES)]}") is None
    ):
        return _XML_FORM
    return before[start:], after[: end + len(CALL_CLOSES)], before.endswith('"')

"""A model's chat template, taken apart: what it writes around the texts that vary.

The template is rendered with place-holders, once, when a format is made. What stands around them is all that is ever
used of it: a conversation then grows by tokens and is never rendered again. Whatever the template does that such a
conversation could not, is found here and refused.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from alfworld_rl.agents.base import ChatTemplateError
from alfworld_rl.agents.calls import CALL_FORMS, EXPLAINED, TOOL, TOOL_NAME, XML_CALL, CallForm
from alfworld_rl.agents.encoding import Encoder
from alfworld_rl.agents.rendering import Render, renderer
from alfworld_rl.agents.thinking import Thinking, closing, open_mark, without_thoughts
from alfworld_rl.types import Message, Tokenizer

Escape = Callable[[str], str]
"""How a template writes a text that it is given."""


def _as_it_is(text: str) -> str:
    return text


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _in_ascii_json(text: str) -> str:
    return json.dumps(text)[1:-1]


ESCAPES: Final[tuple[Escape, ...]] = (_as_it_is, _in_json, _in_ascii_json)


@dataclass(frozen=True, slots=True)
class Between:
    """What stands around an assistant's message and the answer to it.

    - lead: from what the prompt ended with to the message.
    - last: from the message to the token that ends the turn.
    - end, end_text: that token and its text.
    - before: from the message to the answer, all of it.
    - rest: from the token that ends the turn to the answer.
    - escape: how the answer is written.
    - after: from the answer to where the next message begins.
    """

    lead: str
    last: str
    end: int
    end_text: str
    before: str
    rest: str
    escape: Escape
    after: str


@dataclass(frozen=True, slots=True)
class Call:
    """What stands around the action in a call of the tool, and the form that it has."""

    form: CallForm
    before: str
    after: str
    escape: Escape = _as_it_is


@dataclass(frozen=True, slots=True)
class Layout:
    """All of a template that a conversation uses.

    The first prompt is head, the user's message, tail. `system` is what it says to the model. After a message that
    calls the tool comes `after_call`, after any other one `after_text`.
    """

    system: str
    head: str
    tail: str
    after_call: Between
    after_text: Between
    call: Call


_OPENING, _REPLY, _ANSWER = "OPENINGPLACE", "REPLYPLACE", "ANSWERPLACE"
_PROBE: Final = "a \"quote\", a \\ and a 'line'\nof <b>ü</b> & {more}"
"""A text in which everything that a template might escape occurs."""

_CALL_ID: Final = "call00000"
"""Nine letters and digits: Mistral's templates want no other."""

_EXPLAINED_CALL: Final = Call(EXPLAINED, XML_CALL.partition("{action}")[0], XML_CALL.partition("{action}")[2])


def text_layout(tokenizer: Tokenizer, encoder: Encoder, system: str, thinking: Thinking) -> Layout:
    """How the tokenizer's chat template writes a conversation without tools, in which `system` says the rules.

    Raises ChatTemplateError if it cannot carry one that only ever grows.
    """
    return _layout(renderer(tokenizer, tools=False, thinking=thinking), encoder, system, _Reader.text_layout)


def call_layout(tokenizer: Tokenizer, encoder: Encoder, system: str, thinking: Thinking) -> Layout:
    """The same with the tool: the template presents it and writes its calls in a form that is read here.

    Raises ChatTemplateError if it does not, or cannot carry a conversation that only ever grows.
    """
    return _layout(renderer(tokenizer, tools=True, thinking=thinking), encoder, system, _Reader.call_layout)


def _layout(render: Render, encoder: Encoder, system: str, read: "Callable[[_Reader], Layout]") -> Layout:
    def attempt(system_role: bool) -> Layout:
        return read(_Reader(render, encoder, system, system_role=system_role))

    return _first_that_works(partial(attempt, system_role) for system_role in (True, False))


def presents_tools(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer's chat template tells the model of tools at all."""
    try:
        return _presents_tools(renderer(tokenizer, tools=True, thinking="template")([{"role": "user", "content": ""}]))
    except ChatTemplateError:
        return False


def _presents_tools(prompt: str) -> bool:
    return str(TOOL["function"]["description"]) in prompt


def _first_that_works[T](attempts: Iterable[Callable[[], T]]) -> T:
    """Raises the ChatTemplateError of the last attempt if none works."""
    for attempt in attempts:
        try:
            return attempt()
        except ChatTemplateError as error:
            refusal = error
    raise refusal


class _Reader:
    """Finds out what a chat template writes. All methods raise ChatTemplateError where it cannot be used."""

    def __init__(self, render: Render, encoder: Encoder, system: str, *, system_role: bool) -> None:
        """`system_role`: whether the system message is one; templates that know none are told it by the user."""
        self._render = render
        self._encoder = encoder
        self._system = system
        self._system_role = system_role
        shown = render(self._opening(_OPENING))
        if shown.count(_OPENING) != 1 or system not in shown:
            raise ChatTemplateError(
                "the model's chat template leaves out or repeats what it is given; use a chat model"
            )
        self._head, self._tail = shown.split(_OPENING)
        if render(self._opening(_PROBE)) != f"{self._head}{_PROBE}{self._tail}":
            raise ChatTemplateError("the model's chat template changes what the user says; use another template")

    def text_layout(self) -> Layout:
        """The layout of a conversation without tools."""
        between = self._between(_plain, "user")
        return Layout(self._system, self._head, self._tail, between, between, _EXPLAINED_CALL)

    def call_layout(self) -> Layout:
        """The layout of a conversation in which the template presents the tool and writes its calls."""
        if not _presents_tools(self._head + self._tail):
            raise ChatTemplateError("the model's chat template does not present tools; use another format")
        call = self._call()
        after_call = self._first_between(_calling, ("tool", "user"), call)
        # Where the template ends calls and other messages in two ways, or takes answers of the tool to calls alone, a
        # message that calls nothing is answered by the user; elsewhere both are answered alike.
        user = self._first_between(_plain, ("user", "tool"))
        tool = self._first_between(_plain, ("tool", "user"))
        alike = user.end == after_call.end and (tool.rest, tool.after) == (after_call.rest, after_call.after)
        return Layout(self._system, self._head, self._tail, after_call, tool if alike else user, call)

    def _opening(self, user: str) -> list[Message]:
        if self._system_role:
            return [{"role": "system", "content": self._system}, {"role": "user", "content": user}]
        return [{"role": "user", "content": f"{self._system}\n\n{user}"}]

    def _first_between(self, reply: "_Reply", roles: Sequence[str], call: Call | None = None) -> Between:
        return _first_that_works(partial(self._between, reply, role, call) for role in roles)

    def _between(self, reply: "_Reply", role: str, call: Call | None = None) -> Between:
        """What stands between the assistant's message and the answer, and between that and the next message."""
        lead = ""
        rounds: list[Message] = []
        seen: list[tuple[str, str]] = []
        for turn in ("A", "B"):
            place, answer = _REPLY + turn, _ANSWER + turn
            rounds += [reply(place), _answer(role, answer)]
            shown = self._render([*self._opening(_OPENING), *rounds])
            if shown.count(place) != 1 or shown.count(answer) != 1 or shown.index(place) > shown.index(answer):
                raise ChatTemplateError("the model's chat template leaves out or repeats a message; use a chat model")
            so_far, rest = shown.split(place)
            if call is not None:
                if not (so_far.endswith(call.before) and rest.startswith(call.after)):
                    raise ChatTemplateError("the model's chat template writes no two calls alike; use another template")
                so_far, rest = so_far.removesuffix(call.before), rest.removeprefix(call.after)
            start, prompt = f"{self._head}{_OPENING}", self._tail
            if seen:
                start, prompt = so_far[: so_far.rfind(_ANSWER) + len(answer)], seen[0][1]
            if not (so_far.startswith(f"{self._head}{_OPENING}") and _continues(prompt, so_far.removeprefix(start))):
                raise ChatTemplateError(
                    "the model's chat template changes earlier messages when later ones come, so a conversation "
                    "cannot be continued token for token; use another model or template"
                )
            if not seen:
                lead = _lead(prompt, so_far.removeprefix(start))
            before, after = rest.split(answer)
            seen.append((before, after))
        if seen[0] != seen[1]:
            raise ChatTemplateError(
                "the model's chat template writes the second answer in another way than the first, so a conversation "
                "cannot be continued token for token; use another model or template"
            )
        before, after = seen[0]
        shown = self._render([*self._opening(_OPENING), reply(_REPLY), _answer(role, _PROBE)])
        for escape in ESCAPES:
            if shown.endswith(f"{before}{escape(_PROBE)}{after}"):
                end, end_text = self._encoder.turn_end(before)
                last, rest = before.split(end_text, 1)
                if end_text == "<|end|>" and "<|return|>" in self._encoder.control:
                    # gpt-oss ends each of a turn's messages with the one and the turn with the other.
                    end, end_text = self._encoder.control["<|return|>"], "<|return|>"
                return Between(lead, last, end, end_text, before, rest, escape, self._evenly_opened(after))
        raise ChatTemplateError("the model's chat template changes what it is answered; use another model or template")

    def _evenly_opened(self, after: str) -> str:
        """`after`, opening a thought just if the first prompt does: a message is read alike in every turn.

        Gemma 4's later templates open one after answers of the tool alone; there the model opens it itself, as it does
        in its first turn.
        """
        opened = open_mark(after)
        if opened == open_mark(self._tail):
            return after
        if not opened:
            raise ChatTemplateError(
                "the model's chat template opens a thought in the first turn alone; use another one"
            )
        return after[: after.rindex(opened)]

    def _call(self) -> Call:
        """How the template writes a call; checked to be what is read of it."""
        before, place, after = self._render([*self._opening(_OPENING), _calling(_REPLY)]).rpartition(_REPLY)
        probed = self._render([*self._opening(_OPENING), _calling(_PROBE)])
        for form in CALL_FORMS:
            start, end = before.rfind(form.opens), after.find(form.closes)
            if not place or start < 0 or end < 0:
                continue
            opens, closes = before[start:], after[: end + len(form.closes)]
            for escape in ESCAPES:
                if f"{opens}{escape(_PROBE)}{closes}" in probed and form.read(f"{opens}look{closes}") == "look":
                    if _tells_of_another(self._head, form):
                        break
                    return Call(form, opens, closes, escape)
        raise ChatTemplateError(
            "the model's chat template writes calls of tools in a form that is not known here; use another format"
        )


_Reply = Callable[[str], Message]


def _plain(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _calling(action: str) -> Message:
    function = {"name": TOOL_NAME, "arguments": {"action": action}}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "id": _CALL_ID, "function": function}],
    }


def _answer(role: str, text: str) -> Message:
    named = {"name": TOOL_NAME, "tool_call_id": _CALL_ID} if role == "tool" else {}
    return {"role": role, "content": text, **named}


def _continues(prompt: str, written: str) -> bool:
    """Whether a prompt that ends in `prompt` leads to what the template later writes there.

    Templates leave earlier thoughts out, or the mark of one that is not there; the transcript keeps what was.
    """
    prompt, written = without_thoughts(prompt), without_thoughts(written)
    return prompt.startswith(written) or written.startswith(prompt)


def _lead(prompt: str, written: str) -> str:
    """What comes between the end of a prompt and a message without a thought, by what the template writes there."""
    return written.removeprefix(prompt) if written.startswith(prompt) else closing(open_mark(prompt))


def _tells_of_another(head: str, form: CallForm) -> bool:
    """Whether a prompt that presents tools shows the marks of other forms and not those of `form`."""
    marked = {known.opens for known in CALL_FORMS if known.opens.startswith("<") and known.opens in head}
    return bool(marked) and form.opens not in marked

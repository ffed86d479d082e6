"""How an agent and a game talk: every text of ours, how it becomes tokens, and how the agent's message is read.

A conversation is rendered by the model's own chat template once, at the start. What stands between an assistant's
message and the next one (end of turn, tool response, next turn) is taken from the same template with place-holders,
so that later answers are appended as tokens and nothing that was said is ever rendered or tokenized again.

Text from games is data: no observation, task or command can become a control token, whatever it spells.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from alfworld_rl.types import Completion, Tokenizer
from alfworld_rl.errors import UsageError
from alfworld_rl.world.view import View

CommandsShown = Literal["full", "changes", "none"]
Message = dict[str, Any]

# --- the texts; a results file's protocol hash covers all of them -------------------------------------------------

VERSION: Final = 1
"""Raise it when the reading of messages changes, so that results before and after are not compared."""

TOOL_NAME: Final = "alfworld_step"
TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Do one command in the house and see what happens.",
        "parameters": {
            "type": "object",
            "properties": {"action": {"type": "string", "description": "an admissible command, word for word"}},
            "required": ["action"],
        },
    },
}

RULES: Final = (
    "You are in a house and act through text commands until the task is done. End every message with exactly one "
    f"call of {TOOL_NAME} and write nothing after it. A command that is not admissible does nothing and uses up a step."
)
COMMANDS_EXPLAINED: Final[Mapping[CommandsShown, str]] = {
    "full": "Every answer lists the admissible commands.",
    "changes": "The admissible commands are listed once; later answers list with + what became admissible "
    "and with - what no longer is.",
    "none": "The command help tells what commands look like.",
}
COMMANDS_HEADER: Final = "Admissible commands:"
APPEARED: Final = "+ "
VANISHED: Final = "- "
NOTHING_HAPPENS: Final = "Nothing happens."

CALL_OPENS: Final = "<tool_call>"
CALL_CLOSES: Final = "</tool_call>"
XML_CALL: Final = (
    f"{CALL_OPENS}\n<function={TOOL_NAME}>\n<parameter=action>\n{{action}}\n</parameter>\n</function>\n{CALL_CLOSES}"
)
CALL_EXPLAINED: Final = f"A call has this form:\n\n{XML_CALL.format(action='command')}"
"""For models whose chat template does not present tools."""


def system_text(commands: CommandsShown) -> str:
    return f"{RULES} {COMMANDS_EXPLAINED[commands]}"


def opening_text(view: View, commands: CommandsShown) -> str:
    """The user's message: the first observation, which names the task, and the admissible commands."""
    return _with_commands(view.observation, view.admissible_commands if commands != "none" else ())


def answer_text(before: Iterable[str], view: View, commands: CommandsShown) -> str:
    """The environment's answer; `before` are the commands that were admissible when the agent chose."""
    if commands == "changes":
        old, new = set(before), set(view.admissible_commands)
        changes = [APPEARED + command for command in view.admissible_commands if command not in old]
        changes += [VANISHED + command for command in before if command not in new]
        return "\n".join([f"{view.observation}\n", *changes]) if changes else view.observation
    return _with_commands(view.observation, view.admissible_commands if commands == "full" else ())


def _with_commands(observation: str, commands: Sequence[str]) -> str:
    return "\n".join([f"{observation}\n", COMMANDS_HEADER, *commands]) if commands else observation


def protocol_hash(commands: CommandsShown, **options: Any) -> str:
    """12 hex digits over every text of the protocol and the options that change what a score means."""
    texts = [VERSION, system_text(commands), COMMANDS_HEADER, APPEARED, VANISHED, NOTHING_HAPPENS, CALL_EXPLAINED]
    content = json.dumps([*texts, TOOL, commands, options], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


# --- reading the agent's message ----------------------------------------------------------------------------------


def read_action(message: str) -> str | None:
    """The action of the one call that `message` ends with, as it was written; None if that is not what it is.

    Read are Qwen3.5's native form, <function=alfworld_step><parameter=action>..., and the JSON form. An agent that
    calls twice, or goes on to write its own observation after the call, has not acted.
    """
    message = message.rstrip()
    if message.count(CALL_OPENS) != 1 or message.count(CALL_CLOSES) != 1 or not message.endswith(CALL_CLOSES):
        return None
    body = message[message.index(CALL_OPENS) + len(CALL_OPENS) : -len(CALL_CLOSES)].strip()
    return _xml_action(body) if body.startswith("<") else _json_action(body)


def _xml_action(body: str) -> str | None:
    for opens, closes in ((f"<function={TOOL_NAME}>", "</function>"), ("<parameter=action>", "</parameter>")):
        if not (body.startswith(opens) and body.endswith(closes)):
            return None
        body = body[len(opens) : -len(closes)].strip()
    return None if "<parameter=" in body or "</parameter>" in body else body


def _json_action(body: str) -> str | None:
    try:
        call = json.loads(body, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return None
    match call:
        case {"name": name, "arguments": {"action": str(action), **others}} if name == TOOL_NAME and not others:
            return action
    return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A call that says two actions or two names is not one call."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is given twice")
    return values


def admissible(action: str, commands: Iterable[str]) -> str | None:
    """The one of `commands` that `action` means; case and spaces are forgiven, nothing else."""
    wanted = " ".join(action.split()).lower()
    return next((command for command in commands if " ".join(command.split()).lower() == wanted), None)


# --- tokens -------------------------------------------------------------------------------------------------------


class ChatTemplateError(UsageError):
    """The model's chat template cannot carry a conversation that only ever grows."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An agent's message, read: its text, and the action of its call if it is in the right form."""

    text: str
    action: str | None


class AgentProtocol:
    """The protocol for one model: its tokenizer, its chat template, and how admissible commands are shown.

    Raises ChatTemplateError at once if the template cannot carry it. `turn_end` is the token that ends the
    model's turn, `stop` what to tell a sampler to stop at besides the tokenizer's own end.
    """

    def __init__(self, tokenizer: Tokenizer, commands: CommandsShown = "full") -> None:
        self.tokenizer = tokenizer
        self.commands: CommandsShown = commands
        self._control = _control_tokens(tokenizer)
        spelled = sorted(self._control, key=len, reverse=True)
        self._spelled = re.compile(f"(?=({'|'.join(map(re.escape, spelled))}))") if spelled else None

        form = _render_form(tokenizer, system_text(commands))
        self._system, self._head, self._tail = form.system, form.head, form.tail
        self._call = form.call
        self._answer_tail = form.after_answer
        self.turn_end, ends_with = self._find_turn_end(form.before_answer)
        self._answer_head = form.before_answer
        self._answer_head_ended = form.before_answer.split(ends_with, 1)[1]
        self._ends = {self.turn_end, tokenizer.eos_token_id}
        # The trajectories of a group read much the same; bounded, a few megabytes.
        self._encoded_answer = lru_cache(maxsize=2048)(self._encode_answer)
        self.stop: tuple[str, ...] = () if tokenizer.eos_token_id == self.turn_end else (ends_with,)

    def opening(self, view: View) -> list[int]:
        """The first prompt of a game, up to where the model begins to write."""
        return self._encode((self._head, False), (opening_text(view, self.commands), True), (self._tail, False))

    def opening_messages(self, view: View) -> list[Message]:
        """The first prompt as messages, for people to read."""
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": opening_text(view, self.commands)},
        ]

    def answer(self, text: str, completion_tokens: Sequence[int]) -> tuple[int, ...]:
        """What to append after a completion: the rest of its turn, the environment's answer, the next turn's start.

        A completion that sampled its own end of turn is not ended twice.
        """
        ended = bool(completion_tokens) and completion_tokens[-1] == self.turn_end
        head = self._answer_head_ended if ended else self._answer_head
        return self._encoded_answer(head, text)

    def read(self, completion: Completion) -> Turn:
        """The message of a completion, without the token that ended it."""
        tokens = completion.tokens
        if tokens and tokens[-1] in self._ends:
            tokens = tokens[:-1]
        text = self.tokenizer.decode(tokens, skip_special_tokens=False)
        return Turn(text, read_action(text))

    def cut_off(self, completion: Completion) -> bool:
        """Whether a token limit ended the completion before the model did."""
        return completion.stop_reason == "length" and (not completion.tokens or completion.tokens[-1] not in self._ends)

    def call(self, action: str) -> list[int]:
        """The tokens of a whole message that calls the tool with `action` in the model's own form, ended."""
        before, after, in_json = self._call
        text = json.dumps(action, ensure_ascii=False)[1:-1] if in_json else action
        return [*self._encode((before, False), (text, True), (after, False)), self.turn_end]

    def _encode_answer(self, head: str, text: str) -> tuple[int, ...]:
        return tuple(self._encode((head, False), (text, True), (self._answer_tail, False)))

    def _encode(self, *parts: tuple[str, bool]) -> list[int]:
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


_XML_FORM: Final = _xml_form()


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

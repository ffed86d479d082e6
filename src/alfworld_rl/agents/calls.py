"""The forms in which families of models call a tool: how each is recognized in a prompt, and how it is read.

How a call is written is never ours to say: it is taken from the model's own chat template. Only for templates that
present no tools, or in a form that is none of these, `CALL_EXPLAINED` tells the model a form.

All reading here is of messages without their thoughts, and strict: the message ends with one call of the tool with
one argument, the action. An agent that calls twice, or goes on to write its own observation after the call, has not
acted.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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

CALL_OPENS: Final = "<tool_call>"
CALL_CLOSES: Final = "</tool_call>"
XML_CALL: Final = (
    f"{CALL_OPENS}\n<function={TOOL_NAME}>\n<parameter=action>\n{{action}}\n</parameter>\n</function>\n{CALL_CLOSES}"
)
CALL_EXPLAINED: Final = f"A call has this form:\n\n{XML_CALL.format(action='command')}"
"""For models whose chat template does not present tools."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """A form of calls: `opens` and `closes` are the texts that a written call begins and ends with.

    `read` gives the action of the one call that a message ends with, as it was written; None if that is not what it is.
    """

    name: str
    opens: str
    closes: str
    read: Callable[[str], str | None]


def read_action(message: str) -> str | None:
    """The action of a message in the form that we explain, Qwen3.5's own, or in the JSON form of Hermes and Qwen."""
    body = _enclosed(message, CALL_OPENS, CALL_CLOSES)
    if body is None:
        return None
    return _xml_action(body) if body.startswith("<") else _json_action(body)


def called_action(calls: Sequence[Any]) -> str | None:
    """The action that the `tool_calls` of a service ask for.

    None where there are several, or it is a call of another tool or with other arguments.
    """
    match calls:
        case [{"function": {"name": name, "arguments": arguments}}] if name == TOOL_NAME:
            return _only_action(_loads(arguments) if isinstance(arguments, str) else arguments)
    return None


def asked_action(message: Mapping[str, Any]) -> str | None:
    """What an assistant's message of a results file asks for: in its text, or in OpenAI's `tool_calls`.

    Raises KeyError, ValueError or TypeError where `tool_calls` are in another shape.
    """
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        return str(arguments["action"])
    return read_action(message.get("content") or "")


def _enclosed(message: str, opens: str, closes: str) -> str | None:
    """What stands between the marks of the one call that `message` ends with."""
    message = message.rstrip()
    if message.count(opens) != 1 or message.count(closes) != 1 or not message.endswith(closes):
        return None
    return message[message.index(opens) + len(opens) : -len(closes)].strip()


def _between(text: str, opens: str, closes: str) -> str | None:
    if len(text) < len(opens) + len(closes) or not (text.startswith(opens) and text.endswith(closes)):
        return None
    return text[len(opens) : -len(closes)]


def _xml_action(body: str) -> str | None:
    for opens, closes in ((f"<function={TOOL_NAME}>", "</function>"), ("<parameter=action>", "</parameter>")):
        if not (body.startswith(opens) and body.endswith(closes)):
            return None
        body = body[len(opens) : -len(closes)].strip()
    return None if "<parameter=" in body or "</parameter>" in body else body


def _json_action(body: str, key: str = "arguments") -> str | None:
    match _loads(body):
        case {"name": name, **call} if name == TOOL_NAME:
            return _only_action(call.get(key))
    return None


def _only_action(arguments: Any) -> str | None:
    match arguments:
        case {"action": str(action), **others} if not others:
            return action
    return None


def _loads(body: str) -> Any:
    try:
        return json.loads(body, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A call that says two actions or two names is not one call."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is given twice")
    return values


def _read_glm(message: str) -> str | None:
    body = _enclosed(message, CALL_OPENS, CALL_CLOSES)
    if body is None or not body.startswith(TOOL_NAME):
        return None
    key, separator, value = body.removeprefix(TOOL_NAME).strip().partition("</arg_key>")
    if not separator or (_between(f"{key}</arg_key>", "<arg_key>", "</arg_key>") or "").strip() != "action":
        return None
    action = _between(value.strip(), "<arg_value>", "</arg_value>")
    return None if action is None or "arg_key>" in action or "arg_value>" in action else action.strip()


_LLAMA_CALL = re.compile(r'\{\s{0,9}(?:"type"\s{0,9}:\s{0,9}"function"\s{0,9},\s{0,9})?"name"')


def _read_llama(message: str) -> str | None:
    """Bare JSON at the end: {"name": ..., "parameters": {...}}."""
    calls = list(_LLAMA_CALL.finditer(message))
    return _json_action(message[calls[0].start() :], "parameters") if len(calls) == 1 else None


def _read_gemma(message: str) -> str | None:
    body = _enclosed(message, "<|tool_call>", "<tool_call|>")
    quote = '<|"|>'
    action = None if body is None else _between(body, f"call:{TOOL_NAME}{{action:{quote}", f"{quote}}}")
    return None if action is None or quote in action else action


def _read_lfm2(message: str) -> str | None:
    body = _enclosed(message, "<|tool_call_start|>", "<|tool_call_end|>")
    # No action is this long, and the parser of a nested expression is not bounded by itself.
    if body is None or len(body) > 1000:
        return None
    try:
        tree = ast.parse(body, mode="eval").body
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    match tree:
        case ast.List(
            elts=[ast.Call(func=ast.Name(id=name), args=[], keywords=[ast.keyword(arg="action", value=value)])]
        ):
            if name == TOOL_NAME and isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return None


def _read_harmony(message: str) -> str | None:
    """gpt-oss: the last message of the turn is JSON to the tool, which is named before the channel or behind it.

    The form is that of https://github.com/openai/harmony.
    """
    if message.count("to=functions.") != 1:
        return None
    header, separator, body = message.rpartition("<|start|>assistant")[2].partition("<|message|>")
    words = re.split(r"[\s<]+", header)
    if not separator or f"to=functions.{TOOL_NAME}" not in words:
        return None
    return _only_action(_loads(body))


EXPLAINED: Final = CallForm("tool_call", CALL_OPENS, CALL_CLOSES, read_action)
CALL_FORMS: Final = (
    EXPLAINED,
    CallForm("glm", CALL_OPENS, CALL_CLOSES, _read_glm),
    CallForm("llama", '{"name"', "}}", _read_llama),
    CallForm("gemma", "<|tool_call>", "<tool_call|>", _read_gemma),
    CallForm("lfm2", "<|tool_call_start|>", "<|tool_call_end|>", _read_lfm2),
    CallForm("harmony", " to=functions.", "}", _read_harmony),
)
"""In the order in which they are tried on what a template writes."""

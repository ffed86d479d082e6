"""How a call of the tool is written and read."""

import json
from collections.abc import Mapping
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


def asked_action(message: Mapping[str, Any]) -> str | None:
    """What an assistant's message of a results file asks for: in its text, or in OpenAI's `tool_calls`.

    Raises KeyError, ValueError or TypeError where `tool_calls` are in another shape.
    """
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        return str(arguments["action"])
    return read_action(message.get("content") or "")

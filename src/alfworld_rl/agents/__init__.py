"""Between an environment and a model: the words they exchange and the tokens of a whole episode."""

from collections.abc import Callable

from alfworld_rl.agents.base import (
    AgentFormat,
    ChatTemplateError,
    CommandsShown,
    Parsed,
    Rendered,
    match_action,
)
from alfworld_rl.agents.react import ReActFormat
from alfworld_rl.agents.tool_call import ToolCallFormat
from alfworld_rl.registry import Registry

__all__ = [
    "FORMATS",
    "AgentFormat",
    "ChatTemplateError",
    "CommandsShown",
    "Parsed",
    "Rendered",
    "match_action",
]

FORMATS: Registry[Callable[..., AgentFormat]] = Registry("agent format")
"""Formats by name: made of (tokenizer, commands, **options)."""

FORMATS.add("tool-call", ToolCallFormat, "a call of the tool alfworld_step, as the model's chat template writes calls")
FORMATS.add("react", ReActFormat, "lines of text, Thought: and Action:, with any chat model")

"""Between an environment and a model: the words they exchange and the tokens of a whole episode."""

from collections.abc import Callable, Mapping
from typing import Final

from alfworld_rl.agents.base import (
    AgentFormat,
    ChatTemplateError,
    CommandsShown,
    Observation,
    Parsed,
    Rendered,
    match_action,
)
from alfworld_rl.agents.tool_call import ToolCallFormat

__all__ = [
    "FORMATS",
    "AgentFormat",
    "ChatTemplateError",
    "CommandsShown",
    "Observation",
    "Parsed",
    "Rendered",
    "match_action",
]

FORMATS: Final[Mapping[str, Callable[..., AgentFormat]]] = {"tool-call": ToolCallFormat}
"""Format by name: made of (tokenizer, commands, **options)."""

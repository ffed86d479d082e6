"""The format in which an agent acts by calling a tool, in the model's own form of a call."""

import hashlib
import json
from typing import Any, Final

from alfworld_rl.agents.base import CommandsShown, Parsed, Rendered
from alfworld_rl.types import Observation
from alfworld_rl.agents.calls import CALL_EXPLAINED, TOOL, TOOL_NAME, read_action
from alfworld_rl.agents.templates import Conversation
from alfworld_rl.agents.texts import (
    APPEARED,
    COMMANDS_EXPLAINED,
    COMMANDS_HEADER,
    NOTHING_HAPPENS,
    VANISHED,
    answer_text,
    opening_text,
)
from alfworld_rl.types import Completion, Tokenizer

VERSION: Final = 1
"""Raise it when the reading of messages changes, so that results before and after are not compared."""

RULES: Final = (
    "You are in a house and act through text commands until the task is done. End every message with exactly one "
    f"call of {TOOL_NAME} and write nothing after it. A command that is not admissible does nothing and uses up a step."
)


def system_text(commands: CommandsShown) -> str:
    return f"{RULES} {COMMANDS_EXPLAINED[commands]}"


def protocol_hash(commands: CommandsShown, **options: Any) -> str:
    """12 hex digits over every text of the format and the options that change what a score means."""
    texts = [VERSION, system_text(commands), COMMANDS_HEADER, APPEARED, VANISHED, NOTHING_HAPPENS, CALL_EXPLAINED]
    content = json.dumps([*texts, TOOL, commands, options], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


class ToolCallFormat:
    """The contract of `AgentFormat` by calls of the one tool, `alfworld_step`.

    The model's chat template presents the tool and writes the calls where it can; where it does not, the system
    message explains a form.
    """

    name: Final = "tool-call"

    def __init__(self, tokenizer: Tokenizer, commands: CommandsShown = "full") -> None:
        self.commands: CommandsShown = commands
        self.fingerprint = protocol_hash(commands)
        self._conversation = Conversation(tokenizer, system_text(commands))
        self.stop = self._conversation.stop
        self.turn_end = self._conversation.turn_end

    def opening(self, first: Observation) -> Rendered:
        text = opening_text(first, self.commands)
        messages = ({"role": "system", "content": self._conversation.system}, {"role": "user", "content": text})
        return Rendered(self._conversation.opening(text), messages)

    def parse(self, completion: Completion) -> Parsed:
        text = self._conversation.read(completion)
        return Parsed(text, "", read_action(text), self._conversation.cut_off(completion))

    def answer(self, before: Observation, after: Observation, completion: Completion) -> Rendered:
        text = answer_text(before.actions, after, self.commands)
        return Rendered(self._conversation.answer(text, completion), ({"role": "tool", "content": text},))

    def write(self, action: str | None) -> tuple[int, ...]:
        if action is None:
            return (self.turn_end,)
        before, after, in_json = self._conversation.call
        text = json.dumps(action, ensure_ascii=False)[1:-1] if in_json else action
        return (*self._conversation.encode((before, False), (text, True), (after, False)), self.turn_end)

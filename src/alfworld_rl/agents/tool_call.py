"""The format in which an agent acts by calling a tool, in the model's own form of a call."""

import hashlib
import json
from typing import Any, Final

from alfworld_rl.agents.base import ChatTemplateError, CommandsShown, Parsed, Rendered
from alfworld_rl.agents.calls import CALL_EXPLAINED, EXPLAINED, TOOL, TOOL_NAME
from alfworld_rl.agents.conversation import Conversation
from alfworld_rl.agents.encoding import Encoder
from alfworld_rl.agents.rendering import source
from alfworld_rl.agents.templates import call_layout, presents_tools, text_layout
from alfworld_rl.agents.texts import COMMANDS_EXPLAINED, SHARED_TEXTS, answer_text, opening_text
from alfworld_rl.agents.thinking import Thinking, require_thoughts
from alfworld_rl.types import Completion, Observation, Tokenizer

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
    texts = [VERSION, system_text(commands), *SHARED_TEXTS, CALL_EXPLAINED]
    content = json.dumps([*texts, TOOL, commands, options], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


class ToolCallFormat:
    """The contract of `AgentFormat` by calls of the one tool, `alfworld_step`.

    The model's chat template presents the tool and writes the calls, if it can do so in a form that is read here; else
    the system message explains a form, and that is read. A model is never taught one form and read by another: what
    the template writes is read back before anything is sampled.
    """

    name: Final = "tool-call"

    def __init__(self, tokenizer: Tokenizer, commands: CommandsShown = "full", *, thinking: Thinking = "off") -> None:
        self.commands: CommandsShown = commands
        encoder = Encoder(tokenizer)
        require_thoughts(thinking, source(tokenizer))
        # Only what differs from how this format began is told apart, so that the first results stay comparable.
        options: dict[str, str] = {} if thinking == "off" else {"thinking": thinking}
        system = system_text(commands)
        try:
            layout = call_layout(tokenizer, encoder, system, thinking)
            if layout.call.form is not EXPLAINED:
                options["form"] = layout.call.form.name
        except ChatTemplateError:
            layout = text_layout(tokenizer, encoder, f"{system}\n\n{CALL_EXPLAINED}", thinking)
            if presents_tools(tokenizer):
                options["form"] = "explained"
        self._read = layout.call.form.read
        self._conversation = Conversation(tokenizer, encoder, layout)
        self.stop = self._conversation.stop
        self.fingerprint = protocol_hash(commands, **options)

    def opening(self, first: Observation) -> Rendered:
        return self._conversation.opening(opening_text(first, self.commands))

    def parse(self, completion: Completion) -> Parsed:
        written = self._conversation.read(completion)
        thought_tokens = sum(
            self._conversation.count_tokens(completion, thought.start, thought.end) for thought in written.thoughts
        )
        return Parsed(written.text, written.thought, self._read(written.said), written.cut_off, thought_tokens)

    def answer(self, before: Observation, after: Observation, completion: Completion) -> Rendered:
        text = answer_text(before.actions, after, self.commands)
        called = self._conversation.answers_alike or self.parse(completion).action is not None
        tokens = self._conversation.answer(text, completion, called=called)
        return Rendered(tokens, ({"role": "tool", "content": text},))

    def write(self, action: str | None) -> tuple[int, ...]:
        return self._conversation.message("") if action is None else self._conversation.call(action)

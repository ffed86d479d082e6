"""The format in which an agent thinks aloud and then names its action, as text (ReAct, arXiv 2210.03629).

It needs nothing of a chat template but turns of a user and an assistant, so it works with any chat model.
"""

import hashlib
import json
from typing import Final

from alfworld_rl.agents.base import CommandsShown, Parsed, Rendered
from alfworld_rl.agents.conversation import Conversation
from alfworld_rl.agents.encoding import Encoder
from alfworld_rl.agents.rendering import source
from alfworld_rl.agents.templates import text_layout
from alfworld_rl.agents.texts import COMMANDS_EXPLAINED, SHARED_TEXTS, answer_text, opening_text
from alfworld_rl.agents.thinking import Thinking, require_thoughts
from alfworld_rl.types import Completion, Observation, Tokenizer

VERSION: Final = 1
"""Raise it when the reading of messages changes, so that results before and after are not compared."""

THOUGHT: Final = "Thought:"
ACTION: Final = "Action:"
RULES: Final = (
    "You are in a house and act through text commands until the task is done. Write in every message first what you "
    f"think and then one command, and nothing after it, in this form:\n\n{THOUGHT} what you think\n{ACTION} command\n\n"
    "A command that is not admissible does nothing and uses up a step."
)


class ReActFormat:
    """The contract of `AgentFormat` by lines of text: `Thought: ...`, then `Action: ...`, which ends the message."""

    name: Final = "react"

    def __init__(self, tokenizer: Tokenizer, commands: CommandsShown = "full", *, thinking: Thinking = "off") -> None:
        self.commands: CommandsShown = commands
        require_thoughts(thinking, source(tokenizer))
        system = f"{RULES} {COMMANDS_EXPLAINED[commands]}"
        encoder = Encoder(tokenizer)
        self._conversation = Conversation(tokenizer, encoder, text_layout(tokenizer, encoder, system, thinking))
        self.stop = self._conversation.stop
        texts = [self.name, VERSION, system, *SHARED_TEXTS, commands, thinking]
        self.fingerprint = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]

    def opening(self, first: Observation) -> Rendered:
        return self._conversation.opening(opening_text(first, self.commands))

    def parse(self, completion: Completion) -> Parsed:
        written = self._conversation.read(completion)
        # gpt-oss names a channel before its text.
        aloud, action = read_lines(written.said.rpartition("<|message|>")[2])
        thought = "\n\n".join(filter(None, (written.thought, aloud)))
        end = len(written.text) if action is None else written.text.rindex(ACTION)
        thought_tokens = self._conversation.count_tokens(completion, 0, end) if thought else 0
        return Parsed(written.text, thought, action, written.cut_off, thought_tokens)

    def answer(self, before: Observation, after: Observation, completion: Completion) -> Rendered:
        text = answer_text(before.actions, after, self.commands)
        return Rendered(self._conversation.answer(text, completion), ({"role": "user", "content": text},))

    def write(self, action: str | None) -> tuple[int, ...]:
        # The expert does not say what it thinks, and to make it up would teach to make it up.
        return self._conversation.message("" if action is None else f"{ACTION} {action}")


def read_lines(message: str) -> tuple[str, str | None]:
    """The thought of `message`, and its action as it was written; None unless its last line alone names one.

    An agent that names two actions, or goes on to write its own observation after the action, has not acted.
    """
    *before, last = message.strip().split("\n")
    thought = "\n".join(before if last.startswith(ACTION) else [*before, last]).strip()
    thought = thought.removeprefix(THOUGHT).strip()
    if not last.startswith(ACTION) or any(line.lstrip().startswith(ACTION) for line in before):
        return thought, None
    return thought, last.removeprefix(ACTION).strip() or None

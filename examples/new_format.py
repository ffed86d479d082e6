"""An agent format of your own: how the model is told of a game, and how what it writes is read.

    alfworld-rl eval --backend local --format examples.new_format:TersePrompt --output terse.jsonl

This one takes the format that is there and changes the system message; a format from nothing implements
`alfworld_rl.agents.AgentFormat`, whose contract is that the conversation only ever grows.
"""

import hashlib

from alfworld_rl.agents import CommandsShown, Rendered
from alfworld_rl.agents.tool_call import ToolCallFormat
from alfworld_rl.types import Observation, Tokenizer

ADVICE = "Look into closed things. Never repeat a command that did nothing."


class TersePrompt(ToolCallFormat):
    """Calls of the tool, with one more sentence in front of the first observation."""

    def __init__(self, tokenizer: Tokenizer, commands: CommandsShown = "full") -> None:
        super().__init__(tokenizer, commands)
        # Whatever changes what a score means changes the fingerprint.
        self.fingerprint = hashlib.sha256(f"{self.fingerprint}{ADVICE}".encode()).hexdigest()[:12]

    def opening(self, first: Observation) -> Rendered:
        return super().opening(_Advised(first))


class _Advised:
    """An observation whose text begins with the advice."""

    def __init__(self, first: Observation) -> None:
        self._first = first
        self.text = f"{ADVICE}\n\n{first.text}"

    def __getattr__(self, name: str) -> object:
        return getattr(self._first, name)

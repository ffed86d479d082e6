"""The contract of an agent format: how an agent and an environment talk.

A format is bound to one tokenizer. It writes what the model reads, as tokens that are only ever appended, and reads
what the model writes; it knows nothing of who samples, who plays, or what is learned.

Text from the environment is data: no observation, task or command can become a control token, whatever it spells.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from alfworld_rl.errors import UsageError
from alfworld_rl.types import Completion, Message, Observation

CommandsShown = Literal["full", "changes", "none"]
"""How admissible commands are shown: all of them in every answer, what changed, or not at all."""


class ChatTemplateError(UsageError):
    """The model's chat template cannot carry a conversation that only ever grows."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What is appended to a conversation: the tokens for the model, the messages for people to read."""

    tokens: tuple[int, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    """An agent's message, read.

    `text` is all of it without the token that ended it, `thought` what of it was thinking, `action` what it asks for,
    as it was written and not yet matched with what is admissible (None if it asks for nothing in the right form), and
    `cut_off` whether a token limit ended the message before the model did. `thought_tokens` counts the tokens of the
    thought with its marks. `message` is what the conversation keeps of it; None where that is `text` alone.
    """

    text: str
    thought: str
    action: str | None
    cut_off: bool
    thought_tokens: int = 0
    message: Message | None = None


class AgentFormat(Protocol):
    """How one model is told of a game and acts in it.

    Append-only by contract: the prompt of turn k + 1 is that of turn k, then the completion of turn k, then `answer`,
    token for token. Making a format raises ChatTemplateError where the model's chat template cannot carry that.
    """

    @property
    def name(self) -> str:
        """By which settings and results know it."""
        ...

    @property
    def fingerprint(self) -> str:
        """12 hex digits over every text and option that changes what a score means."""
        ...

    @property
    def commands(self) -> CommandsShown: ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that a sampler is told to stop at, besides the tokenizer's own end token."""
        ...

    def opening(self, first: Observation) -> Rendered:
        """The first prompt of a game, up to where the model begins to write."""
        ...

    def parse(self, completion: Completion) -> Parsed:
        """What the model wrote, read. Never raises, whatever it wrote."""
        ...

    def answer(self, before: Observation, after: Observation, completion: Completion) -> Rendered:
        """What to append after `completion`: the rest of its turn, the environment's answer, the next turn's start.

        `before` is what the model saw when it wrote, `after` what came of it. A completion that sampled its own end
        of turn is not ended twice.
        """
        ...

    def write(self, action: str | None) -> tuple[int, ...]:
        """The tokens of a whole message, ended, that asks for `action` as an expert would; None: asks for nothing."""
        ...


def match_action(action: str, commands: Iterable[str]) -> str | None:
    """The one of `commands` that `action` means; case and spaces are forgiven, nothing else."""
    wanted = " ".join(action.split()).lower()
    return next((command for command in commands if " ".join(command.split()).lower() == wanted), None)

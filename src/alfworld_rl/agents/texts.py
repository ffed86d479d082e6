"""The texts that every format puts before the model: observations, and how admissible commands are shown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from alfworld_rl.agents.base import CommandsShown
from alfworld_rl.types import Observation

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
"""What an agent reads after an action that is not admissible; ALFWorld's own words for a command without effect."""

SHARED_TEXTS: Final = (COMMANDS_HEADER, APPEARED, VANISHED, NOTHING_HAPPENS)
"""What of these texts every format has, for fingerprints."""


def opening_text(first: Observation, commands: CommandsShown) -> str:
    """The user's message: the first observation, which names the task, and the admissible commands."""
    return _with_commands(first.text, first.actions if commands != "none" else ())


def answer_text(before: Iterable[str], after: Observation, commands: CommandsShown) -> str:
    """The environment's answer; `before` are the commands that were admissible when the agent chose."""
    if commands == "changes":
        old, new = set(before), set(after.actions)
        changes = [APPEARED + command for command in after.actions if command not in old]
        changes += [VANISHED + command for command in before if command not in new]
        return "\n".join([f"{after.text}\n", *changes]) if changes else after.text
    return _with_commands(after.text, after.actions if commands == "full" else ())


def _with_commands(observation: str, commands: Sequence[str]) -> str:
    return "\n".join([f"{observation}\n", COMMANDS_HEADER, *commands]) if commands else observation

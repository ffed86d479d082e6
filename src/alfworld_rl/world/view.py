"""What a player sees after a command."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """One answer of a world.

    `observation` and `admissible_commands` are, character for character and in the same order, what
    alfworld 0.4.2 on TextWorld 1.7.0 gives for the same game and commands.
    """

    observation: str
    task: str
    admissible_commands: tuple[str, ...]
    score: int
    done: bool
    won: bool

"""What a player sees after a command."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """One answer of a world; a `types.Observation`.

    `observation` and `admissible_commands` are, character for character and in the same order, what
    alfworld 0.4.2 on TextWorld 1.7.0 gives for the same game and commands.
    """

    observation: str
    task: str
    admissible_commands: tuple[str, ...]
    score: int
    done: bool
    won: bool

    @property
    def text(self) -> str:
        """`observation`, by the name that every environment has for it."""
        return self.observation

    @property
    def actions(self) -> tuple[str, ...]:
        """`admissible_commands`, by the name that every environment has for them."""
        return self.admissible_commands

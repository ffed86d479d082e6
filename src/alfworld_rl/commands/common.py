"""Settings that several commands share, and what they make of them."""

from pathlib import Path
from typing import Annotated, Literal

from alfworld_rl.agents import FORMATS, AgentFormat, CommandsShown
from alfworld_rl.agents.thinking import Thinking
from alfworld_rl.config import Check, Config, Name, option
from alfworld_rl.config.workspace import alfworld_games
from alfworld_rl.envs import ENVIRONMENTS, EnvironmentFamily
from alfworld_rl.rollouts import Limits, Sampling
from alfworld_rl.types import Task, Tokenizer

GAMES_HELP = "folder that holds json_2.1.1 (default: ALFWORLD_DATA, 08-alfworld/datasets/alfworld, ~/.cache/alfworld)"


class CommandConfig(Config):
    """What every command knows."""

    debug: bool = option(False, "show the traceback of an error")


def not_empty(text: str) -> str | None:
    return None if text.strip() else "must not be empty"


Text = Annotated[str, Check(not_empty)]


class EpisodeConfig(Config):
    """How a game is played; what changes the score of a model belongs here."""

    data_root: Path | None = option(None, GAMES_HELP)
    environment: Annotated[str, Name(ENVIRONMENTS)] = option("fast", "what plays the games")
    environment_asynchronous: bool = option(True, "textworld only: step the worlds in processes of their own")
    format: Annotated[str, Name(FORMATS)] = option("tool-call", "how the agent reads and acts")
    thinking: Thinking = option("off", "have the model think before it acts; template: as its chat template does")
    max_episode_steps: int = option(50, "steps a game may take", ge=1)
    admissible_commands: Literal["full", "changes", "none"] | None = option(
        None, "list the admissible commands in every answer, only what changed, or never (default: full)"
    )
    include_admissible_actions: bool | None = option(None, "the same as --admissible-commands full, or none")
    max_trajectory_tokens: int = option(12000, "tokens of a whole trajectory", ge=256)
    max_assistant_tokens: int = option(2048, "tokens of one message of the model", ge=1)
    temperature: float = option(1.0, "sampling temperature", ge=0)
    top_p: float = option(1.0, "sample from the smallest set of tokens that holds this much probability", gt=0, le=1)

    @property
    def commands_shown(self) -> CommandsShown:
        if self.admissible_commands is not None:
            return self.admissible_commands
        return "none" if self.include_admissible_actions is False else "full"

    @property
    def limits(self) -> Limits:
        return Limits(
            max_episode_steps=self.max_episode_steps,
            max_trajectory_tokens=self.max_trajectory_tokens,
            max_assistant_tokens=self.max_assistant_tokens,
        )

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p)

    def agent(self, tokenizer: Tokenizer) -> AgentFormat:
        # A format of someone's own need not know of thinking to be used without.
        options = {} if self.thinking == "off" else {"thinking": self.thinking}
        return FORMATS.bind(self.format, **options)(tokenizer, self.commands_shown)

    def family(self) -> EnvironmentFamily:
        """Raises UsageError where what it needs is not installed."""
        make = ENVIRONMENTS[self.environment]
        return make(self.games_folder, workers=self.environment_asynchronous)

    @property
    def games_folder(self) -> Path:
        return alfworld_games(self.data_root)

    def of_the_score(self) -> dict[str, object]:
        """What changes a score, as it goes into results."""
        return {
            "max_episode_steps": self.max_episode_steps,
            "admissible_commands": self.commands_shown,
            "max_trajectory_tokens": self.max_trajectory_tokens,
            "max_assistant_tokens": self.max_assistant_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }

    def conflicts(self) -> list[str]:
        problems = []
        if self.admissible_commands is not None and self.include_admissible_actions is not None:
            implied = "full" if self.include_admissible_actions else "none"
            if (self.admissible_commands == "none") != (implied == "none"):
                no = "" if self.include_admissible_actions else "no-"
                problems.append(
                    f"--admissible-commands {self.admissible_commands} contradicts --{no}include-admissible-actions"
                )
        if self.max_assistant_tokens >= self.max_trajectory_tokens:
            problems.append(
                f"--max-assistant-tokens {self.max_assistant_tokens} must be below "
                f"--max-trajectory-tokens {self.max_trajectory_tokens}, or no prompt fits"
            )
        return problems


def split_tasks(family: EnvironmentFamily, split: str) -> list[Task]:
    """The split's tasks, in the order that is the same everywhere; what was left out is said."""
    tasks = list(family.tasks(split))
    for sentence in family.left_out(split):
        print(sentence)
    return tasks


def labelled(text: str) -> str | None:
    label, separator, path = text.partition("=")
    return None if separator and label and path else f"must be LABEL=PATH, not {text!r}"


Labelled = Annotated[str, Check(labelled)]


def label_conflicts(labels: list[str]) -> list[str]:
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    return [f"the label {', '.join(repeated)} is given twice"] if repeated else []


def figure_conflicts(output: Path | None) -> list[str]:
    if output is not None and output.suffix.lower() not in (".png", ".svg", ".pdf"):
        return [f"--output must end in .png, .svg or .pdf, not {output.name!r}"]
    return []

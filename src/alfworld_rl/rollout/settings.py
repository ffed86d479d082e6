"""What a rollout can be asked for."""

from dataclasses import dataclass
from typing import Literal

from alfworld_rl.agents import CommandsShown

EnvironmentName = Literal["fast", "textworld"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How games are played; each field is the flag of its name. All of it changes what a score means, but for
    `environment` (both play alike) and `environment_asynchronous` (official worlds in processes of their own).
    """

    environment: EnvironmentName = "fast"
    environment_asynchronous: bool = True
    max_episode_steps: int = 50
    admissible_commands: CommandsShown = "full"
    max_trajectory_tokens: int = 12000
    max_assistant_tokens: int = 2048
    temperature: float = 1.0
    top_p: float = 1.0

    def problems(self) -> list[str]:
        """What is wrong with the settings, a sentence each."""
        problems = []
        if self.environment not in ("fast", "textworld"):
            problems.append(f"--environment must be fast or textworld, not {self.environment}")
        if self.admissible_commands not in ("full", "changes", "none"):
            problems.append(f"--admissible-commands must be full, changes or none, not {self.admissible_commands}")
        for name, value in (
            ("--max-episode-steps", self.max_episode_steps),
            ("--max-trajectory-tokens", self.max_trajectory_tokens),
            ("--max-assistant-tokens", self.max_assistant_tokens),
        ):
            if value < 1:
                problems.append(f"{name} must be at least 1, not {value}")
        if self.max_assistant_tokens >= self.max_trajectory_tokens:
            problems.append(
                f"--max-assistant-tokens {self.max_assistant_tokens} must be below "
                f"--max-trajectory-tokens {self.max_trajectory_tokens}, or no prompt fits"
            )
        if not 0 <= self.temperature < float("inf"):
            problems.append(f"--temperature must be a finite number from 0 on, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            problems.append(f"--top-p must be above 0 and at most 1, not {self.top_p}")
        return problems

"""A run's own settings, and those of a run that goes on."""

import re
from collections.abc import Callable, Set
from pathlib import Path
from typing import Annotated

from alfworld_rl.config import Check, Config, flag_name, option
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import portable
from alfworld_rl.runs.folder import RunFolder


def run_name_problem(name: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        return f"must be letters, digits, '.', '_' and '-' (it names a folder), not {name!r}"
    return None if portable(name) else f"cannot be {name!r}: not every system can have a folder of this name"


RunName = Annotated[str, Check(run_name_problem)]


class RunConfig(Config):
    """A run: a folder of checkpoints that can be gone on with."""

    run_name: RunName = option("alfworld-agent-rl", "name of the run folder under 08-alfworld/runs")
    max_steps: int = option(80, "updates", ge=1)
    save_every: int = option(20, "save state and sampler weights every N updates; 0: only at the end", ge=0)
    seed: int = option(42, "seed of the order of games, of sampling and of new weights", ge=0, le=2**31 - 1)
    lora_rank: int = option(32, "rank of the LoRA adapters; 0 trains all weights (local backend)", ge=0)
    init_from: Annotated[str, Check(lambda text: None if text.strip() else "must not be empty")] | None = option(
        None, "start from the weights of this checkpoint URI", metavar="URI"
    )
    resume: RunName | None = option(None, "go on with this run (a name under 08-alfworld/runs)", metavar="RUN")

    def conflicts(self) -> list[str]:
        if self.init_from is not None and self.resume is not None:
            return ["--init-from starts a new run and --resume goes on with an old one; give one of them"]
        return []


CHANGEABLE = frozenset(
    {
        *("resume", "save_every", "data_root", "micro_batch_tokens", "swanlab_project", "swanlab_mode", "debug"),
        *("track", "wandb_project", "wandb_mode", "base_url"),
        *("prices", "max_cost", "dry_run", "keep_trajectories"),
    }
)
"""What may change when a run goes on, since it does not change what is learned."""


def resumed[C: Config](
    runs: Path,
    command: str,
    asked: C,
    resume: str,
    also_changeable: Callable[[C], Set[str]] = lambda saved: frozenset(),
) -> tuple[RunFolder, C]:
    """The folder of a run that goes on, and its settings: as saved, with the changeable flags that were given now.

    `also_changeable` tells which flags beside `CHANGEABLE` may change in a run of these saved settings.

    Settings that an older version did not know take their present defaults, which is said and written down, so that
    they stay what they are. Raises UsageError naming every given flag that would make it a different run.
    """
    folder = RunFolder.existing(runs, resume)
    kind = type(asked)
    values = {name: value for name, value in folder.settings(command).items() if name in kind.settings}
    try:
        saved = kind.from_flat({name: value for name, value in values.items() if value is not None})
    except UsageError as error:
        raise AlfworldRLError(f"{folder.settings_file} is damaged ({error})") from None
    now, before, changeable = asked.to_flat(), saved.to_flat(), CHANGEABLE | also_changeable(saved)
    fixed = [name for name in sorted(asked.given - changeable) if before[name] != now[name]]
    if fixed:
        raise UsageError(
            f"run {resume} cannot go on with other settings: "
            + "; ".join(f"{flag_name(name)} was {before[name]}, not {now[name]}" for name in fixed)
        )
    # `resume` itself stays out: beside the --init-from that a run was started with it would be a contradiction.
    changed = (asked.given & changeable) - {"resume"}
    config = saved.replace(**{name: now[name] for name in changed if now[name] is not None})
    if lacking := [name for name in kind.settings if name not in values]:
        shown = ", ".join(f"{flag_name(name)} {before[name]}" for name in lacking if before[name] not in (None, []))
        print(f"settings.json is of an older version; what it does not say is taken as it is by default: {shown}")
        folder.write_settings(command, before)
    return folder, config

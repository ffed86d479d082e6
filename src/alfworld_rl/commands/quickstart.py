"""`quickstart`: see an agent learn, on this computer, in the commands that anyone would type."""

import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from alfworld_rl.commands import analysis, eval, report
from alfworld_rl.commands import train as train_command
from alfworld_rl.commands.common import CommandConfig
from alfworld_rl.commands.games import GenerateConfig, run_generate
from alfworld_rl.config import Config, option
from alfworld_rl.config.workspace import alfworld_games, generated_games, home
from alfworld_rl.console import seconds
from alfworld_rl.errors import UsageError, running_with
from alfworld_rl.games import SPLITS, discover
from alfworld_rl.runs.folder import RunFolder

#: An early checkpoint of the built-in policy, weak on purpose: there is something left to learn.
START = "alfworld-tiny-start"

Flags = Mapping[str, object]

#: How games are played, in training and in evaluation alike. Without the lists of commands, which are most of what is
#: read in a game, an update takes a fourth of the time.
PLAY: Flags = {
    "admissible-commands": "none",
    "max-episode-steps": 30,
    "max-assistant-tokens": 32,
    "max-trajectory-tokens": 8000,
}
TRAIN: Flags = {
    "max-steps": 15,
    "games-per-batch": 12,
    "group-size": 8,
    "lora-rank": 0,
    "advantage": "gigpo",
    "learning-rate": 1e-4,
    "warmup-steps": 2,
    "minibatches": 2,
    "save-every": 0,
}
#: As it is trained, by sampling: near-greedy, a weak policy repeats for ever what was refused once. Several samples a
#: game, so that the luck of one does not hide what was learned.
EVAL: Flags = {
    "split": "all",
    "limit-per-split": 40,
    "samples-per-game": 4,
    "games-per-batch": 80,
    "temperature": 1.0,
}
SHORT_PLAY: Flags = {**PLAY, "max-episode-steps": 8}
SHORT_TRAIN: Flags = {**TRAIN, "max-steps": 1, "games-per-batch": 2, "group-size": 4}
SHORT_EVAL: Flags = {**EVAL, "limit-per-split": 3, "samples-per-game": 1}


class QuickstartConfig(CommandConfig):
    """The whole line on this computer, with no account and no download."""

    short: bool = option(False, "a few games and one update: does everything work here?")
    seed: int = option(42, "seed of everything", ge=0, le=2**31 - 1)


CONFIG = QuickstartConfig


def run(config: QuickstartConfig) -> None:
    """Make games if there are none, evaluate, train, evaluate again, draw; prints every command before it runs."""
    ran: list[str] = []

    def do(
        command: str, function: Callable[[Any], Any], kind: type[Config], flags: Flags, inputs: tuple[str, ...] = ()
    ) -> Any:
        words = [*command.split(), *inputs, *(word for name, value in flags.items() for word in _words(name, value))]
        ran.append(shlex.join(["alfworld-rl", *words]))
        print(f"\n$ {ran[-1]}", flush=True)
        flat = {name.replace("-", "_"): value for name, value in flags.items()}
        return function(kind.from_flat(flat | ({"inputs": inputs} if inputs else {})))

    started = time.monotonic()
    play, train, evaluation = (SHORT_PLAY, SHORT_TRAIN, SHORT_EVAL) if config.short else (PLAY, TRAIN, EVAL)
    games = alfworld_games()
    if not _there(games):
        games = generated_games()
        if not _there(games):
            flags = {"data-root": games, "train": 200, "valid-seen": 40, "valid-unseen": 40, "seed": 1}
            do("games generate", run_generate, GenerateConfig, flags)
    model: Flags = {"backend": "local", "base-model": START, "data-root": games}
    same: Flags = {**model, **play, "seed": config.seed}

    results = home() / "eval_results"
    before, after = results / "quickstart-before.jsonl", results / "quickstart-after.jsonl"
    do("eval", eval.run, eval.EvalConfig, {**same, **evaluation, "output": before, "overwrite-output": True})
    learning = {**same, **train, "run-name": "quickstart", "swanlab-mode": "disabled"}
    folder: RunFolder = do("train", train_command.run, train_command.TrainConfig, learning)
    record = folder.record()
    assert record is not None
    assert record.saved is not None
    weights = {"model-path": record.saved.sampler_uri}
    again = {**same, **weights, **evaluation, "output": after, "overwrite-output": True}
    do("eval", eval.run, eval.EvalConfig, again)
    labelled = (f"Before={_from_here(before)}", f"After={_from_here(after)}")
    figure = home() / "images" / "quickstart.png"
    do("analysis", analysis.run, analysis.AnalysisConfig, {"output": figure, "results": labelled})
    page: Path = do("report", report.run, report.ReportConfig, {"output": results / "quickstart.html"}, labelled)
    do("report", report.run, report.ReportConfig, {}, (folder.name,))

    print(f"\nTo see what the agent did, turn by turn, open {_from_here(page)} in a browser.")
    print(f"\nThat took {seconds(time.monotonic() - started)}. These commands did it:\n")
    print("\n".join(f"    {running_with('local', command)}" for command in ran))


def _words(name: str, value: object) -> tuple[str, ...]:
    """A flag on a command line."""
    if value is True:
        return (f"--{name}",)
    values = value if isinstance(value, tuple) else (value,)
    return (f"--{name}", *(_from_here(one) if isinstance(one, Path) else str(one) for one in values))


def _from_here(path: Path) -> str:
    """The path as a person here would type it, on any system: Windows knows forward slashes, too."""
    return (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix()


def _there(data_root: Path) -> bool:
    """Whether every split has games."""
    try:
        return all(discover(data_root, split).games for split in SPLITS)
    except UsageError:
        return False

"""The command line: `alfworld-rl COMMAND`, and the scripts in 08-alfworld, which are the same commands."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.runs import settings as options
from alfworld_rl.runs.flags import add_flags, read_flags


class Command(NamedTuple):
    """A command whose flags are the fields of a settings dataclass; `run` is imported when it is used."""

    help: str
    settings: type[options.CommandSettings]
    run: str

    def add_parser(self, commands: Any, name: str, prog: str | None) -> None:
        parser = commands.add_parser(name, help=self.help, description=self.help, prog=prog, allow_abbrev=False)
        add_flags(parser, self.settings)
        parser.set_defaults(run_command=self._run)

    def _run(self, arguments: argparse.Namespace) -> Any:
        given = {name: value for name, value in vars(arguments).items() if name not in ("command", "run_command")}
        settings = read_flags(self.settings, given)
        function: Callable[..., Any] = _imported(self.run)
        if self.settings is options.TrainSettings:
            return function(settings, given=frozenset(given))
        return function(settings)


class Delegated(NamedTuple):
    """A command whose room brings its own parser: `add_parser(commands)`, which sets `run_command`."""

    help: str
    module: str

    def add_parser(self, commands: Any, name: str, prog: str | None) -> None:
        _imported(f"{self.module}:add_parser")(commands)


COMMANDS: dict[str, Command | Delegated] = {
    "train": Command("train an agent by reinforcement learning", options.TrainSettings, "alfworld_rl.runs.train:train"),
    "eval": Command("measure how often a model wins", options.EvalSettings, "alfworld_rl.evaluation.command:evaluate"),
    "analysis": Command("draw and compare results", options.AnalysisSettings, "alfworld_rl.analysis.command:analyse"),
    "curves": Command("draw how runs learned", options.CurvesSettings, "alfworld_rl.analysis.curves:curves"),
    "sft": Delegated("warm start from demonstrations", "alfworld_rl.runs.sft"),
    "games": Delegated("list games or make new ones", "alfworld_rl.games.commands"),
    "play": Delegated("play a game in the terminal", "alfworld_rl.play"),
    "quickstart": Command(
        "the whole line on this computer, no account and no download",
        options.QuickstartSettings,
        "alfworld_rl.runs.quickstart:quickstart",
    ),
    "doctor": Command("say what works on this computer now", options.DoctorSettings, "alfworld_rl.runs.doctor:doctor"),
}


def main(argv: Sequence[str] | None = None, *, command: str | None = None) -> int:
    """Run a command line; returns the exit code: 0, 1 for a failed run, 2 for a wrong command, 130 for Ctrl-C.

    `command` is set by the scripts in 08-alfworld, whose arguments start after the command's name.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if command is not None:
        arguments = [command, *arguments]
    debug = "--debug" in arguments
    try:
        done = run(arguments, script=command)
        return done if isinstance(done, int) else 0
    except UsageError as error:
        return _fail(f"error: {error}", 2, debug)
    except AlfworldRLError as error:
        return _fail(f"error: {error}", 1, debug)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except BrokenPipeError:
        # The reader of our output (`| head`) has left; python must not complain again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _fail(f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1, debug)


def run(arguments: Sequence[str], *, script: str | None = None) -> Any:
    """Run a command line and return what its function returns; errors are raised as they are."""
    parsed = _parser(arguments, script=script).parse_args(arguments)
    return parsed.run_command(parsed)


def _parser(arguments: Sequence[str], *, script: str | None) -> argparse.ArgumentParser:
    """A parser that knows every command's name, and the flags of the one that is asked for."""
    parser = argparse.ArgumentParser(
        prog=None if script is None else script,
        description="Train a language-model agent on text-only ALFWorld by reinforcement learning, and measure it.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        if name == asked:
            command.add_parser(commands, name, prog=None if script is None else os.path.basename(sys.argv[0]))
        else:
            commands.add_parser(name, help=command.help)
    return parser


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

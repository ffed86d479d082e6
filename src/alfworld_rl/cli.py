"""The command line: `alfworld-rl COMMAND`, and the scripts in 08-alfworld, which are the same commands."""

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from alfworld_rl.errors import AlfworldRLError, UsageError


class Command(NamedTuple):
    """A command: `config` and `run` name its settings and its function in `module`, imported when it is used.

    `json`: what its function returns is a JSON object that --json prints.
    """

    help: str
    module: str
    config: str = "CONFIG"
    run: str = "run"
    json: bool = False


COMMANDS: dict[str, Command | dict[str, Command]] = {
    "train": Command("train an agent by reinforcement learning", "train"),
    "eval": Command("measure how often a model wins", "eval", json=True),
    "analysis": Command("draw and compare results", "analysis"),
    "curves": Command("draw how runs learned", "curves"),
    "report": Command("write a page that shows results or a run, and replays what the agent did", "report"),
    "sft": Command("warm start from demonstrations", "sft"),
    "games": {
        "list": Command("count the games by split and task type", "games", "ListConfig", "run_list"),
        "generate": Command("make new games in ALFWorld's own file format", "games", "GenerateConfig", "run_generate"),
    },
    "play": Command("play a game in the terminal", "play"),
    "serve": Command("serve the world to trainers on other machines (OpenEnv)", "serve"),
    "quickstart": Command("the whole line on this computer, no account and no download", "quickstart"),
    "export": Command("write a checkpoint as a folder for transformers, PEFT and vLLM", "export"),
    "doctor": Command("say what works on this computer now", "doctor"),
}
"""Every command, and those that have commands of their own."""

HELP_OF_GROUPS = {"games": "list games or make new ones"}

QUIET_HELP = "print nothing for people but errors"
COMPLETION = "--print-completion"
COMPLETION_HELP = "print a script by which a shell (bash, zsh, fish, tcsh, powershell) completes commands and flags"
JSON_HELP = "print the summary as one JSON object on standard output, and what is for people on standard error"


def main(argv: Sequence[str] | None = None, *, command: str | None = None) -> int:
    """Run a command line; returns the exit code: 0, 1 for a failed run, 2 for a wrong command, 130 for Ctrl-C.

    A run that another signal ended has 128 + its number. `command` is set by the scripts in 08-alfworld, whose
    arguments start after the command's name.
    """
    # pydantic would look for plug-ins in every installed package, which takes longer than all that is done here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = list(sys.argv[1:] if argv is None else argv)
    if command is not None:
        arguments = [command, *arguments]
    debug = "--debug" in arguments
    try:
        done = run_command(arguments, script=command)
        return done if isinstance(done, int) else 0
    except UsageError as error:
        return _fail(f"error: {error}", 2, debug)
    except AlfworldRLError as error:
        return _fail(f"error: {error}", 1, debug)
    except KeyboardInterrupt as error:
        return _fail("interrupted", getattr(error, "exit_code", 130), debug)
    except BrokenPipeError:
        # The reader of our output (`| head`) has left; python must not complain again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _fail(f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1, debug)


def run_command(arguments: Sequence[str], *, script: str | None = None) -> Any:
    """Run a command line and return what its function returns; errors are raised as they are."""
    parsed, unknown = _parser(arguments, script=script).parse_known_args(arguments)
    given = vars(parsed)
    command, _ = given.pop("chosen"), given.pop("command")
    given.pop("subcommand", None)
    quiet, as_json = given.pop("quiet"), given.pop("json", False)
    from alfworld_rl.config import read_flags
    from alfworld_rl.console import for_people

    module = importlib.import_module(f"alfworld_rl.commands.{command.module}")
    config = read_flags(getattr(module, command.config), given, unknown)
    with for_people(quiet=quiet, aside=as_json):
        done = getattr(module, command.run)(config)
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
    return done


def _parser(arguments: Sequence[str], *, script: str | None) -> argparse.ArgumentParser:
    """A parser that knows every command's name, and the flags of the one that is asked for.

    For --print-completion it knows the flags of all, and what they can be set to.
    """
    parser = argparse.ArgumentParser(
        prog="alfworld-rl" if script is None else script,
        description="Train a language-model agent on text-only ALFWorld by reinforcement learning, and measure it.",
        allow_abbrev=False,
    )
    completing = any(word.startswith(COMPLETION) for word in arguments)
    if script is None:
        # shtab's own action, once it is asked for: it prints the script and ends the program.
        action = _shtab().add_argument_to(parser, [COMPLETION]) if completing else parser.add_argument(COMPLETION)
        action.help, action.metavar, action.default = COMPLETION_HELP, "SHELL", argparse.SUPPRESS
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked, *more = [word for word in arguments if not word.startswith("-")][:2] or [""]
    prog = None if script is None else os.path.basename(sys.argv[0])
    for name, command in COMMANDS.items():
        if isinstance(command, Command):
            _add_command(commands, name, command, with_flags=name == asked, completing=completing, prog=prog)
            continue
        group = commands.add_parser(name, help=HELP_OF_GROUPS[name], allow_abbrev=False)
        within = group.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
        for second, one in command.items():
            with_flags = name == asked and [second] == more
            _add_command(within, second, one, with_flags=with_flags, completing=completing, prog=None)
    return parser


def _add_command(
    commands: Any, name: str, command: Command, *, with_flags: bool, completing: bool, prog: str | None
) -> None:
    if not with_flags and not completing:
        commands.add_parser(name, help=command.help)
        return
    from alfworld_rl.config import add_flags

    config = getattr(importlib.import_module(f"alfworld_rl.commands.{command.module}"), command.config)
    parser = commands.add_parser(name, help=command.help, description=config.__doc__, prog=prog, allow_abbrev=False)
    add_flags(parser, config, completing=completing)
    terminal = parser.add_argument_group(description="What is printed.")
    terminal.add_argument("--quiet", action="store_true", help=QUIET_HELP)
    if command.json:
        terminal.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(chosen=command)


def _shtab() -> Any:
    import shtab

    return shtab


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

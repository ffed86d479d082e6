"""`alfworld-rl play GAME`: a game in the terminal, by hand or by the demonstrator."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from alfworld_rl.commands.common import CommandConfig
from alfworld_rl.config import option
from alfworld_rl.config.workspace import RELEASE, alfworld_games
from alfworld_rl.console import printable
from alfworld_rl.errors import UsageError
from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.world import Game, View, World

_GAME_FILE = "game.tw-pddl"
_DEMONSTRATION_STEPS = 50  # what a game is given in ALFWorld's evaluations


class PlayConfig(CommandConfig):
    """Play a game in the terminal.

    Tab completes the commands that the game admits, ? lists them, quit (or Ctrl-D) leaves. Lines can also be piped in.
    """

    game: Path = option(..., "a game.tw-pddl, the folder it is in, or a game id", positional=True)
    environment: Literal["fast", "textworld"] = option(
        "fast", "what plays the game: the world of this package, or the official stack"
    )
    demonstrator: bool = option(False, "watch the expert play instead")


CONFIG = PlayConfig


def run(config: PlayConfig) -> int:
    """Play the game; returns 0, or 1 if the expert did not win."""
    path = _game_file(config.game)
    with closing(_open_world(path, config.environment)) as world:
        view = world.reset()
        _show(view.observation)
        return _demonstrate(world, view) if config.demonstrator else _play(world, view)


def _game_file(path: Path) -> Path:
    named = alfworld_games() / RELEASE / path  # an id, as listings and results files have it
    if not path.exists() and named.exists():
        path = named
    if path.is_file():
        return path
    if (path / _GAME_FILE).is_file():
        return path / _GAME_FILE
    if not path.exists():
        raise UsageError(
            f"There is no game {path}: pass a {_GAME_FILE}, the folder it is in, or the id of a game in "
            f"{alfworld_games()}."
        )
    within = sorted(path.glob(f"*/{_GAME_FILE}"))
    if len(within) == 1:
        return within[0]
    hint = f"pass one of its {len(within)} trials, such as {within[0].parent}" if within else "pass a trial's folder"
    raise UsageError(f"There is no {_GAME_FILE} in {path}: {hint}.")


def _open_world(path: Path, environment: str) -> Any:
    if environment == "textworld":
        from alfworld_rl.world.textworld import TextWorldWorld

        return TextWorldWorld(path)
    return World(Game.load(path))


def _demonstrate(world: Any, view: View) -> int:
    demonstrator = Demonstrator(view.task, view)
    for step in range(1, _DEMONSTRATION_STEPS + 1):
        command = demonstrator.act()
        view = world.step(command)
        demonstrator.observe(command, view)
        _show(f"> {command}\n{view.observation}")
        if view.done:
            _show(f"The demonstrator won in {_steps(step)}.")
            return 0
    _show(f"The demonstrator did not win in {_steps(_DEMONSTRATION_STEPS)}.")
    return 1


def _play(world: Any, view: View) -> int:
    steps = 0
    lines = _typed_lines if sys.stdin.isatty() and sys.stdout.isatty() else _piped_lines
    views = [view]  # the last one is what completion goes by
    for line in lines(views):
        if line in ("quit", "exit"):
            break
        if line == "?":
            _show("\n".join(views[-1].admissible_commands))
            continue
        view = world.step(line)
        views[:] = [view]
        steps += 1
        _show(view.observation)
        if view.done:
            _show(f"You won in {_steps(steps)}.")
            return 0
    _show(f"You left after {_steps(steps)}; the task was to {view.task}")
    return 0


def _typed_lines(views: list[View]) -> Iterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    completer = WordCompleter(
        lambda: [printable(command) for command in views[-1].admissible_commands], sentence=True, match_middle=True
    )
    session: PromptSession[str] = PromptSession("> ", completer=completer, complete_while_typing=True)
    while True:
        try:
            line = session.prompt().strip()
        except (EOFError, KeyboardInterrupt):
            return
        if line:
            yield line


def _piped_lines(_: list[View]) -> Iterator[str]:
    try:
        for line in sys.stdin:
            if line := line.strip():
                _show(f"> {line}")
                yield line
    except KeyboardInterrupt:
        return


def _show(text: str) -> None:
    print(printable(text), flush=True)


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"

"""The official stack (alfworld on TextWorld and fast-downward) behind the interface of `World`: the judge.

It is slow (1 to 3 s for a reset, 50 to 150 ms for a step) and not safe for threads: fast-downward's translator keeps
its state in modules. Needs the extra `alfworld`.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games.game import Game
from alfworld_rl.world.view import View


class TextWorldWorld:
    """One game, played by the official stack. Close it to release the planner's memory."""

    def __init__(self, path: Path | str) -> None:
        """Raises GameFileError before the official stack, which evaluates what is in the file, sees a bad one."""
        self.game = Game.load(path)
        with process_kept():
            self._env = _official_env()
            self._env.load(str(path))

    def reset(self) -> View:
        """Starts the game, from the beginning, as often as wanted."""
        with process_kept():
            return self._view(self._env.reset())

    def step(self, command: str) -> View:
        state, _, _ = self._env.step(command)
        return self._view(state)

    def close(self) -> None:
        """Releases the planner's tables, which the official stack keeps; the world cannot be played any more.

        The library itself stays loaded: unloading it, as fast_downward.close_lib does, crashes the process later.
        """
        env, self._env = self._env, None
        if env is not None:
            env.unwrapped.downward_lib.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _view(self, state: Any) -> View:
        won = bool(state["won"])
        return View(state["feedback"], self.game.task, tuple(state["admissible_commands"]), int(won), won, won)


def _official_env() -> Any:
    """The official environment of one game as alfworld's own AlfredTWEnv wraps it."""
    try:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv, textgen
    except ImportError as error:
        raise UsageError(
            f"The official environment needs the extra alfworld ({error}): run `{installing('alfworld')}`, "
            "or play with --environment fast."
        ) from None
    if textgen.EvalSymbol.derive is not _derive:
        textgen.EvalSymbol.derive = _derive
    return AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)


def _derive(symbol: Any, context: Any = None) -> list[Any]:
    """EvalSymbol.derive of TextWorld 1.7.0, with the names handed to eval that it puts into locals() instead.

    Since CPython 3.13 (PEP 667) what is written to locals() reaches no eval. The text evaluated is the same, and comes
    from a grammar that `Game` has found to be ALFWorld's.
    """
    from textworld.envs.pddl import textgen

    context = context or symbol.context
    names = {"self": symbol, "context": context, **context["variables"]}
    return [textgen.TerminalSymbol(eval(symbol.expression, vars(textgen), names))]


@contextmanager
def process_kept() -> Iterator[None]:
    """Leaves the process as it was: none of what the official stack changes in it is ours to change.

    Importing alfworld draws from numpy's global generator and sets ALFWORLD_DATA; fast_downward.pddl2sas writes its own
    sys.argv.
    """
    argv, data, generator = sys.argv, os.environ.get("ALFWORLD_DATA"), np.random.get_state()
    try:
        yield
    finally:
        sys.argv = argv
        np.random.set_state(generator)
        if data is None:
            os.environ.pop("ALFWORLD_DATA", None)

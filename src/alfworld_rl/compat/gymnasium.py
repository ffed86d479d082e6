"""ALFWorld as a Gymnasium environment: text in, text out."""

import os
import string
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
from gymnasium.spaces import Text

from alfworld_rl.config.workspace import alfworld_games
from alfworld_rl.console import printable
from alfworld_rl.errors import UsageError
from alfworld_rl.games import discover
from alfworld_rl.world import Game, View, World

ENV_ID = "alfworld_rl/ALFWorld-v0"

_CHARSET = frozenset(string.ascii_letters + string.digits + string.punctuation + " \n")
_MAX_OBSERVATION = 16384  # the longest of the 299 recorded plays has 906
_MAX_ACTION = 256
_OPTIONS = ("gamefile", "game")


def register() -> None:
    """Make `gymnasium.make("alfworld_rl/ALFWorld-v0")` work, with ALFWorld's usual 50 steps a game; once is enough."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(ENV_ID, entry_point="alfworld_rl.compat.gymnasium:ALFWorldEnv", max_episode_steps=50)


class ALFWorldEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """One game after another from a pool, as text.

    The pool is `games` (paths of game.tw-pddl files), or else the `split` under `data_root` (by default where
    `config.workspace.alfworld_games` finds games). A reset with a seed shuffles it; further resets go on to the next
    games, over and over. `reset(options={"gamefile": path})` plays that game instead; "game" is another name for it,
    and other options are refused.

    An action is a command; one that the game does not admit is answered "Nothing happens." The reward is 1.0 for the
    step that wins, which also terminates; the step limit is Gymnasium's own (`gymnasium.make` sets 50). infos hold
    `admissible_commands` (list of str), `won` (bool), `score` (0 or 1), `task` and `gamefile`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "human"], "render_fps": 4}

    def __init__(
        self,
        games: Sequence[str | os.PathLike[str]] | None = None,
        *,
        data_root: str | os.PathLike[str] | None = None,
        split: str = "train",
        render_mode: str | None = None,
    ) -> None:
        if games is None:
            games = [game.path for game in discover(alfworld_games(data_root), split).games]
        if not games:
            raise UsageError("No games to play: games is empty.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render_mode is {render_mode!r}; it can be 'ansi' or 'human'.")
        self.observation_space = Text(_MAX_OBSERVATION, min_length=0, charset=_CHARSET)
        self.action_space = Text(_MAX_ACTION, min_length=0, charset=_CHARSET)
        self.render_mode = render_mode
        self._games = [Path(game) for game in games]
        self._order: list[int] = []
        self._gamefile = self._games[0]
        self._world: World | None = None
        self._text = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._order = []
        if gamefile := _asked_for(options):
            self._gamefile = gamefile
        else:
            if not self._order:
                self._order = self.np_random.permutation(len(self._games)).tolist()
            self._gamefile = self._games[self._order.pop()]
        self._world = World(Game.load(self._gamefile))
        return self._answer(self._world.view, "")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._world is None:
            raise UsageError("Call reset before step.")
        before = self._world.view
        view = self._world.step(action)
        observation, info = self._answer(view, f"> {action}\n")
        return observation, float(view.score - before.score), view.done, False, info

    def render(self) -> str | None:
        return self._text if self.render_mode == "ansi" else None

    def close(self) -> None:
        self._world = None

    def _answer(self, view: View, prompt: str) -> tuple[str, dict[str, Any]]:
        # A game file may name things in any script; the space promises ASCII of a bounded length.
        observation = "".join(c if c in _CHARSET else "?" for c in view.observation[:_MAX_OBSERVATION])
        self._text = printable(prompt + view.observation)
        if self.render_mode == "human":
            print(self._text)
        info = {
            "admissible_commands": list(view.admissible_commands),
            "won": view.won,
            "score": view.score,
            "task": view.task,
            "gamefile": str(self._gamefile),
        }
        return observation, info


def _asked_for(options: dict[str, Any] | None) -> Path | None:
    """The game that the options of a reset name, if they name one. Raises UsageError for other options."""
    options = options or {}
    for name in options:
        if name not in _OPTIONS:
            nearest = get_close_matches(str(name), _OPTIONS, 1, 0) or _OPTIONS
            raise UsageError(f"reset knows no option {name!r}; the nearest that it knows is {nearest[0]!r}.")
    given = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, str | os.PathLike):
            raise UsageError(f"The option {name!r} is {value!r}; it has to be the path of a game.tw-pddl.")
    if len(given) > 1:
        raise UsageError(f"The options {' and '.join(map(repr, given))} mean the same; pass one of them.")
    return next((Path(value) for value in given.values()), None)

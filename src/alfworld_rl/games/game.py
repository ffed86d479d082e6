"""A game file of ALFWorld (`game.tw-pddl`), read once into small immutable tables.

A game file is data from strangers. It is read with `json` and a few linear scans: nothing in it is evaluated,
nothing recurses over it, and what is not exactly ALFWorld's is refused with a `GameFileError`.
"""

import json
import os
import stat
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.games.problem import Goal, ProblemError, tables
from alfworld_rl.games.rules import Wording, known_domain, known_grammar

MAX_FILE_BYTES = 2 * 1024 * 1024
"""ALFWorld's largest game file has 138 kB."""


class GameFileError(AlfworldRLError):
    """A game file cannot be played; the message names the file and what is wrong with it."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(path, problem)  # both, so that the error can be sent to another process
        self.path = Path(path)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Game:
    """One game, parsed: immutable, and shared by every `World` that plays it.

    Objects, receptacles and places are numbered in the order of their raw ids, the order of every list that the
    player reads; a set of objects is an int whose bit i stands for object i.
    """

    path: Path
    task: str
    """The sentence after "Your task is to: "."""
    task_type: str
    walkthrough: tuple[str, ...]
    """Commands that win, as the file gives them; empty where it gives none."""
    solvable: bool
    wording: Wording
    has_help: bool
    """Whether the player may ask for help."""

    objects: tuple[str, ...]
    """Names as the player reads them, "egg 2"."""
    receptacles: tuple[str, ...]
    places: tuple[str, ...]
    """Names, "loc 12"; the player reads them in games of before alfworld 0.4 only."""
    place_of: tuple[int, ...]
    """The place of each receptacle."""
    receptacles_at: tuple[tuple[int, ...], ...]
    """The receptacles of each place."""
    openable_at: tuple[int, ...]
    """The set of those that open and close."""
    start: int
    """The place where the player begins."""
    inside: tuple[int, ...]
    """The objects in each receptacle at the start."""
    lying: tuple[int, ...]
    """The objects at each place at the start: a relation of its own, not always that of `inside`."""
    holds: tuple[int, ...]
    """The objects that may be moved to each receptacle."""
    openable: int
    pickupable: int
    cleanable: int
    heatable: int
    coolable: int
    sliceable: int
    toggleable: int
    knives: int
    sinks: int
    microwaves: int
    fridges: int
    opened: int
    clean: int
    hot: int
    cool: int
    sliced: int
    toggled: int
    contents: Mapping[int, tuple[int, ...]]
    """The objects in each object that is a container; they never change."""
    goal: Goal

    kept: dict[Hashable, Any] = field(default_factory=dict)
    """Texts and command lists that worlds of this game have worked out already; they see to its size."""
    commands: dict[str, Any] = field(default_factory=dict)
    """The commands that worlds of this game have understood already."""

    def __repr__(self) -> str:
        return f"Game({str(self.path)!r}, task={self.task!r})"

    @classmethod
    def load(cls, path: Path | str) -> "Game":
        """Reads the game file at `path`. Raises GameFileError."""
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # reading a named pipe would wait for ever
                raise ValueError("it is no file")
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:  # ValueError: a path that no file can have
            problem = error.strerror if isinstance(error, OSError) else error
            raise GameFileError(path, f"the game file cannot be read: {problem}.") from None
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: bytes | str, path: Path | str) -> "Game":
        """The game in `data`, the content of a game file; `path` is only remembered. Raises GameFileError."""
        return _parse(data, Path(path))


_NOT_PLAYED = " (those of alfworld 0.3 and 0.4 are played); download the games again with alfworld-download."


def _parse(data: bytes | str, path: Path) -> Game:
    def refuse(problem: str) -> NoReturn:
        raise GameFileError(path, problem) from None

    if len(data) > MAX_FILE_BYTES:
        refuse(f"the file is larger than {MAX_FILE_BYTES // 2**20} MiB, no game of ALFWorld is.")
    try:
        game = json.loads(data)
    except UnicodeDecodeError:
        refuse("the file is not UTF-8 text.")
    except RecursionError:
        refuse("the JSON is nested too deeply.")
    except ValueError as error:
        refuse(f"the file is not complete JSON ({error}); download it again.")
    if not isinstance(game, dict):
        refuse("the file holds no JSON object.")
    for key in ("pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"):
        if key not in game:
            refuse(f"the key {key!r} is missing.")
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game[key], str):
            refuse(f"{key!r} is not a text.")
    walkthrough = game["walkthrough"] or ()
    if not isinstance(walkthrough, list | tuple) or not all(isinstance(command, str) for command in walkthrough):
        refuse("'walkthrough' is not a list of commands.")
    domain = known_domain(game["pddl_domain"])
    if domain is None:
        refuse(f"the PDDL domain is none of ALFWorld's{_NOT_PLAYED}")
    grammar = known_grammar(game["grammar"], domain)
    if grammar is None:
        refuse(f"the grammar is none of ALFWorld's{_NOT_PLAYED}")
    task, wording = grammar
    try:
        return Game(
            path=path,
            task=task,
            walkthrough=tuple(walkthrough),
            solvable=game["solvable"] is True,
            wording=wording,
            has_help=domain.has_help,
            **tables(game["pddl_problem"], domain.sinks),
        )
    except ProblemError as error:
        refuse(str(error))


def bits(mask: int) -> Iterator[int]:
    """The numbers in a set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

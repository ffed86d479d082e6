"""Holds our world against plays recorded from the official stack.

    python -m alfworld_rl.world.replay DATA_ROOT PLAYS.jsonl[.xz] ...

A line of such a file is one game: `game` (its path under json_2.1.1), `observation`, `admissible`, and `steps` with
`command`, `observation`, `score`, `done`, `won`, `admissible`.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.world import Game, View, World


def recorded(path: Path) -> Iterator[dict[str, Any]]:
    """The plays in a file, one a line, xz-compressed or not. Raises UsageError."""
    number = 0
    try:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else open(path, encoding="utf-8") as lines:
            for line in lines:
                number += 1
                play = json.loads(line)
                if not isinstance(play, dict) or not {"game", "observation", "admissible", "steps"} <= play.keys():
                    raise ValueError("no play")
                yield play
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise UsageError(f"{path}: line {number} is no recorded play ({error}).") from None


def first_difference(world: World, play: Mapping[str, Any]) -> str | None:
    """Where the recorded play and `world` part, in a few words; None if they never do."""
    view = world.reset()
    if (view.observation, list(view.admissible_commands)) != (play["observation"], play["admissible"]):
        return "the opening"
    for number, step in enumerate(play["steps"], 1):
        said = _said(world.step(step["command"]))
        if differing := [key for key in said if said[key] != step[key]]:
            return f"step {number}, {step['command']!r}: {', '.join(differing)}"
    return None


def _said(view: View) -> dict[str, Any]:
    return {
        "observation": view.observation,
        "score": view.score,
        "done": view.done,
        "won": view.won,
        "admissible": list(view.admissible_commands),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m alfworld_rl.world.replay", description=(__doc__ or "").strip())
    parser.add_argument("data_root", type=Path, help="the folder that holds json_2.1.1")
    parser.add_argument("plays", type=Path, nargs="+", help="what record_traces.py wrote")
    args = parser.parse_args(arguments)
    replayed = differing = 0
    try:
        for path in args.plays:
            for play in recorded(path):
                replayed += 1
                world = World(Game.load(args.data_root / "json_2.1.1" / play["game"]))
                if difference := first_difference(world, play):
                    differing += 1
                    print(f"{play['game']}: {difference}")
    except AlfworldRLError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{replayed} plays replayed, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

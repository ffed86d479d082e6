"""Houses of games: which are kept for validation."""

import hashlib
import random
from collections.abc import Sequence

from alfworld_rl.errors import UsageError
from alfworld_rl.types import Task

HELD_OUT_ONE_IN = 12
"""One scene in twelve is held out for validation: whole scenes, since other games of a scene give it away."""


def scene_of(game_id: str) -> str:
    """The house of a game: ALFRED numbers its scenes at the end of a task's folder name.

    What another environment names otherwise is a scene of its own.
    """
    folders = game_id.split("/")
    return folders[-2].rpartition("-")[2] if len(folders) > 1 else game_id


def held_out(game_id: str) -> bool:
    """Whether the game is in a scene that is kept for validation, whatever other games there are."""
    return hashlib.sha256(scene_of(game_id).encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def split_by_scene[T: Task](games: Sequence[T], count: int, seed: int) -> tuple[list[T], list[T]]:
    """The games to learn from, none of a held-out scene, and at most `count` of those to validate on.

    Raises UsageError where either would be empty.
    """
    kept = [game for game in games if held_out(game.game_id)]
    learned = [game for game in games if not held_out(game.game_id)]
    if not (kept and learned):
        which = "every" if kept else "no"
        raise UsageError(f"{which} game is of a held-out scene; give more games, or --eval-games 0")
    random.Random(seed).shuffle(kept)
    return learned, kept[:count]

"""`alfworld-rl games list` and `alfworld-rl games generate`."""

import sys
from collections import Counter
from pathlib import Path
from typing import Literal

from alfworld_rl.commands.common import GAMES_HELP, CommandConfig
from alfworld_rl.config import option
from alfworld_rl.config.workspace import alfworld_games
from alfworld_rl.console import answer, for_people
from alfworld_rl.errors import UsageError
from alfworld_rl.games import SPLITS, TASK_TYPES, discover
from alfworld_rl.games.generate import generate


class ListConfig(CommandConfig):
    """Count the games by split and task type, and what was left out and why."""

    data_root: Path | None = option(None, GAMES_HELP, metavar="DIR")
    split: Literal["train", "valid_seen", "valid_unseen"] | None = option(
        None, "print the paths of this split's games, in order"
    )


class GenerateConfig(CommandConfig):
    """Make new solvable houses and tasks of all six types in ALFWorld's own file format.

    The same settings make the same files; a folder that holds other games is refused.
    """

    data_root: Path = option(..., "an empty or new folder", metavar="DIR")
    train: int = option(0, "games to train on")
    valid_seen: int = option(0, "games in train's houses")
    valid_unseen: int = option(0, "games in other houses")
    seed: int = option(0, "of everything that is drawn", metavar="S")


def run_generate(config: GenerateConfig) -> int:
    counts = generate(
        config.data_root,
        train=config.train,
        valid_seen=config.valid_seen,
        valid_unseen=config.valid_unseen,
        seed=config.seed,
    )
    print(f"Generated {', '.join(f'{count} {split}' for split, count in counts.items())} games in {config.data_root}")
    return 0


def run_list(config: ListConfig) -> int:
    """With --split: paths on stdout, one a line, for other programs; the counts go to stderr then."""
    with for_people(aside=config.split is not None):
        return _list(config)


def _list(config: ListConfig) -> int:
    data_root = alfworld_games(config.data_root)
    print(f"Games of {data_root}")
    found = 0
    refusal: UsageError | None = None
    for split in [config.split] if config.split else SPLITS:
        try:
            listing = discover(data_root, split)
        except UsageError as error:
            refusal = error
            continue
        found += len(listing.games)
        types = Counter(game.task_type for game in listing.games)
        print(f"{split}: {len(listing.games)} games")
        for task_type in TASK_TYPES:
            print(f"  {types[task_type]:6}  {task_type}")
        for reason, count in listing.left_out.items():
            print(f"  {count:6}  left out: {reason}")
        for file in listing.broken:
            print(f"  broken: {file}", file=sys.stderr)
        if config.split:
            for game in listing.games:
                answer(str(game.path))
    if not found and refusal:
        raise refusal
    return 0

"""`alfworld-rl games list` and `alfworld-rl games generate`."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from alfworld_rl.errors import UsageError
from alfworld_rl.games.discovery import RELEASE, SPLITS, TASK_TYPES, discover
from alfworld_rl.games.generate import generate


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add `games` and its commands; each sets `run_command`, which takes the arguments and returns an exit code."""
    games = subparsers.add_parser("games", help="list the games of a data root, or make new ones")
    commands = games.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="count the games by split and task type, and what was left out and why")
    listing.add_argument("--data-root", type=Path, required=True, metavar="DIR", help=f"the folder that has {RELEASE}")
    listing.add_argument("--split", choices=SPLITS, help="print the paths of this split's games, in order")
    listing.set_defaults(run_command=_list)

    making = commands.add_parser(
        "generate",
        help="make new solvable houses and tasks in ALFWorld's own file format",
        description="Make new solvable houses and tasks of all six types in ALFWorld's own file format. "
        "The same settings make the same files; a folder that holds other games is refused.",
    )
    making.add_argument("--data-root", type=Path, required=True, metavar="DIR", help="an empty or new folder")
    making.add_argument("--train", type=int, default=0, metavar="N", help="games to train on (default: 0)")
    making.add_argument("--valid-seen", type=int, default=0, metavar="N", help="games in train's houses (default: 0)")
    making.add_argument("--valid-unseen", type=int, default=0, metavar="N", help="games in other houses (default: 0)")
    making.add_argument("--seed", type=int, default=0, metavar="S", help="of everything that is drawn (default: 0)")
    making.set_defaults(run_command=_generate)

    for command in (listing, making):
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _generate(args: argparse.Namespace) -> int:
    counts = generate(
        args.data_root,
        train=args.train,
        valid_seen=args.valid_seen,
        valid_unseen=args.valid_unseen,
        seed=args.seed,
    )
    print(f"Generated {', '.join(f'{count} {split}' for split, count in counts.items())} games in {args.data_root}")
    return 0


def _list(args: argparse.Namespace) -> int:
    """With --split: paths on stdout, one a line, for other programs; the counts go to stderr then."""
    counts_to = sys.stderr if args.split else sys.stdout
    found = 0
    refusal: UsageError | None = None
    for split in [args.split] if args.split else SPLITS:
        try:
            listing = discover(args.data_root, split)
        except UsageError as error:
            refusal = error
            continue
        found += len(listing.games)
        types = Counter(game.task_type for game in listing.games)
        print(f"{split}: {len(listing.games)} games", file=counts_to)
        for task_type in TASK_TYPES:
            print(f"  {types[task_type]:6}  {task_type}", file=counts_to)
        for reason, count in listing.left_out.items():
            print(f"  {count:6}  left out: {reason}", file=counts_to)
        for file in listing.broken:
            print(f"  broken: {file}", file=sys.stderr)
        if args.split:
            for game in listing.games:
                print(game.path)
    if not found and refusal:
        raise refusal
    return 0

"""How long it takes to have a split's games listed and ready to open, against the official collect_game_files.

    python benchmarks/listing.py --data-root DATA [--split train] [--repeats 5]

Needs the extra `alfworld` and real games (the target is for train's 3,553). Both have to find the same games; the
first listing, which reads every file, is measured on an empty index, a warm one after it. The index that is already
there is left alone. Exits with 1 if the target is missed.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter, process_time

from alfworld_rl.games.discovery import RELEASE, SPLITS, Listing, discover
from alfworld_rl.world import Game, World

TARGET_S = 0.3
OFFICIAL_SPLITS = {
    "train": ("train", "data_path"),
    "valid_seen": ("eval_in_distribution", "eval_id_data_path"),
    "valid_unseen": ("eval_out_of_distribution", "eval_ood_data_path"),
}


def official_listing(data_root: Path, split: str) -> list[str]:
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

    train_eval, key = OFFICIAL_SPLITS[split]
    config = {
        "env": {"goal_desc_human_anns_prob": 0.0, "task_types": [1, 2, 3, 4, 5, 6]},
        "dataset": {key: str(data_root / RELEASE / split), "num_train_games": -1, "num_eval_games": -1},
    }
    return list(AlfredTWEnv(config, train_eval=train_eval).game_files)


def listed_and_opened(data_root: Path, split: str) -> Listing:
    """The listing, and the first game on the screen: what a run waits for before it begins."""
    listing = discover(data_root, split)
    World(Game.load(listing.games[0].path)).reset()
    return listing


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="the smallest run: does it still work? No speed is judged")
    args = parser.parse_args(argv)
    if args.short:
        args.split, args.repeats = "valid_unseen", 1

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        official_listing(args.data_root, "valid_unseen")  # imports
        begin, cpu = perf_counter(), process_time()
        theirs = official_listing(args.data_root, args.split)
        official = perf_counter() - begin, process_time() - cpu

    with tempfile.TemporaryDirectory() as elsewhere:
        # A data root of links, so that the index is new and goes away afterwards.
        root = Path(elsewhere) / "data"
        (root / RELEASE).mkdir(parents=True)
        (root / RELEASE / args.split).symlink_to(args.data_root.resolve() / RELEASE / args.split)
        begin, cpu = perf_counter(), process_time()
        listing = listed_and_opened(root, args.split)
        first = perf_counter() - begin, process_time() - cpu
        times = []
        for _ in range(args.repeats):
            begin, cpu = perf_counter(), process_time()
            again = listed_and_opened(root, args.split)
            times.append((perf_counter() - begin, process_time() - cpu))
            assert again == listing
    warm = statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)

    ours = {game.game_id for game in listing.games}
    release = args.data_root / RELEASE
    if ours != {Path(file).parent.relative_to(release).as_posix() for file in theirs}:
        print("The two listings differ.")
        return 1
    print(f"{args.split}: {len(ours)} games, the same in both listings{'':<10}{'wall':>10}{'CPU':>10}")
    for name, (wall, cpu) in (("official", official), ("ours, first", first), ("ours, warm", warm)):
        print(f"{name:<50}{wall:>10.3f} s{cpu:>8.3f} s{official[1] / cpu:>10.1f}x")
    reached = warm[1] <= TARGET_S
    print(f"target: warm at most {TARGET_S} s of CPU: {'reached' if reached else 'missed'}")
    return 0 if reached or args.short else 1


if __name__ == "__main__":
    sys.exit(main())

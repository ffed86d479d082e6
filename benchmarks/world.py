"""How many times faster our world is than the official stack, on the same real games and commands, in one run.

    python benchmarks/world.py --data-root DATA [--games 4] [--steps 12]

Needs the extra `alfworld` and real games. The official stack takes nearly all of the two minutes; both have to give
the same views. Exits with 1 if a target is missed.
"""

import argparse
import random
import statistics
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

from alfworld_rl.world import Game, World
from alfworld_rl.world.textworld import TextWorldWorld

REPEATS = 15


def seconds(act: Callable[..., object], *given: object) -> float:
    """CPU seconds, so that what else runs on the machine does not count."""
    begin = process_time()
    act(*given)
    return process_time() - begin


def play(world: World, chosen: list[str]) -> None:
    for command in chosen:
        world.step(command)


def reset_often(world: World, times: int) -> None:
    for _ in range(times):
        world.reset()


def resident_mb() -> float:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096 / 1e6


def commands(game: Game, steps: int, rng: random.Random) -> list[str]:
    """The game's walkthrough with random admissible commands between."""
    world, plan, chosen = World(game), list(game.walkthrough), []
    for _ in range(steps):
        admissible = world.view.admissible_commands
        follow = plan and plan[0] in admissible and rng.random() < 0.5
        chosen.append(plan.pop(0) if follow else rng.choice(admissible))
        world.step(chosen[-1])
    return chosen


def row(name: str, official: float, ours: float, target: int) -> bool:
    ratio = official / ours
    print(f"{name:<44}{official * 1e3:>12.1f} ms{ours * 1e6:>12.2f} us{ratio:>12,.0f}x   target {target:,}x")
    return ratio >= target


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", type=Path, required=True, help="the folder that holds json_2.1.1")
    parser.add_argument("--games", type=int, default=4, help="games that both play (default: 4)")
    parser.add_argument("--steps", type=int, default=12, help="commands a game (default: 12)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="the smallest run: does it still work? No speed is judged")
    args = parser.parse_args(argv)
    repeats = REPEATS
    if args.short:
        args.games, args.steps, repeats = 1, 2, 1
    paths = sorted((args.data_root / "json_2.1.1").rglob("game.tw-pddl"))
    if len(paths) < max(args.games, 8):
        parser.error(f"{args.data_root} holds {len(paths)} games, fewer than are played here")
    rng = random.Random(args.seed)
    rng.shuffle(paths)
    played = [(path, commands(Game.load(path), args.steps, rng)) for path in paths[: args.games]]

    TextWorldWorld(paths[0]).close()  # imports everything, which is not counted
    before_mb = resident_mb()
    their_unseen, their_reset, their_steps, their_views, kept = [], [], [], [], []
    for path, chosen in played:
        begin = process_time()
        world = TextWorldWorld(path)
        views = [world.reset()]
        their_unseen.append(process_time() - begin)
        their_reset.append(seconds(world.reset))
        for command in chosen:
            begin = process_time()
            views.append(world.step(command))
            their_steps.append(process_time() - begin)
        their_views.append(views)
        kept.append(world)
    their_mb = (resident_mb() - before_mb) / len(kept)

    our_unseen, our_reset, our_first, our_steps = [], [], [], []
    for (path, chosen), views in zip(played, their_views, strict=True):
        for _ in range(repeats):
            begin = process_time()
            ours = World(Game.load(path))
            our_unseen.append(process_time() - begin)
            # The first world to play a game builds every text; the copies of a group find most of them.
            our_first.append(seconds(play, ours, chosen) / len(chosen))
            our_reset.append(seconds(reset_often, ours, REPEATS) / REPEATS)
            our_steps.append(seconds(play, ours, chosen) / len(chosen))
        if views != [ours.reset(), *map(ours.step, chosen)]:
            print(f"{path}: the two do not agree", file=sys.stderr)
            return 1

    mean = statistics.mean
    print(f"{args.games} games, {len(their_steps)} commands; views agree\n")
    print(f"{'':<44}{'official':>15}{'ours':>15}{'ratio':>13}")
    met = [
        row("reset of a game not seen before", mean(their_unseen), mean(our_unseen), 300),
        row("reset of a game already parsed", mean(their_reset), mean(our_reset), 20_000),
        row("step, first world of a game", mean(their_steps), mean(our_first), 2_000),
        row("step, other worlds of the game", mean(their_steps), mean(our_steps), 2_000),
    ]

    tracemalloc.start()
    worlds = [World(game) for game in map(Game.load, paths[:8]) for _ in range(8)]
    for world in worlds:
        for _ in range(30):
            world.step(rng.choice(world.view.admissible_commands))
    our_mb = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    print(f"\n64 worlds of 8 games, 30 steps each: {our_mb:.1f} MB (target: under 10 MB);", end=" ")
    print(f"official: {their_mb:.0f} MB for each world of this process, imports aside")
    for world in kept:
        world.close()
    return 0 if args.short or (all(met) and our_mb < 10) else 1


if __name__ == "__main__":
    sys.exit(main())

"""How much play `alfworld-rl serve` takes: many sessions at once, every answer held against a recorded play.

    python benchmarks/serve.py --data-root DATA --plays PLAYS.jsonl[.xz] ... [--sessions 1000] [--official-sessions 8]

The server is a process of its own on loopback; the clients are OpenEnv's, all of them in this process, so that each has
one core of two. Three rows: our engine with every session asking as fast as it can, our engine at half that rate (what
a session then waits is the server's time, not its turn in the queue), and the official stack behind the same server.
Exits with 1 if an answer differs from the recording by one character.
"""

import argparse
import asyncio
import itertools
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from openenv import GenericEnvClient

from alfworld_rl.world.replay import recorded

CONNECTING = 50  # handshakes at once: the others wait here rather than in the server's backlog


@dataclass
class Load:
    """What a load gave: seconds of every step as its client saw them, and the plays that went another way."""

    sessions: int
    step_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    differing: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.step_seconds) / self.seconds

    def quantile(self, share: float) -> float:
        return sorted(self.step_seconds)[min(int(share * len(self.step_seconds)), len(self.step_seconds) - 1)]


@contextmanager
def serving(data_root: Path, environment: str, sessions: int) -> Iterator[str]:
    """The address of a server of its own."""
    command = [sys.executable, "-m", "alfworld_rl.cli", "serve", "--data-root", str(data_root), "--port", "0"]
    command += ["--environment", environment, "--max-sessions", str(sessions), "--max-episode-steps", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if " at http" not in line:
                raise SystemExit(f"the server did not start: {line}")
            yield line.partition(" at ")[2].split()[0]
        finally:
            server.terminate()


def difference(play: Mapping[str, Any], number: int, result: Any) -> str | None:
    """Whether the answer to command `number` (0: the opening) is what was recorded."""
    said = result.observation
    shown = {"observation": said["text"], "admissible": said["admissible_commands"]}
    if number:
        shown |= {"score": said["score"], "done": result.done, "won": said["won"]}
    wanted = play["steps"][number - 1] if number else play
    wrong = [key for key, value in shown.items() if value != wanted[key]]
    return f"{play['game']}: answer {number}, {', '.join(wrong)}" if wrong else None


async def session(
    url: str,
    play: Mapping[str, Any],
    steps: int,
    load: Load,
    gate: asyncio.Semaphore,
    start: asyncio.Barrier,
    pause: float,
) -> None:
    client = GenericEnvClient(url, connect_timeout_s=60, message_timeout_s=600)
    rng = random.Random(play["game"])
    try:
        async with gate:
            await client.connect()
            game = play["game"].removesuffix("/game.tw-pddl")
            problem = difference(play, 0, await client.reset(game_id=game))
        await start.wait()  # every session is open before any goes on
        for number, step in enumerate(play["steps"][:steps], 1):
            if problem:
                break
            if pause:
                await asyncio.sleep(pause * 2 * rng.random())
            begin = perf_counter()
            result = await client.step({"command": step["command"]})
            load.step_seconds.append(perf_counter() - begin)
            problem = difference(play, number, result)
        if problem:
            load.differing.append(problem)
    finally:
        await client.close()


async def loaded(url: str, plays: Sequence[Mapping[str, Any]], sessions: int, steps: int, pause: float = 0.0) -> Load:
    load, gate = Load(sessions), asyncio.Semaphore(CONNECTING)
    start = asyncio.Barrier(sessions + 1)
    async with asyncio.TaskGroup() as players:
        for play in itertools.islice(itertools.cycle(plays), sessions):
            players.create_task(session(url, play, steps, load, gate, start, pause))
        await start.wait()
        begin = perf_counter()
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/metrics").read().decode())
        if f"\nalfworld_sessions {sessions:.1f}\n" not in text:
            raise SystemExit(f"the server does not count {sessions} sessions")
    load.seconds = perf_counter() - begin
    return load


def row(name: str, load: Load) -> None:
    print(
        f"{name:<34}{load.sessions:>9,}{len(load.step_seconds):>9,}{load.rate:>11,.0f}"
        f"{load.quantile(0.5) * 1e3:>12,.1f}{load.quantile(0.99) * 1e3:>12,.1f}{len(load.differing):>9}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", type=Path, required=True, help="the folder that holds json_2.1.1")
    parser.add_argument("--plays", type=Path, nargs="+", required=True, help="what record_traces.py wrote")
    parser.add_argument("--sessions", type=int, default=1000, help="at once, on our engine (default: 1000)")
    parser.add_argument("--steps", type=int, default=1000, help="commands of a play at most (default: all)")
    parser.add_argument("--official-sessions", type=int, default=8, help="on the official stack (default: 8; 0: none)")
    parser.add_argument("--official-steps", type=int, default=6, help="commands of a play there (default: 6)")
    args = parser.parse_args()
    plays = [play for path in args.plays for play in recorded(path)]
    random.Random(0).shuffle(plays)

    print(f"{'':<34}{'sessions':>9}{'steps':>9}{'steps/s':>11}{'median ms':>12}{'p99 ms':>12}{'differ':>9}", flush=True)
    loads = []
    with serving(args.data_root, "fast", args.sessions) as url:
        loads.append(asyncio.run(loaded(url, plays, args.sessions, args.steps)))
        row("ours, as fast as it goes", loads[-1])
        pause = 2 * args.sessions / loads[0].rate
        loads.append(asyncio.run(loaded(url, plays, args.sessions, min(args.steps, 10), pause)))
        row("ours, at half that rate", loads[-1])
    if args.official_sessions:
        with serving(args.data_root, "textworld", args.official_sessions) as url:
            loads.append(asyncio.run(loaded(url, plays, args.official_sessions, args.official_steps)))
            row("official, as fast as it goes", loads[-1])
        print(f"\n{loads[0].rate / loads[-1].rate:,.0f} times as many steps a second")
    for problem in [problem for load in loads for problem in load.differing][:10]:
        print(problem, file=sys.stderr)
    return 1 if any(load.differing for load in loads) else 0


if __name__ == "__main__":
    sys.exit(main())

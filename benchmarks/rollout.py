"""Free-running rollouts against a lock-step loop, over one simulated service and real games, in one run.

    uv run --extra local python benchmarks/rollout.py --data-root 08-alfworld/datasets/alfworld

The service answers after log-normal latencies (median 1.5 s, sigma 0.6, times --scale), the same ones for both
schedulers. Printed beside what is asked of it: wall time as a ratio to the waits that no scheduler can avoid, the
lock-step loop as a ratio to ours, our own work a turn, and the memory of 64 trajectories of 12,000 tokens.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from alfworld_rl.agents import FORMATS, match_action
from alfworld_rl.agents.texts import NOTHING_HAPPENS
from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.backends.local import builtin
from alfworld_rl.envs import AlfworldFamily
from alfworld_rl.games import GameRef, discover
from alfworld_rl.rollouts import Group, Limits, rollout
from alfworld_rl.rollouts.seeds import request_seed
from alfworld_rl.types import Completion, Sampled, SamplingParams, Usage
from alfworld_rl.world import Game, View, World

GAMES, GROUP_SIZE = 8, 8
SEED_PATH = (42, 0)


class Script:
    """What a middling model would write: each game's walkthrough with detours, more or fewer of them by branch.

    With `thoughts` it only ever thinks them and looks around.
    """

    def __init__(self, games: Sequence[GameRef], tokenizer, thoughts: str = "") -> None:
        protocol = FORMATS["tool-call"](tokenizer)
        before = tokenizer.encode(thoughts, add_special_tokens=False) if thoughts else []

        @functools.cache
        def message(command: str) -> tuple[int, ...]:
            return (*before, *protocol.write(command))

        self.messages: dict[int, list[tuple[int, ...]]] = {}
        for game in games:
            walkthrough = () if thoughts else Game.load(game.path).walkthrough
            opening = self.messages.setdefault(request_seed(*SEED_PATH, game.game_id, "opening", 0), [])
            for branch in range(GROUP_SIZE):
                rng = random.Random(f"{game.game_id} {branch}")
                detours = rng.uniform(0.7, 1.0)
                steps = iter(walkthrough)
                wanted = [next(steps, "look") if rng.random() > detours else "look" for _ in range(300)]
                opening.append(message(wanted[0]))
                for turn, command in enumerate(wanted[1:], 1):
                    self.messages[request_seed(*SEED_PATH, game.game_id, branch, turn)] = [message(command)]


class Service:
    """Answers by the script, and takes its time."""

    def __init__(self, tokenizer, script: Script, scale: float, in_flight: float = math.inf) -> None:
        self.tokenizer = tokenizer
        self.latencies: dict[int, float] = {}
        self.work: list[float] = []
        self._script = script
        self._scale = scale
        self._free = asyncio.Semaphore(int(in_flight)) if in_flight < math.inf else None
        self._answered: dict[asyncio.Task[Any] | None, float] = {}

    async def sample(self, prompt, params: SamplingParams, *, n=1) -> Sampled:
        task = asyncio.current_task()
        if (answered := self._answered.pop(task, None)) is not None:
            # Nothing between an answer and the next request gives way to others: this is one turn's own work.
            self.work.append(time.perf_counter() - answered)
        latency = self.latencies[params.seed] = (
            random.Random(params.seed).lognormvariate(math.log(1.5), 0.6) * self._scale
        )
        async with self._free or contextlib.nullcontext():
            await asyncio.sleep(latency)
        completions = tuple(
            Completion(
                tokens[: params.max_tokens],
                (-0.1,) * len(tokens[: params.max_tokens]),
                "stop" if len(tokens) <= params.max_tokens else "length",
            )
            for tokens in self._script.messages[params.seed]
        )
        usage = Usage(prefill=len(prompt), sampled=sum(len(one.tokens) for one in completions))
        self._answered[task] = time.perf_counter()
        return Sampled(completions, usage)


async def play(games: Sequence[GameRef], service: Service, limits: Limits) -> list[Group]:
    """Ours: every trajectory on its own."""
    agent, family = FORMATS["tool-call"](service.tokenizer), AlfworldFamily(Path())
    return await rollout(games, service, agent, family, group_size=GROUP_SIZE, limits=limits, seed_path=SEED_PATH)


async def lock_step(games: Sequence[GameRef], service: Service, limits: Limits) -> None:
    """The loop that everyone writes first: all sample, all wait for the slowest, all step."""
    protocol = FORMATS["tool-call"](service.tokenizer)
    playing: list[tuple[GameRef, int, World, View, Transcript]] = []
    requests = []
    for game in games:
        parsed = Game.load(game.path)
        opening = protocol.opening(World(parsed).view).tokens
        for branch in range(GROUP_SIZE):
            world = World(parsed)
            playing.append((game, branch, world, world.view, Transcript(opening)))
        seed = request_seed(*SEED_PATH, game.game_id, "opening", 0)
        requests.append(
            service.sample(opening, SamplingParams(max_tokens=limits.max_assistant_tokens, seed=seed), n=GROUP_SIZE)
        )
    completions = [one for sampled in await asyncio.gather(*requests) for one in sampled.completions]
    for turn in range(1, limits.max_episode_steps + 1):
        still = []
        for (game, branch, world, view, transcript), completion in zip(playing, completions, strict=True):
            transcript.write(completion)
            action = protocol.parse(completion).action
            command = match_action(action, view.admissible_commands) if action else None
            before, view = view, world.step(command) if command else world.step(NOTHING_HAPPENS)
            if view.done or turn == limits.max_episode_steps:
                continue
            transcript.show(protocol.answer(before, view, completion).tokens)
            still.append((game, branch, world, view, transcript))
        playing = still
        requests = [
            service.sample(
                transcript.prompt,
                SamplingParams(
                    max_tokens=limits.max_assistant_tokens, seed=request_seed(*SEED_PATH, game.game_id, branch, turn)
                ),
            )
            for game, branch, _, _, transcript in playing
        ]
        completions = [sampled.completions[0] for sampled in await asyncio.gather(*requests)]


def longest_chain(groups: Sequence[Group], latencies: dict[int, float]) -> float:
    """Seconds that the trajectory with the longest waits has waited for its own requests."""
    return max(
        latencies[request_seed(*SEED_PATH, group.game.game_id, "opening", 0)]
        + sum(
            latencies[request_seed(*SEED_PATH, group.game.game_id, one.branch, turn)]
            for turn in range(1, len(one.steps))
        )
        for group in groups
        for one in group.trajectories
    )


async def compare(
    games: Sequence[GameRef], tokenizer, script: Script, scale: float, in_flight: float
) -> list[tuple[str, float, str]]:
    limits = Limits(max_trajectory_tokens=1_000_000)
    service = Service(tokenizer, script, scale, in_flight)
    started = time.perf_counter()
    groups = await play(games, service, limits)
    ours = time.perf_counter() - started
    assert not any(one.failed for group in groups for one in group.trajectories)

    rival = Service(tokenizer, script, scale, in_flight)
    started = time.perf_counter()
    await lock_step(games, rival, limits)
    theirs = time.perf_counter() - started
    assert rival.latencies == service.latencies, "both schedulers must have asked for the same"

    bound = longest_chain(groups, service.latencies)
    name = "unlimited requests in flight"
    limit, rival_limit = "at most 1.05", "at least 1.6"
    if in_flight < math.inf:
        bound = max(bound, sum(service.latencies.values()) / in_flight)
        # A full service hides part of lock-step's waiting: the more work there is for each of its places, the more.
        name, limit, rival_limit = f"{in_flight:g} requests in flight", "at most 1.10", "for comparison"
    print(f"{name}: ours {ours:.2f} s, lock-step {theirs:.2f} s, no scheduler can do better than {bound:.2f} s")
    rows = [
        (f"{name}: ours / bound", ours / bound, limit),
        (f"{name}: lock-step / ours", theirs / ours, rival_limit),
    ]
    if in_flight == math.inf:
        rows.append(("work a turn, median ms", statistics.median(service.work) * 1e3, "below 2"))
    return rows


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return math.nan


async def memory(games: Sequence[GameRef], tokenizer, tokens: int) -> list[tuple[str, float, str]]:
    """Resident memory that 64 trajectories of 12,000 tokens add, games and messages included."""
    limits = Limits(max_episode_steps=1000, max_trajectory_tokens=tokens)
    script = Script(games, tokenizer, thoughts="I wonder where it could be. " * 8)
    service = Service(tokenizer, script, 0.0)
    gc.collect()
    before = resident_mb()
    groups = await play(games, service, limits)
    used = resident_mb() - before
    lengths = [len(one.transcript) for group in groups for one in group.trajectories]
    turns = [len(one.steps) for group in groups for one in group.trajectories]
    print(
        f"memory: {len(lengths)} trajectories of {min(lengths)} to {max(lengths)} tokens, {min(turns)} to "
        f"{max(turns)} turns; work a turn {statistics.median(service.work) * 1e3:.2f} ms (median)"
    )
    return [("memory of 64 trajectories, MB", used, "below 150")]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path("08-alfworld/datasets/alfworld"))
    parser.add_argument("--split", default="valid_seen")
    parser.add_argument(
        "--scale", type=float, default=0.1, help="of the latencies; too small, and the CPU is the limit"
    )
    parser.add_argument("--short", action="store_true", help="the smallest run: does it still work?")
    arguments = parser.parse_args(argv)
    listing = discover(arguments.data_root, arguments.split).games
    count, tokens, scale = (2, 1500, 0.001) if arguments.short else (GAMES, 12_000, arguments.scale)
    games = listing[:: max(1, len(listing) // count)][:count]
    tokenizer = AutoTokenizer.from_pretrained(builtin.path("alfworld-tiny"))

    rows = asyncio.run(memory(games, tokenizer, tokens))
    script = Script(games, tokenizer)
    for in_flight in (math.inf, 16):
        rows += asyncio.run(compare(games, tokenizer, script, scale, in_flight))
    for name, value, limit in rows:
        print(f"{name:48} {value:8.2f}   ({limit})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

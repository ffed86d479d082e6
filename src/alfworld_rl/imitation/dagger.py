"""DAgger: the learner plays, and learns from what the expert would have done (arXiv 1011.0686)."""

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from alfworld_rl.agents import CommandsShown
from alfworld_rl.backends.base import Sampler
from alfworld_rl.envs.base import Pool
from alfworld_rl.files import append_jsonl, read_jsonl
from alfworld_rl.imitation.demonstrations import Demonstration, completions_of
from alfworld_rl.imitation.sources import Demonstrations
from alfworld_rl.rollouts import Sampling, rollout
from alfworld_rl.types import Completion, Usage

RECENT_ROUNDS = 5
"""Rounds of the learner's plays that it learns from; older ones show mistakes that it no longer makes."""

IN_FLIGHT = 64

_Played = tuple[str, CommandsShown, list[Completion]]


@dataclass(slots=True, kw_only=True)
class DAgger:
    """What the learner did and the expert says to it, on the disk by rounds so that a run can go on.

    The file of a round is a line a trajectory: the game, how commands were shown, the messages' tokens.

    - rounds, updates: how many rounds there are, spread evenly over so many updates, with training on both sides.
    - games, sampling: what is played in a round, and how.
    """

    source: Demonstrations
    folder: Path
    pool: Pool
    runner: asyncio.Runner
    rounds: int
    updates: int
    games: int
    sampling: Sampling
    _plays: deque[list[_Played]] = field(init=False, default_factory=lambda: deque(maxlen=RECENT_ROUNDS))

    def __len__(self) -> int:
        """Plays that can be learned from now."""
        return sum(map(len, self._plays))

    def rounds_before(self, update: int) -> int:
        """Rounds that lie before `update`."""
        ends = (self.updates * number // (self.rounds + 1) for number in range(1, self.rounds + 1))
        return sum(update > end for end in ends)

    def load(self, update: int) -> None:
        """Take up the rounds that a run which goes on from `update` has played."""
        rounds = self.rounds_before(update)
        for number in range(max(1, rounds - RECENT_ROUNDS + 1), rounds + 1):
            self._plays.append([])
            for line in read_jsonl(self._file(number)):
                completions = [Completion(tuple(tokens), (0.0,) * len(tokens), "stop") for tokens in line["messages"]]
                self._plays[-1].append((line["game_id"], line["shown"], completions))

    def due(self, update: int) -> int | None:
        """The number of the round that comes before `update` learns, if one does."""
        done = self.rounds_before(update)
        return done + 1 if self.rounds_before(update + 1) > done else None

    def play(self, number: int, sampler: Sampler) -> tuple[dict[str, float], Usage]:
        """Play round `number`; returns its metrics and what it used."""
        started, seed = time.monotonic(), self.source.seed
        rng = random.Random(f"{seed}/dagger/{number}")
        commands = rng.choice(self.source.commands)
        games = rng.sample(self.source.games, min(self.games, len(self.source.games)))
        groups = self.runner.run(
            rollout(
                games,
                sampler,
                self.source.agents[commands],
                self.pool,
                limits=self.source.limits,
                sampling=self.sampling,
                seed_path=(seed, f"dagger/{number}"),
                in_flight=IN_FLIGHT,
            )
        )
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        self._file(number).unlink(missing_ok=True)  # a round that a crash cut short
        self._plays.append([])
        for trajectory in trajectories:
            if trajectory.transcript.turns:
                game_id, completions = trajectory.game.game_id, completions_of(trajectory.transcript)
                self._plays[-1].append((game_id, commands, completions))
                messages = [completion.tokens for completion in completions]
                append_jsonl(self._file(number), {"game_id": game_id, "shown": commands, "messages": messages})
        metrics = {
            "dagger/round": number,
            "dagger/success_rate": sum(one.won for one in trajectories) / max(1, len(trajectories)),
            "dagger/trajectories": len(self),
            "time/dagger": time.monotonic() - started,
        }
        return metrics, sum((group.usage for group in groups), Usage())

    def demonstration(self, number: int) -> Demonstration:
        """One of the recent plays, labelled."""
        game_id, commands, completions = random.Random(f"{self.source.seed}/pool/{number}").choice(
            list(chain(*self._plays))
        )
        return self.source.labelled(game_id, commands, completions)

    def _file(self, number: int) -> Path:
        return self.folder / f"dagger-{number}.jsonl"

"""`sft`: a warm start from demonstrations, one update after the other, each repeatable."""

# ruff: noqa: RUF009  (flag() is dataclasses.field() with checks)

import argparse
import asyncio
import functools
import hashlib
import random
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from alfworld_rl.agents import FORMATS, AgentFormat
from alfworld_rl.backends import open_backend
from alfworld_rl.backends.protocol import AdamParams, Completion, Datum, Loss, Trainer, Usage
from alfworld_rl.errors import UsageError
from alfworld_rl.files import append_line, whole_lines
from alfworld_rl.games import GameRef, discover
from alfworld_rl.learning.demonstrations import (
    Demonstration,
    PlaySettings,
    completions_of,
    demonstrate,
    imitate,
    label,
    won_plays,
)
from alfworld_rl.rollout import RolloutSettings, Trajectory, collect
from alfworld_rl.runs.flags import add_flags, flag, read_flags
from alfworld_rl.runs.folder import Record, RunFolder, Saved
from alfworld_rl.runs.games import games_hash
from alfworld_rl.runs.interrupt import StopRequest, stop_on_interrupt
from alfworld_rl.runs.output import Progress
from alfworld_rl.runs.settings import RunSettings, SwanLabMode, alfworld_games, as_json, home, resumed, run_name_problem
from alfworld_rl.runs.tracking import Tracker, check_swanlab, tracking
from alfworld_rl.runs.trainers import open_trainer
from alfworld_rl.world import Game

Shown = Literal["full", "changes", "none"]

_Played = tuple[str, Shown, list[Completion]]

RECENT_ROUNDS = 5
"""Rounds of the learner's plays that it learns from; older ones show mistakes that it no longer makes."""
PATIENCE = 4
"""Refused messages in a row after which the learner's play has nothing more to teach."""
HELD_OUT_ONE_IN = 12
"""One scene in twelve is held out for development: whole scenes, since other games of a scene give it away."""
SECONDS_BETWEEN_SAVES = 300.0
"""What a crash may cost; saving takes as long as several updates of a small model, so not every one is saved."""


@dataclass(frozen=True, kw_only=True)
class SftSettings(RunSettings):
    """`sft`: imitate the demonstrator. The defaults suit a large model with an adapter."""

    data_root: tuple[Path, ...] = flag(
        (), "folders that hold json_2.1.1; games of their train splits (default: 08-alfworld/datasets/alfworld)"
    )
    from_results: tuple[Path, ...] = flag((), "imitate the won games of these results files instead", metavar="JSONL")
    admissible_commands: tuple[Shown, ...] = flag(
        ("full",), "how the admissible commands are shown; several: each demonstration in one of them"
    )
    max_episode_steps: int = flag(50, "steps of a demonstration", low=1)
    max_trajectory_tokens: int = flag(12000, "tokens of a demonstration", low=256)
    max_assistant_tokens: int = flag(256, "tokens of one message when the model itself plays", low=1)
    perturbation: float = flag(
        0.15, "share of commands that get in the way, in two demonstrations of three (half and full)", low=0, high=0.9
    )
    exploration: float = flag(1.0, "how far every third demonstration wanders in its search", low=0)
    dagger_rounds: int = flag(0, "times that the model plays and the demonstrator labels what it did", low=0)
    dagger_games: int = flag(200, "games of one such round", low=1)
    dagger_temperature: float = flag(0.5, "sampling temperature in those games", low=0)
    observation_weight: float = flag(
        0.0, "weight of the tokens that the model only reads, beside 1 for those it should write", low=0
    )
    max_steps: int = flag(500, "updates", low=1)
    batch_tokens: int = flag(16384, "tokens of the demonstrations of one update", low=256)
    learning_rate: float = flag(1e-4, "highest learning rate", above=0)
    warmup_steps: int = flag(20, "updates over which the learning rate rises; then it falls to zero", low=0)
    beta2: float = flag(0.98, "Adam's second decay", low=0, high=0.999999)
    dev_games: int = flag(
        0, "games of held-out train scenes to play after every save; 0: hold nothing out, train on all", low=0
    )
    save_every: int = flag(100, "save, and play the held-out games, every N updates; 0: only at the end", low=0)
    seed: int = flag(42, "seed of demonstrations, of sampling and of new weights", low=0, high=2**31 - 1)
    run_name: str = flag("alfworld-sft", "name of the run folder under 08-alfworld/runs", check=run_name_problem)
    swanlab_mode: SwanLabMode = flag("disabled", "where SwanLab keeps the metrics")

    command: ClassVar[str] = "sft"

    def conflicts(self) -> list[str]:
        problems = self.run_conflicts()
        if self.max_assistant_tokens >= self.max_trajectory_tokens:
            problems.append("--max-assistant-tokens must be below --max-trajectory-tokens, or no prompt fits")
        if self.dagger_rounds and self.from_results:
            problems.append("--dagger-rounds needs the demonstrator, who is not asked where --from-results is given")
        return problems

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.data_root or (alfworld_games(),)

    def adam(self, update: int) -> AdamParams:
        """The optimizer's parameters for `update` (from 0): linear warm-up, then linear decay to zero
        (arXiv 2502.15938).
        """
        warm = min(1.0, (update + 1) / (self.warmup_steps + 1))
        left = 1 - max(0, update - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps)
        return AdamParams(
            learning_rate=self.learning_rate * min(warm, left),
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay,
            grad_clip_norm=self.grad_clip_norm,
        )


def add_parser(commands: Any) -> None:
    """The command `sft` of the command line."""
    text = "warm start from demonstrations"
    parser = commands.add_parser("sft", help=text, description=text, allow_abbrev=False)
    add_flags(parser, SftSettings)
    parser.set_defaults(run_command=_run_command)


def _run_command(arguments: argparse.Namespace) -> None:
    given = {name: value for name, value in vars(arguments).items() if name not in ("command", "run_command")}
    sft(read_flags(SftSettings, given), given=frozenset(given))


def sft(settings: SftSettings, *, given: frozenset[str] = frozenset()) -> RunFolder:
    """Train on demonstrations, or go on with such a run (`settings.resume`), and return its folder.

    Raises UsageError before anything slow or paid where the command cannot be, AlfworldRLError where the run fails,
    KeyboardInterrupt after a run that Ctrl-C ended; everything is saved then.
    """
    runs = home() / "runs"
    if settings.resume is not None:
        folder = RunFolder.existing(runs, settings.resume)
        settings = resumed(folder.settings(SftSettings), settings, given)
    check_swanlab(settings.swanlab_mode)
    source = _Source(settings)
    if settings.resume is None:
        folder = RunFolder.new(runs, settings)
    with folder.in_use():
        record = folder.record() or Record(update=0, usage=Usage(), games=source.hash)
        if record.games != source.hash:
            raise UsageError(
                f"run {folder.name} learned from other games than these; give the --data-root it was started with"
            )
        if record.finished:
            raise UsageError(f"run {folder.name} is finished; start a new one with --init-from to train it further")
        with folder.removed_if_unused():
            backend = open_backend(
                settings.backend,
                runs_dir=runs,
                run_name=folder.name,
                max_in_flight=64,
                micro_batch_tokens=settings.micro_batch_tokens,
                bfloat16=settings.bfloat16,
            )
        try:
            with folder.removed_if_unused():
                trainer = open_trainer(
                    backend,
                    record,
                    base_model=settings.model,
                    init_from=settings.init_from,
                    lora_rank=settings.lora_rank,
                    seed=settings.seed,
                )
            print(f"Run folder: {folder.path}", flush=True)
            with (
                tracking(
                    settings.swanlab_mode,
                    project=settings.swanlab_project,
                    name=folder.name,
                    config=as_json(settings) | {"run_folder": folder.name},
                    folder=folder.path,
                ) as tracker,
                stop_on_interrupt("the update") as stop,
                Progress() as progress,
            ):
                _Run(settings, folder, trainer, source, record, progress).run(tracker, stop)
        finally:
            backend.close()
    return folder


def scene_of(game_id: str) -> str:
    """The house of a game: ALFRED numbers its scenes at the end of a task's folder name."""
    return game_id.split("/")[-2].rpartition("-")[2]


def held_out(game_id: str) -> bool:
    """Whether the game is in a scene that is kept for development, whatever other games there are."""
    return hashlib.sha256(scene_of(game_id).encode()).digest()[0] % HELD_OUT_ONE_IN == 0


class _Source:
    """An endless sequence of demonstrations; each depends on the settings and its number alone."""

    def __init__(self, settings: SftSettings) -> None:
        self._settings = settings
        games = [game for root in settings.roots for game in discover(root, "train").games]
        developed = [game for game in games if held_out(game.game_id)] if settings.dev_games else []
        random.Random(settings.seed).shuffle(developed)
        self.development = developed[: settings.dev_games]
        left_out = {game.path for game in developed}
        self.games: Sequence[GameRef] = [game for game in games if game.path not in left_out]
        self._by_id = {game.game_id: game for game in self.games}
        self._load = functools.lru_cache(maxsize=5000)(Game.load)
        self._plays: list[tuple[GameRef, list[str | None]]] = []
        if settings.from_results:
            plays = [play for path in settings.from_results for play in won_plays(path)]
            self._plays = [(self._by_id[game_id], actions) for game_id, actions in plays if game_id in self._by_id]
            if not self._plays:
                raise UsageError(
                    "no won game of --from-results is in the train split under --data-root; "
                    "results of valid_seen and valid_unseen are for measuring and are not learned from"
                )
        if settings.dev_games and not (self.development and self.games):
            which = "every" if self.development else "no"
            raise UsageError(f"{which} game is of a held-out scene; give more games, or --dev-games 0")
        self.hash = games_hash(self.games)

    def demonstration(self, number: int, protocols: Mapping[Shown, AgentFormat]) -> Demonstration:
        settings = self._settings
        rng = random.Random(f"{settings.seed}/{number}")
        choices: Sequence[Any] = self._plays or self.games
        order = _shuffled(len(choices), f"{settings.seed}/{number // len(choices)}")
        shown = rng.choice(settings.admissible_commands)
        play = self.play_settings(shown)
        if self._plays:
            game, actions = self._plays[order[number % len(order)]]
            return imitate(self._load(game.path), protocols[shown], play, actions)
        play = replace(
            play,
            perturbation=settings.perturbation * rng.choice((0, 0.5, 1)),
            exploration=settings.exploration * rng.choice((0, 0, 1)),
        )
        game = self.games[order[number % len(order)]]
        return demonstrate(self._load(game.path), protocols[shown], play, rng)

    def labelled(
        self, game_id: str, shown: Shown, completions: Sequence[Completion], protocols: Mapping[Shown, AgentFormat]
    ) -> Demonstration:
        game, play = self._load(self._by_id[game_id].path), self.play_settings(shown)
        return label(game, protocols[shown], play, completions, patience=PATIENCE)

    def play_settings(self, shown: Shown) -> PlaySettings:
        return PlaySettings(
            max_episode_steps=self._settings.max_episode_steps,
            max_trajectory_tokens=self._settings.max_trajectory_tokens,
            admissible_commands=shown,
        )


@functools.lru_cache(maxsize=4)
def _shuffled(count: int, seed: str) -> Sequence[int]:
    return random.Random(seed).sample(range(count), count)


class _Pool:
    """What the learner did and the demonstrator says to it, on the disk by rounds so that a run can go on.

    The file of a round is a line a trajectory: the game, how commands were shown, the messages' tokens.
    """

    def __init__(self, folder: Path, source: _Source, protocols: Mapping[Shown, AgentFormat]) -> None:
        self._folder = folder
        self._source = source
        self._protocols = protocols
        self._rounds: deque[list[_Played]] = deque(maxlen=RECENT_ROUNDS)

    def __len__(self) -> int:
        return sum(map(len, self._rounds))

    def load(self, rounds: int) -> None:
        for number in range(max(1, rounds - RECENT_ROUNDS + 1), rounds + 1):
            self._rounds.append([])
            for line in whole_lines(self._file(number)):
                completions = [Completion(tuple(tokens), (0.0,) * len(tokens), "stop") for tokens in line["messages"]]
                self._rounds[-1].append((line["game_id"], line["shown"], completions))

    def collect(self, number: int, trainer: Trainer, settings: SftSettings) -> dict[str, float]:
        """Play round `number` with the weights as they are now; returns its metrics."""
        started = time.monotonic()
        rng = random.Random(f"{settings.seed}/dagger/{number}")
        shown = rng.choice(settings.admissible_commands)
        games = rng.sample(self._source.games, min(settings.dagger_games, len(self._source.games)))
        trajectories = _play(trainer, games, settings, shown, settings.dagger_temperature, f"dagger/{number}")
        self._file(number).unlink(missing_ok=True)  # a round that a crash cut short
        self._rounds.append([])
        for trajectory in trajectories:
            if trajectory.transcript.turns:
                game_id, completions = trajectory.game.game_id, completions_of(trajectory.transcript)
                self._rounds[-1].append((game_id, shown, completions))
                messages = [completion.tokens for completion in completions]
                append_line(self._file(number), {"game_id": game_id, "shown": shown, "messages": messages})
        won = sum(trajectory.won for trajectory in trajectories)
        return {
            "dagger/round": number,
            "dagger/success_rate": won / len(trajectories),
            "dagger/trajectories": len(self),
            "time/dagger": time.monotonic() - started,
        }

    def demonstration(self, number: int, seed: int) -> Demonstration:
        game_id, shown, completions = random.Random(f"{seed}/pool/{number}").choice(list(chain(*self._rounds)))
        return self._source.labelled(game_id, shown, completions, self._protocols)

    def _file(self, number: int) -> Path:
        return self._folder / f"dagger-{number}.jsonl"


class _Run:
    """The updates of one run, from the last saved one on."""

    def __init__(
        self,
        settings: SftSettings,
        folder: RunFolder,
        trainer: Trainer,
        source: _Source,
        record: Record,
        progress: Progress,
    ) -> None:
        self.progress = progress
        self.settings = settings
        self.folder = folder
        self.trainer = trainer
        self.source = source
        self.protocols = {
            shown: FORMATS["tool-call"](trainer.tokenizer, shown) for shown in settings.admissible_commands
        }
        self.pool = _Pool(folder.path, source, self.protocols)
        saved = record.saved
        self.record = replace(record, resumes=record.resumes + (settings.resume is not None))
        self.update = saved.update if saved else 0
        self.position = saved.position if saved else 0
        self.usage = saved.usage if saved else Usage()
        folder.go_back_to(self.update)
        self.pool.load(self._rounds_before(self.update))
        self.best = _best_so_far(folder)
        self._saved_at = time.monotonic()

    def run(self, tracker: Tracker, stop: StopRequest) -> None:
        settings, progress = self.settings, self.progress
        progress.start("update", settings.max_steps)
        while self.update < settings.max_steps and not stop.asked:
            metrics = self._one_update()
            self.update += 1
            last = self.update == settings.max_steps
            if last or stop.asked or (settings.save_every and self.update % settings.save_every == 0):
                weights = self._save()
                if settings.dev_games and not stop.asked:
                    metrics |= self._develop(weights)
            elif time.monotonic() - self._saved_at > SECONDS_BETWEEN_SAVES:
                self._saved(self.trainer.save_state(self._name("rolling")), None)
            self.folder.add_metrics({"update": self.update, **metrics})
            self.record = replace(self.record, update=self.update, usage=self.usage, finished=last)
            self.folder.write_record(self.record)
            self._drop_rolling()
            tracker.log(metrics, self.update)
            progress.advance()
            if self.update % 10 == 0 or "dev/success_rate" in metrics or "dagger/round" in metrics:
                progress.say(_line(self.update, settings.max_steps, metrics))
        if self.best is not None:
            print(
                f"Best of the held-out games: {self.best[0]:.1%} after update {self.best[1]}: {self.best[2]}",
                flush=True,
            )
        stop.leave_if_asked(f"alfworld-rl sft --resume {self.folder.name}")

    def _one_update(self) -> dict[str, float]:
        started = time.monotonic()
        metrics: dict[str, float] = {}
        done = self._rounds_before(self.update)
        if self._rounds_before(self.update + 1) > done:
            metrics |= self.pool.collect(done + 1, self.trainer, self.settings)
        data: list[Datum] = []
        tokens = demonstrations = 0
        while tokens < self.settings.batch_tokens:
            # Once the learner has played, half of what it learns from are its own plays.
            if len(self.pool) and self.position % 2:
                demonstration = self.pool.demonstration(self.position, self.settings.seed)
            else:
                demonstration = self.source.demonstration(self.position, self.protocols)
            self.position += 1
            datum = demonstration.datum(self.settings.observation_weight)
            if datum.advantages_T.any():
                data.append(datum)
                demonstrations += 1
                tokens += len(datum.tokens_T)
        collected = time.monotonic()
        adam = self.settings.adam(self.update)
        losses = self.trainer.forward_backward(data, Loss("cross_entropy"))
        steps = self.trainer.optim_step(adam)
        self.usage += Usage(trained=tokens)
        seconds = time.monotonic() - started
        return metrics | {
            **{f"train/{name}": value for name, value in {**losses, **steps}.items()},
            "train/learning_rate": adam.learning_rate,
            "train/demonstrations": demonstrations,
            "train/tokens": tokens,
            "time/demonstrations": collected - started,
            "time/update": seconds,
        }

    def _develop(self, weights: str) -> dict[str, float]:
        """Play the held-out games with the weights as they are, in the first of the ways to show commands."""
        started = time.monotonic()
        shown = self.settings.admissible_commands[0]
        trajectories = _play(self.trainer, self.source.development, self.settings, shown, 0.01, "dev")
        success = sum(trajectory.won for trajectory in trajectories) / len(trajectories)
        if self.best is None or success >= self.best[0]:
            self.best = (success, self.update, weights)
        steps = sum(trajectory.steps for trajectory in trajectories)
        return {
            "dev/games": len(trajectories),
            "dev/success_rate": success,
            "dev/steps_mean": steps / len(trajectories),
            "dev/invalid_action_rate": sum(trajectory.invalid_action_count for trajectory in trajectories)
            / max(1, steps),
            "time/dev": time.monotonic() - started,
        }

    def _save(self) -> str:
        name = self._name("step")
        state = self.trainer.save_state(name)
        self.folder.add_checkpoint(self.update, "training_state", state)
        self.progress.say(f"Saved state: {state}")
        weights = self.trainer.save_sampler_weights(name)
        self.folder.add_checkpoint(self.update, "sampler_weights", weights)
        self.progress.say(f"Saved sampler weights: {weights}")
        self._saved(state, weights)
        return weights

    def _saved(self, state: str, weights: str | None) -> None:
        self.record = replace(self.record, saved=Saved(self.update, self.position, state, weights, self.usage))
        self._saved_at = time.monotonic()

    def _name(self, kind: str) -> str:
        again = f"-resumed{self.record.resumes}" if self.record.resumes else ""
        return f"{kind}-{self.update:06d}{again}"

    def _drop_rolling(self) -> None:
        kept = self.record.saved.state_uri if self.record.saved else ""
        for state in (self.folder.path / "training_state").glob("rolling-*"):
            if not kept.endswith(f"/{state.name}"):
                shutil.rmtree(state, ignore_errors=True)

    def _rounds_before(self, update: int) -> int:
        """DAgger rounds that lie before `update`: they are spread evenly over the run, with training on both sides."""
        rounds = self.settings.dagger_rounds
        return sum(update > self.settings.max_steps * number // (rounds + 1) for number in range(1, rounds + 1))


def _best_so_far(folder: RunFolder) -> tuple[float, int, str] | None:
    """Share of held-out games won, update and sampler weights of the best update of a run that goes on."""
    weights = {
        line["update"]: line["uri"]
        for line in whole_lines(folder.checkpoints_file)
        if line["kind"] == "sampler_weights"
    }
    measured = [
        (line["dev/success_rate"], line["update"], weights[line["update"]])
        for line in whole_lines(folder.metrics_file)
        if "dev/success_rate" in line and line["update"] in weights
    ]
    return max(measured, default=None)


def _play(
    trainer: Trainer, games: Sequence[GameRef], settings: SftSettings, shown: Shown, temperature: float, what: str
) -> list[Trajectory]:
    """One trajectory of each game by the weights as they are now."""
    rollout = RolloutSettings(
        max_episode_steps=settings.max_episode_steps,
        max_trajectory_tokens=settings.max_trajectory_tokens,
        max_assistant_tokens=settings.max_assistant_tokens,
        admissible_commands=shown,
        temperature=temperature,
    )
    groups = asyncio.run(
        collect(games, trainer.sampler(), rollout, group_size=1, seed_path=(settings.seed, what), games_in_flight=64)
    )
    return [trajectory for group in groups for trajectory in group.trajectories]


def _line(update: int, updates: int, metrics: Mapping[str, float]) -> str:
    line = (
        f"update {update}/{updates}  loss {metrics['train/loss_mean']:.4f}  "
        f"{metrics['train/tokens'] / max(metrics['time/update'], 1e-9):,.0f} tokens/s"
    )
    if "dagger/round" in metrics:
        line += f"  round {metrics['dagger/round']:.0f}: the learner won {metrics['dagger/success_rate']:.1%}"
    if "dev/success_rate" in metrics:
        line += (
            f"  held-out games won {metrics['dev/success_rate']:.1%}, "
            f"{metrics['dev/steps_mean']:.1f} steps, {metrics['dev/invalid_action_rate']:.1%} invalid"
        )
    return line

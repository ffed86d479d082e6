"""`train`: updates one after the other, each on the disk before the next begins."""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from alfworld_rl.backends import check_length, open_backend
from alfworld_rl.backends.base import Backend, Checkpoint, Sampler, Trainer
from alfworld_rl.types import Usage
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import whole_lines
from alfworld_rl.games import GameRef
from alfworld_rl.learning import replacements, training_data, update, with_kl_penalty
from alfworld_rl.rollouts import Environments, Group, collect
from alfworld_rl.runs.folder import Record, RunFolder, Saved
from alfworld_rl.runs.games import GameOrder, games_hash, split_games
from alfworld_rl.runs.interrupt import StopRequest, stop_on_interrupt
from alfworld_rl.runs.metrics import rollout_metrics
from alfworld_rl.runs.money import Prices, affordable, cost, estimate, measure
from alfworld_rl.runs.output import Progress, seconds, tokens
from alfworld_rl.runs.settings import TrainSettings, as_json, home, resumed
from alfworld_rl.runs.tracking import Tracker, check_swanlab, tracking
from alfworld_rl.runs.trainers import open_trainer
from alfworld_rl.world import Game

OpenBackend = Callable[..., Backend]


def train(
    settings: TrainSettings, *, given: frozenset[str] = frozenset(), open_backend: OpenBackend = open_backend
) -> RunFolder | None:
    """Train, or go on with a run (`settings.resume`), and return its folder; None for a dry run.

    What can be refused is refused in this order: settings, games, the run folder, the backend; nothing slow or paid
    happens before. `given` are the names of the flags that a person gave, so that a resumed run can tell them from
    defaults. Raises KeyboardInterrupt after a run that Ctrl-C ended; everything is saved then.
    """
    runs = home() / "runs"
    if settings.resume is not None:
        folder = RunFolder.existing(runs, settings.resume)
        settings = resumed(folder.settings(TrainSettings), settings, given)
    prices = Prices.load(settings.prices)
    if not settings.dry_run:
        check_swanlab(settings.swanlab_mode)
    games = _training_games(settings)
    if settings.dry_run:
        _dry_run(settings, games, prices)
        return None
    if settings.resume is None:
        folder = RunFolder.new(runs, settings)
    with folder.in_use():
        record = _record_to_go_on_from(folder, games, settings)
        with folder.removed_if_unused():
            backend = open_backend(
                settings.backend,
                runs_dir=runs,
                run_name=folder.name,
                max_in_flight=settings.games_per_batch * settings.group_size,
                micro_batch_tokens=settings.micro_batch_tokens,
                bfloat16=settings.bfloat16,
            )
        try:
            with folder.removed_if_unused():
                check_length(backend, settings.model, settings.max_trajectory_tokens)
                trainer = open_trainer(
                    backend,
                    record,
                    base_model=settings.model,
                    init_from=settings.init_from,
                    lora_rank=settings.lora_rank,
                    seed=settings.seed,
                )
            print(f"Run folder: {folder.path}", flush=True)
            reference = _reference(backend, settings) if settings.kl_coef else None
            config = as_json(settings) | {"run_folder": folder.name}
            with (
                tracking(
                    settings.swanlab_mode,
                    project=settings.swanlab_project,
                    name=folder.name,
                    config=config,
                    folder=folder.path,
                ) as tracker,
                stop_on_interrupt("the update") as stop,
                Environments(settings.rollout) as environments,
                asyncio.Runner() as runner,
            ):
                _Run(settings, folder, trainer, reference, games, record, prices, runner, environments).run(
                    tracker, stop
                )
        finally:
            backend.close()
    return folder


class _Run:
    """The updates of one run. `update`, `position` and `usage` are those of the last finished update."""

    def __init__(
        self,
        settings: TrainSettings,
        folder: RunFolder,
        trainer: Trainer,
        reference: Sampler | None,
        games: Sequence[GameRef],
        record: Record,
        prices: Prices,
        runner: asyncio.Runner,
        environments: Environments,
    ) -> None:
        self.settings = settings
        self.learning = settings.learning
        self.folder = folder
        self.trainer = trainer
        self.reference = reference
        self.order = GameOrder(games, settings.seed)
        self.record = record
        self.prices = prices
        self.runner = runner
        self.environments = environments
        self.update = record.update
        self.position = record.saved.position if record.saved else 0
        self.usage = record.usage
        self.dearest = Usage()
        self.progress = Progress()
        # False from the first optimizer step of an update to its end: the weights are then those of no update.
        self.between_updates = True

    def run(self, tracker: Tracker, stop: StopRequest) -> None:
        started = time.monotonic()
        too_dear = False
        try:
            with self.progress:
                while self.update < self.settings.max_steps and not stop.asked:
                    too_dear = not affordable(self.usage, self.dearest, self.prices, self.settings.max_cost)
                    if too_dear:
                        break
                    metrics = self._one_update()
                    self._finish_update(metrics)
                    tracker.log(metrics, self.update)
                    self.progress.say(self._line(metrics))
            if self.update and not self._saved_for_good():
                self._save()
            self._write_record()
        except AlfworldRLError as error:
            raise AlfworldRLError(f"{str(error).rstrip('.')}. {self._way_on()}") from error
        if too_dear:
            print(
                f"One more update could cost more than --max-cost {self.settings.max_cost:g} {self.prices.currency}; "
                f"go on with --resume {self.folder.name} and a higher --max-cost"
            )
        self._summary(time.monotonic() - started)
        stop.leave_if_asked(f"alfworld-rl train --resume {self.folder.name}")

    def _one_update(self) -> dict[str, float]:
        """Sample, learn, count; changes the weights, `position` and `usage`."""
        settings, number = self.settings, self.update
        started = time.monotonic()
        sampler = self.trainer.sampler()
        groups, position = self._play(sampler)
        played = time.monotonic()

        found = training_data(groups, settings.advantage)
        data, train_metrics = found.data, {}
        if self.reference is not None and data:
            data, kl = self.runner.run(with_kl_penalty(data, self.reference, settings.kl_coef))
            train_metrics["train/kl_from_start"] = kl
        self.between_updates = not data
        done = update(self.trainer, data, self.learning, number=number, seed=settings.seed)
        trained = time.monotonic()

        used = sum((group.usage for group in groups), Usage(trained=done.trained_tokens))
        self.position = position
        self.usage += used
        if cost(used, self.prices) > cost(self.dearest, self.prices):
            self.dearest = used
        advantages_N = found.advantages_N
        for error in {one.error for group in groups for one in group.trajectories if one.error}:
            self.progress.say(f"a trajectory failed: {error}")
        return {
            **rollout_metrics(groups, used),
            "advantage/mean": float(advantages_N.mean()) if advantages_N.size else 0.0,
            "advantage/std": float(advantages_N.std()) if advantages_N.size else 0.0,
            "advantage/abs_max": float(np.abs(advantages_N).max()) if advantages_N.size else 0.0,
            "advantage/groups_used": found.informative_groups,
            "advantage/groups_degenerate": found.degenerate_groups,
            "advantage/groups_too_few": found.short_groups,
            **{_metric_name(name): value for name, value in done.metrics.items()},
            **train_metrics,
            "train/trajectories": len(found.data),
            "train/tokens_billed": done.trained_tokens,
            "trainer/optimizer_steps": done.optimizer_steps,
            "trainer/update_skipped": float(done.skipped),
            "trainer/games_taken": self.position,
            "trainer/total_prefill_tokens": self.usage.prefill,
            "trainer/total_cached_tokens": self.usage.cached,
            "trainer/total_sampled_tokens": self.usage.sampled,
            "trainer/total_trained_tokens": self.usage.trained,
            "trainer/cost": cost(used, self.prices),
            "trainer/total_cost": cost(self.usage, self.prices),
            "time/rollout": played - started,
            "time/train": trained - played,
            "time/update": trained - started,
        }

    def _play(self, sampler: Sampler) -> tuple[list[Group], int]:
        """The groups of one update, replacements included, and the position behind their games."""
        settings = self.settings
        games, position = self.order.take(self.position, settings.games_per_batch)
        groups: list[Group] = []
        extra = settings.dynamic_sampling
        batch = games
        while batch:
            self.progress.start(f"update {self.update + 1}: games", len(batch))
            groups += self.runner.run(
                collect(
                    batch,
                    sampler,
                    settings.rollout,
                    group_size=settings.group_size,
                    seed_path=(settings.seed, self.update),
                    on_finished=lambda _: self.progress.advance(),
                    environments=self.environments,
                )
            )
            wanted = replacements(groups, wanted=len(games), extra_left=extra) if settings.dynamic_sampling else 0
            played = [group.game for group in groups]
            batch, position = self.order.take(position, wanted, without=played) if wanted else ([], position)
            extra -= len(batch)
        return groups, position

    def _finish_update(self, metrics: dict[str, float]) -> None:
        """Put a finished update on the disk: checkpoint, metrics, and last the record that makes it true."""
        self.update += 1
        self.between_updates = True
        started = time.monotonic()
        if self.settings.save_every and self.update % self.settings.save_every == 0:
            self._save()
        elif self.settings.backend == "local":
            self._save_for_resume()
        metrics["time/save"] = time.monotonic() - started
        self.folder.add_metrics({"update": self.update, **metrics})
        self._write_record()

    def _save(self) -> None:
        """Save state and sampler weights for good, and say where."""
        name = self._checkpoint_name("step")
        state = self.trainer.save_state(name)
        self.folder.add_checkpoint(self.update, "training_state", state)
        self.progress.say(f"Saved state: {state}")
        weights = self.trainer.save_sampler_weights(name)
        self.folder.add_checkpoint(self.update, "sampler_weights", weights)
        self.progress.say(f"Saved sampler weights: {weights}")
        self._saved(state, weights)

    def _save_for_resume(self) -> None:
        """Save what `--resume` needs after this update; the local backend does so cheaply after every one."""
        self._saved(self.trainer.save_state(self._checkpoint_name(ROLLING)), None)

    def _saved(self, state: str, weights: str | None) -> None:
        saved = Saved(self.update, self.position, state, weights, self.usage)
        self.record = replace(self.record, saved=saved)

    def _saved_for_good(self) -> bool:
        saved = self.record.saved
        return saved is not None and saved.update == self.update and saved.sampler_uri is not None

    def _checkpoint_name(self, kind: str) -> str:
        # A run that went on after a crash never writes over what it may have reported saved before.
        again = f"-resumed{self.record.resumes}" if self.record.resumes else ""
        return f"{kind}-{self.update:06d}{again}"

    def _write_record(self) -> None:
        finished = self.update >= self.settings.max_steps and self._saved_for_good()
        self.record = replace(self.record, update=self.update, usage=self.usage, finished=finished)
        self.folder.write_record(self.record)
        self._drop_rolling()

    def _drop_rolling(self) -> None:
        """Remove the rolling states that the record no longer names."""
        kept = self.record.saved.state_uri if self.record.saved else ""
        for state in (self.folder.path / "training_state").glob(f"{ROLLING}-*"):
            if not kept.endswith(f"/{state.name}"):
                shutil.rmtree(state, ignore_errors=True)

    def _way_on(self) -> str:
        """After a failure: save what can be saved, and say how to go on."""
        if self.between_updates and self.update and not self._saved_for_good():
            # The service may refuse this, too; then the record still names the state before.
            with contextlib.suppress(AlfworldRLError):
                self._save()
                self._write_record()
        saved = self.record.saved
        if saved is None:
            return f"No update was saved; --resume {self.folder.name} starts the run again."
        return (
            f"Update {self.update} was the last finished and update {saved.update} the last saved; "
            f"go on with --resume {self.folder.name}."
        )

    def _line(self, metrics: dict[str, float]) -> str:
        used = ", ".join(f"{tokens(int(metrics[f'rollout/{name}_tokens']))} {name}" for name in ("prefill", "sampled"))
        used += f", {tokens(int(metrics['train/tokens_billed']))} trained"
        loss = (
            f"loss {metrics['train/loss_mean']:+.4f}" if "train/loss_mean" in metrics else "skipped: nothing to learn"
        )
        return (
            f"update {self.update}/{self.settings.max_steps}  reward {metrics['reward/mean']:+.3f}  "
            f"success {metrics['reward/success_rate']:.1%}  steps {metrics['rollout/steps_mean']:.1f}  "
            f"invalid {metrics['rollout/invalid_actions_mean']:.2f}  "
            f"groups {metrics['advantage/groups_used']:.0f}/{metrics['rollout/groups']:.0f}  {loss}  "
            f"{used} ({self._money(metrics['trainer/cost'])})  {seconds(metrics['time/update'])}"
        )

    def _money(self, amount: float) -> str:
        """The cost where tokens cost money; on this computer they do not."""
        return "free" if self.settings.backend == "local" else f"~{self.prices.format(amount)}"

    def _summary(self, duration: float) -> None:
        lines = whole_lines(self.folder.metrics_file)
        skipped = sum(line["trainer/update_skipped"] for line in lines)
        usage = self.usage
        prefill = sum(line["rollout/prefill_tokens"] for line in lines)
        repeated = sum(line["rollout/cacheable_share"] * line["rollout/prefill_tokens"] for line in lines)
        print(f"\n{self.update} updates ({skipped:.0f} skipped) in {seconds(duration)}")
        if lines:
            first, last = lines[0]["reward/success_rate"], lines[-1]["reward/success_rate"]
            print(f"success rate in training: {first:.1%} in the first update, {last:.1%} in the last")
        print(
            f"tokens: {tokens(usage.prefill)} prefill ({usage.cached / max(usage.prefill, 1):.0%} came from a cache, "
            f"{repeated / max(prefill, 1):.0%} could have), "
            f"{tokens(usage.sampled)} sampled, {tokens(usage.trained)} trained; {self._money(cost(usage, self.prices))}"
        )
        print(f"run folder: {self.folder.path}", flush=True)


def _metric_name(name: str) -> str:
    # What depends on the machine goes under time/: everything else is the same when a run is repeated or resumed.
    return f"time/{name}" if "memory" in name else f"train/{name}"


ROLLING = "rolling"


def _training_games(settings: TrainSettings) -> Sequence[GameRef]:
    games = split_games(settings, settings.train_split)
    if settings.max_train_games is not None and settings.max_train_games < len(games):
        drawn = random.Random(settings.seed).sample(games, settings.max_train_games)
        games = tuple(sorted(drawn, key=lambda game: game.game_id))
    if len(games) < settings.games_per_batch:
        print(
            f"There are {len(games)} games for --games-per-batch {settings.games_per_batch}: an update plays them all"
        )
    return games


def _dry_run(settings: TrainSettings, games: Sequence[GameRef], prices: Prices) -> None:
    """Say what the run would use, measured on games that it would play; nothing is asked of any service."""
    sample, _ = GameOrder(games, settings.seed).take(0, 24)
    measured = measure([Game.load(game.path) for game in sample], settings.commands_shown)
    trajectories = settings.max_steps * min(settings.games_per_batch, len(games)) * settings.group_size
    print(f"{settings.max_steps} updates, {trajectories} trajectories of {settings.model}:")
    print(
        estimate(
            measured,
            trajectories=trajectories,
            max_episode_steps=settings.max_episode_steps,
            max_trajectory_tokens=settings.max_trajectory_tokens,
            epochs=settings.epochs,
        ).describe(prices)
    )


def _reference(backend: Backend, settings: TrainSettings) -> Sampler:
    """A sampler of the policy that the run started from."""
    if settings.init_from is None:
        return backend.sampler(settings.model)
    if Checkpoint.parse(settings.init_from).kind == "sampler_weights":
        return backend.sampler(settings.model, settings.init_from)
    return backend.trainer_from(settings.init_from, seed=settings.seed).sampler()


def _record_to_go_on_from(folder: RunFolder, games: Sequence[GameRef], settings: TrainSettings) -> Record:
    """The record that the run starts with; the folder's files are brought back to it."""
    before = folder.record()
    now = games_hash(games)
    if settings.resume is None:
        return Record(update=0, usage=Usage(), games=now)
    if before is None:
        folder.go_back_to(0)
        return Record(update=0, usage=Usage(), games=now, resumes=1)
    if before.games != now:
        raise UsageError(
            f"run {folder.name} was trained on other games than are under {settings.games_folder} now; "
            "give the --data-root it was started with"
        )
    saved = before.saved
    if saved is not None and saved.sampler_uri is not None and saved.update >= settings.max_steps:
        raise UsageError(f"run {folder.name} already has {saved.update} updates; give a larger --max-steps to go on")
    record = replace(
        before,
        update=saved.update if saved else 0,
        usage=saved.usage if saved else Usage(),
        resumes=before.resumes + 1,
        finished=False,
    )
    folder.go_back_to(record.update)
    folder.write_record(record)
    if before.update > record.update:
        print(f"Update {before.update} was finished, but {record.update} is the last saved: going on from there")
    return record

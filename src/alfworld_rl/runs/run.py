"""The life of any run: its folder, backend, metrics, saves and end. What an update learns from is a `Recipe`'s."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from alfworld_rl.algorithms.optimize import Update, optimize
from alfworld_rl.algorithms.recipe import Batch, Recipe
from alfworld_rl.backends import BackendConfig, check_length, open_backend
from alfworld_rl.backends.base import Backend, Trainer
from alfworld_rl.console import Progress, seconds, tokens
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.runs.cost import Cost
from alfworld_rl.runs.folder import Best, Record, RunFolder, Saved
from alfworld_rl.runs.interrupt import Interrupted, StopRequest, stop_on_signals
from alfworld_rl.runs.tracking import Tracker, TrackingConfig, tracking
from alfworld_rl.runs.validation import Validation
from alfworld_rl.types import TrainingStart, Usage

ROLLING = "rolling"

OpenBackend = Callable[..., Backend]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run needs to know of its settings.

    - command: the command that makes such a run.
    - settings: all of them by flat name, for the folder and the tracker.
    - tasks: hash of the tasks that it learns from, so that it never goes on with others.
    - max_steps, save_every: updates in all, and between saves for good (0: only at the end).
    - rolling_seconds: time between the cheap saves that a crash goes back to, on a backend that can afford them.
    - may_grow: whether a finished run goes on where it is given a larger `max_steps`.
    """

    command: str
    settings: Mapping[str, Any]
    tasks: str
    max_steps: int
    save_every: int
    base_model: str
    lora_rank: int
    seed: int
    max_trajectory_tokens: int
    init_from: str | None = None
    rolling_seconds: float = 0.0
    may_grow: bool = True


@contextlib.contextmanager
def open_run(
    folder: RunFolder,
    plan: RunPlan,
    *,
    backend: BackendConfig,
    track: TrackingConfig,
    cost: Cost,
    resume: bool,
    max_in_flight: int,
    open_backend: OpenBackend = open_backend,
) -> Iterator["Run"]:
    """A run that is ready to follow a recipe; leaving the block closes all that it holds.

    What can be refused is refused in this order: the folder's state, the backend, the tracker; nothing slow or paid
    happens before.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.in_use())
        record = _record_to_go_on_from(folder, plan, resume)
        with folder.removed_if_unused():
            opened = open_backend(
                backend, runs_dir=folder.path.parent, run_name=folder.name, max_in_flight=max_in_flight
            )
            stack.callback(opened.close)
            check_length(opened, plan.base_model, plan.max_trajectory_tokens)
            trainer = opened.trainer(_start(record, plan), lora_rank=plan.lora_rank, seed=plan.seed)
        print(f"Run folder: {folder.path}", flush=True)
        shown = {**plan.settings, "run_folder": folder.name}
        tracker = stack.enter_context(tracking(track, name=folder.name, settings=shown, folder=folder.path))
        stop = stack.enter_context(stop_on_signals())
        runner = stack.enter_context(asyncio.Runner())
        yield Run(folder, plan, opened, trainer, tracker, stop, runner, record, cost)


def _start(record: Record, plan: RunPlan) -> TrainingStart:
    """The state that the run saved last, else the checkpoint it starts from, else new weights on the base model."""
    if record.saved is not None:
        return TrainingStart(state=record.saved.state_uri)
    if plan.init_from is not None:
        return TrainingStart(weights=plan.init_from)
    return TrainingStart(base_model=plan.base_model)


@dataclass(slots=True)
class Run:
    """The updates of one run. `update`, `position` and `usage` are those of the last finished update.

    Recipes are made of `trainer`, `backend`, `runner` (for what is awaited) and `progress`; from `open_run`.
    """

    folder: RunFolder
    plan: RunPlan
    backend: Backend
    trainer: Trainer
    tracker: Tracker
    stop: StopRequest
    runner: asyncio.Runner
    record: Record
    cost: Cost
    progress: Progress = field(default_factory=Progress)
    update: int = field(init=False)
    position: int = field(init=False)
    usage: Usage = field(init=False)
    _most_expensive: Usage = field(init=False, default_factory=Usage)
    _validation: Usage = field(init=False, default_factory=Usage)
    _saved_at: float = field(init=False, default_factory=time.monotonic)
    # False from the first optimizer step of an update to its end: the weights are then those of no update.
    _between_updates: bool = field(init=False, default=True)

    # What an update is to leave in the folder's files, from its end until it is there.
    _unwritten: tuple[dict[str, float], Batch] | None = field(init=False, default=None)
    _on_disk: Record = field(init=False)

    def __post_init__(self) -> None:
        self._on_disk = self.record
        self.update, self.usage = self.record.update, self.record.usage
        self.position = self.record.saved.position if self.record.saved else 0

    def follow(self, recipe: Recipe, validation: Validation | None = None) -> None:
        """Do all updates that are left, save, and sum up.

        Raises KeyboardInterrupt after a run that a signal ended, AlfworldRLError where the run failed; all that can be
        saved is saved then, and how to go on is said.
        """
        started = time.monotonic()
        try:
            with self.progress:
                self._validate_if_left_out(validation)
                for update in self.updates():
                    self._one(recipe, update, validation)
            if self.update and not self._saved_for_good():
                self._save()
            self._write_record()
        except AlfworldRLError as error:
            raise AlfworldRLError(f"{str(error).rstrip('.')}. {self._how_to_go_on()}") from error
        except Interrupted:
            print(self._how_to_go_on(), flush=True)
            raise
        self._summary(time.monotonic() - started)
        if self.stop.number is not None and self.update < self.plan.max_steps:
            print(f"Go on with alfworld-rl {self.plan.command} --resume {self.folder.name}", flush=True)
            raise Interrupted(self.stop.number)

    def updates(self) -> Iterator[int]:
        """The numbers of the updates that are left, from 0, until the run is asked to end or could cost too much."""
        while self.update < self.plan.max_steps and not self.stop.asked:
            if not self.cost.affordable(self.usage, self._most_expensive + self._validation):
                print(
                    f"One more update could cost more than --max-cost {self.cost.ceiling_text}; "
                    f"go on with --resume {self.folder.name} and a higher --max-cost"
                )
                return
            yield self.update

    def _one(self, recipe: Recipe, update: int, validation: Validation | None) -> None:
        started = time.monotonic()
        with self.stop.leave():
            batch = recipe.batch(self.trainer, self.position, update)
        made = time.monotonic()
        done = optimize(
            self.trainer,
            batch.data,
            batch.loss,
            batch.adam,
            epochs=batch.epochs,
            minibatches=batch.minibatches,
            seed_path=(self.plan.seed, update),
            before_step=self._leave_the_last_update,
        )
        trained = time.monotonic()
        used = batch.usage + Usage(trained=done.trained_tokens)
        metrics = self._count(batch, done, used)
        metrics |= {"time/data": made - started, "time/train": trained - made, "time/update": trained - started}
        for note in batch.notes:
            self.progress.say(note)
        self._commit(batch, metrics, used, validation)
        if line := recipe.line(self.update, metrics):
            money = self.cost.text(used)
            self.progress.say(
                f"update {self.update}/{self.plan.max_steps}  {line} ({money})  {seconds(trained - started)}"
            )

    def _leave_the_last_update(self) -> None:
        self._between_updates = False

    def _count(self, batch: Batch, done: Update, used: Usage) -> dict[str, float]:
        """Take the update, which `used` so much, into `position` and `usage`; returns its metrics."""
        self.position = batch.position
        self.usage += used
        if self.cost.of(used) > self.cost.of(self._most_expensive):
            self._most_expensive = used
        return {
            **batch.metrics,
            **{_metric_name(name): value for name, value in done.metrics.items()},
            "train/tokens_billed": done.trained_tokens,
            "trainer/optimizer_steps": done.optimizer_steps,
            "trainer/update_skipped": float(done.skipped),
            **self._totals(used),
        }

    def _totals(self, used: Usage) -> dict[str, float]:
        """What the run has used so far, and what it cost; `used` is the last update's part of it."""
        return {
            "trainer/total_prefill_tokens": self.usage.prefill,
            "trainer/total_cached_tokens": self.usage.cached,
            "trainer/total_sampled_tokens": self.usage.sampled,
            "trainer/total_trained_tokens": self.usage.trained,
            **self.cost.metrics(used, self.usage),
        }

    def _commit(self, batch: Batch, metrics: dict[str, float], used: Usage, validation: Validation | None) -> None:
        """Put a finished update on the disk: checkpoint, metrics, and last the record that makes it true."""
        self.update += 1
        self._between_updates = True
        self._unwritten = metrics, batch
        started = time.monotonic()
        validating = validation is not None and validation.due(self.update, self._saves_for_good())
        if validating or self._saves_for_good():
            self._save()
        elif self._rolling_due():
            self._saved(self.trainer.save_state(self._checkpoint_name(ROLLING)), None)
        metrics["time/save"] = time.monotonic() - started
        failure: AlfworldRLError | None = None
        if validation is not None and validating and not self.stop.asked:
            # The update stands, whatever becomes of its validation, which is made up for when the run goes on.
            try:
                with self.stop.leave():
                    metrics |= self._validate(validation, used)
            except Interrupted:
                pass
            except AlfworldRLError as error:
                failure = error
        self._write_metrics(metrics, batch)
        self._unwritten = None
        self._write_record()
        self.tracker.log(metrics, self.update)
        if failure is not None:
            raise failure

    def _write_metrics(self, metrics: Mapping[str, float], batch: Batch) -> None:
        self.folder.add_metrics({"update": self.update, **metrics})
        self.folder.add_trajectories({"update": self.update, **row} for row in batch.samples)

    def _validate(self, validation: Validation, used: Usage) -> dict[str, float]:
        """Measure the present weights, which were just saved; the update before used `used`. Returns the metrics."""
        metrics, played = validation.measure(self.trainer.sampler(), self.runner)
        self.usage += played
        self._validation = played
        success, saved, best = metrics["validation/success_rate"], self.record.saved, self.record.best
        assert saved is not None
        assert saved.sampler_uri is not None
        if best is None or success >= best.success_rate:
            best = Best(self.update, success, saved.sampler_uri)
        self.record = replace(self.record, best=best, saved=replace(saved, usage=self.usage))
        self.progress.say(validation.line(metrics, self.update))
        return {**metrics, **self._totals(used + played)}

    def _validate_if_left_out(self, validation: Validation | None) -> None:
        """Measure the update that the run goes on from, if it was to be and the run ended before it was."""
        if validation is None or not self.update or not validation.due(self.update, self._saves_for_good()):
            return
        *_, last = self.folder.metrics()
        if "validation/success_rate" in last or not self._saved_for_good():
            return
        with self.stop.leave():
            cost = last.get("trainer/cost", 0.0)
            measured = self._validate(validation, Usage())
        if "trainer/cost" in measured:
            measured["trainer/cost"] += cost
        self.folder.replace_last_metrics({**last, **measured})
        self._write_record()

    def _saves_for_good(self) -> bool:
        """Whether the settings ask for a save after the present update."""
        every = self.plan.save_every
        return self.update == self.plan.max_steps or bool(every and self.update % every == 0)

    def _rolling_due(self) -> bool:
        can = self.backend.capabilities(self.plan.base_model).saves_every_update
        return can and time.monotonic() - self._saved_at >= self.plan.rolling_seconds

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

    def _saved(self, state: str, weights: str | None) -> None:
        self._saved_at = time.monotonic()
        self.record = replace(self.record, saved=Saved(self.update, self.position, state, weights, self.usage))

    def _saved_for_good(self) -> bool:
        saved = self.record.saved
        return saved is not None and saved.update == self.update and saved.sampler_uri is not None

    def _checkpoint_name(self, kind: str) -> str:
        # A run that went on after a crash never writes over what it may have reported saved before.
        again = f"-resumed{self.record.resumes}" if self.record.resumes else ""
        return f"{kind}-{self.update:06d}{again}"

    def _write_record(self) -> None:
        old = self._on_disk.saved
        finished = self.update >= self.plan.max_steps and self._saved_for_good()
        self.record = replace(self.record, update=self.update, usage=self.usage, finished=finished)
        self.folder.write_record(self.record)
        self._on_disk = self.record
        # A rolling state that the record no longer names is of no use to anyone.
        if old and old.sampler_uri is None and self.record.saved and old.state_uri != self.record.saved.state_uri:
            with contextlib.suppress(AlfworldRLError):
                self.backend.delete(old.state_uri)

    def _how_to_go_on(self) -> str:
        """After a failure: save what can be saved, and say how to go on."""
        if self._between_updates and self.update and (self._unwritten or not self._saved_for_good()):
            # The service, or the disk, may refuse this, too; then the record still names the state before.
            with contextlib.suppress(AlfworldRLError):
                if not self._saved_for_good():
                    self._save()
                if self._unwritten is not None:
                    self.folder.go_back_to(self.update - 1)
                    self._write_metrics(*self._unwritten)
                self._write_record()
        record = self._on_disk
        if record.saved is None:
            return f"No update was saved; --resume {self.folder.name} starts the run again."
        return (
            f"Update {record.update} was the last finished and update {record.saved.update} the last saved; "
            f"go on with alfworld-rl {self.plan.command} --resume {self.folder.name}."
        )

    def _summary(self, duration: float) -> None:
        lines, usage = self.folder.metrics(), self.usage
        skipped = sum(line.get("trainer/update_skipped", 0) for line in lines)
        print(f"\n{self.update} updates ({skipped:.0f} skipped) in {seconds(duration)}")
        won = [line["reward/success_rate"] for line in lines if "reward/success_rate" in line]
        if won:
            print(f"success rate in training: {won[0]:.1%} in the first update, {won[-1]:.1%} in the last")
        prefill = sum(line.get("rollout/prefill_tokens", 0) for line in lines)
        repeated = sum(line.get("rollout/cacheable_share", 0) * line.get("rollout/prefill_tokens", 0) for line in lines)
        print(
            f"tokens: {tokens(usage.prefill)} prefill ({usage.cached / max(usage.prefill, 1):.0%} came from a cache, "
            f"{repeated / max(prefill, 1):.0%} could have), "
            f"{tokens(usage.sampled)} sampled, {tokens(usage.trained)} trained; {self.cost.text(usage)}"
        )
        if best := self.record.best:
            print(
                f"best of the validation games: {best.success_rate:.1%} after update {best.update}: {best.sampler_uri}"
            )
        print(f"run folder: {self.folder.path}", flush=True)


def _metric_name(name: str) -> str:
    # What depends on the machine goes under time/: everything else is the same when a run is repeated or resumed.
    return f"time/{name}" if "memory" in name else f"train/{name}"


def _record_to_go_on_from(folder: RunFolder, plan: RunPlan, resume: bool) -> Record:
    """The record that the run starts with; the folder's files are brought back to it."""
    before = folder.record()
    if not resume:
        return Record(update=0, usage=Usage(), games=plan.tasks)
    if before is None:
        folder.go_back_to(0)
        # Written before anything is saved: the names of what is saved tell how often the run went on.
        record = Record(update=0, usage=Usage(), games=plan.tasks, resumes=1)
        folder.write_record(record)
        return record
    if before.games != plan.tasks:
        raise UsageError(
            f"run {folder.name} learned from other games than these; give the --data-root it was started with"
        )
    saved = before.saved
    if saved is not None and saved.sampler_uri is not None and saved.update >= plan.max_steps:
        raise UsageError(
            f"run {folder.name} already has {saved.update} updates; "
            + ("give a larger --max-steps to go on" if plan.may_grow else "train it further with --init-from")
        )
    record = replace(
        before,
        update=saved.update if saved else 0,
        usage=saved.usage if saved else Usage(),
        best=before.best if before.best and saved and before.best.update <= saved.update else None,
        resumes=before.resumes + 1,
        finished=False,
    )
    folder.go_back_to(record.update)
    folder.write_record(record)
    if before.update > record.update:
        print(f"Update {before.update} was finished, but {record.update} is the last saved: going on from there")
    return record

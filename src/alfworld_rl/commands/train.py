"""`train`: reinforcement learning, updates one after the other, each on the disk before the next begins."""

import contextlib
import random
from collections.abc import Sequence
from typing import Any, Literal

from alfworld_rl.algorithms.ahead import PlaysAhead
from alfworld_rl.algorithms.config import OptimizerConfig, PolicyGradientConfig, RewardConfig
from alfworld_rl.algorithms.recipe import Recipe
from alfworld_rl.algorithms.rewards import StepRewards
from alfworld_rl.algorithms.rl import ReinforcementLearning
from alfworld_rl.backends import BACKENDS, TrainingBackendConfig, open_backend
from alfworld_rl.backends.base import Checkpoint, Sampler
from alfworld_rl.commands.common import CommandConfig, EpisodeConfig, split_tasks
from alfworld_rl.config import option
from alfworld_rl.config.workspace import home
from alfworld_rl.envs.base import EnvironmentFamily
from alfworld_rl.envs.tasks import TaskOrder, tasks_hash
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.games.scenes import split_by_scene
from alfworld_rl.rollouts import Trajectory
from alfworld_rl.runs.config import RunConfig, resumed
from alfworld_rl.runs.cost import Cost, CostConfig, estimate, measure
from alfworld_rl.runs.folder import RunFolder
from alfworld_rl.runs.run import OpenBackend, Run, RunPlan, open_run
from alfworld_rl.runs.tracking import TrackingConfig, check_tracking
from alfworld_rl.runs.validation import Validation, ValidationConfig
from alfworld_rl.types import Task, TrainingStart
from alfworld_rl.world import Game


class TrainConfig(CommandConfig):
    """Reinforcement learning. The defaults are those of the quick start's formal run; a local run has its own."""

    backend: TrainingBackendConfig = TrainingBackendConfig()
    episode: EpisodeConfig = EpisodeConfig()
    run: RunConfig = RunConfig()
    reward: RewardConfig = RewardConfig()
    learning: PolicyGradientConfig = PolicyGradientConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    validation: ValidationConfig = ValidationConfig()
    track: TrackingConfig = TrackingConfig()
    cost: CostConfig = CostConfig()
    train_split: Literal["train", "valid_seen", "valid_unseen"] = option("train", "split whose games are trained on")
    max_train_games: int | None = option(None, "train on this many games, drawn by --seed (default: all)", ge=1)
    games_per_batch: int = option(8, "games of one update", ge=1)
    group_size: int = option(8, "trajectories of one game, all from its initial state", ge=2)
    async_updates: int = option(
        0, "let the rollouts of up to N next updates run with older weights while this one trains; 0: none", ge=0
    )
    keep_trajectories: int = option(4, "trajectories of an update to keep in the run folder, for reports", ge=0)
    dry_run: bool = option(False, "print what the run would use and cost, and stop")

    def conflicts(self) -> list[str]:
        problems = lora_conflicts(self.backend, self.run)
        if self.episode.temperature == 0:
            problems.append("--temperature must be above 0 for training: without chance a group has nothing to compare")
        if self.async_updates and not self.backend.capabilities.samples_while_training:
            problems.append(f"--async-updates: the backend {self.backend.backend} cannot sample while it trains")
        return problems


CONFIG = TrainConfig


def lora_conflicts(backend: TrainingBackendConfig, run: RunConfig) -> list[str]:
    if run.lora_rank == 0 and not backend.capabilities.full_finetuning:
        able = [name for name in BACKENDS.names() if BACKENDS[name].capabilities.full_finetuning]
        return [f"--lora-rank 0 (all weights) needs --backend {' or '.join(able)}"]
    return []


def run(config: TrainConfig, *, open_backend: OpenBackend = open_backend) -> RunFolder | None:
    """Train, or go on with a run (`--resume`), and return its folder; None for a dry run.

    What can be refused is refused in this order: settings, games, the run folder, the backend; nothing slow or paid
    happens before. Raises KeyboardInterrupt after a run that a signal ended; everything is saved then.
    """
    runs, resume, folder, asked = home() / "runs", config.run.resume, None, config.given
    if resume is not None:
        folder, config = resumed(runs, "train", config, resume, _may_grow)
    else:
        config = config.with_defaults(BACKENDS[config.backend.backend].training_presets(config.backend.base_model))
    cost = Cost.of_model(config.cost, config.backend.capabilities, config.backend.model)
    if not config.dry_run:
        check_tracking(config.track, asked)
    family = config.episode.family()
    tasks, held_out = _training_tasks(config, family)
    if config.dry_run:
        _dry_run(config, tasks, cost)
        return None
    settings = {**config.to_flat(), "base_model": config.backend.model}
    if folder is None:
        folder = RunFolder.new(runs, config.run.run_name, "train", settings)
    plan = RunPlan(
        command="train",
        settings=settings,
        tasks=tasks_hash(tasks),
        max_steps=config.run.max_steps,
        save_every=config.run.save_every,
        base_model=config.backend.model,
        lora_rank=config.run.lora_rank,
        seed=config.run.seed,
        max_trajectory_tokens=config.episode.max_trajectory_tokens,
        init_from=config.run.init_from,
        may_grow=bool(_may_grow(config)),
    )
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            open_run(
                folder,
                plan,
                backend=config.backend,
                track=config.track,
                cost=cost,
                resume=resume is not None,
                max_in_flight=config.games_per_batch * config.group_size,
                open_backend=open_backend,
            )
        )
        _warn_of_other_policy(run, config)
        pool = stack.enter_context(family.pool())
        agent = config.episode.agent(run.trainer.tokenizer)
        learning = ReinforcementLearning(
            order=TaskOrder(tasks, config.run.seed),
            agent=agent,
            pool=pool,
            runner=run.runner,
            limits=config.episode.limits,
            sampling=config.episode.sampling,
            adam=lambda update: config.optimizer.adam(update, config.run.max_steps),
            games_per_batch=config.games_per_batch,
            group_size=config.group_size,
            reward=config.reward.function(),
            estimator=config.learning.estimator(),
            loss=config.learning.loss_spec(),
            epochs=config.learning.epochs,
            minibatches=config.learning.minibatches,
            reference=_reference(run, config) if config.learning.kl_coef else None,
            kl_coef=config.learning.kl_coef,
            dynamic_sampling=config.learning.dynamic_sampling,
            seed=config.run.seed,
            progress=run.progress,
            keep_trajectories=config.keep_trajectories,
            row=_row,
        )
        validation = None
        if held_out:
            validation = Validation(
                tasks=held_out,
                agent=agent,
                pool=pool,
                limits=config.episode.limits,
                seed=config.run.seed,
                every=config.validation.eval_every,
            )
        recipe: Recipe = learning
        if config.async_updates:
            ahead = PlaysAhead(learning, updates_ahead=config.async_updates, updates=config.run.max_steps)
            recipe = stack.enter_context(ahead)
        run.follow(recipe, validation)
    return folder


def _may_grow(config: TrainConfig) -> frozenset[str]:
    """A run may be given more updates, unless the learning rate of all depends on how many there are."""
    return frozenset({"max_steps"} if config.optimizer.schedule == "constant" else ())


def _training_tasks(config: TrainConfig, family: EnvironmentFamily) -> tuple[Sequence[Task], Sequence[Task]]:
    """The tasks to train on, and those kept for validation."""
    tasks: Sequence[Task] = split_tasks(family, config.train_split)
    held_out: Sequence[Task] = ()
    if config.validation.eval_games:
        tasks, held_out = split_by_scene(tasks, config.validation.eval_games, config.run.seed)
    if config.max_train_games is not None and config.max_train_games < len(tasks):
        drawn = random.Random(config.run.seed).sample(tasks, config.max_train_games)
        tasks = tuple(sorted(drawn, key=lambda task: task.game_id))
    if len(tasks) < config.games_per_batch:
        print(f"There are {len(tasks)} games for --games-per-batch {config.games_per_batch}: an update plays them all")
    return tasks, held_out


def _warn_of_other_policy(run: Run, config: TrainConfig) -> None:
    """A ratio of probabilities that leaves out how the sampler was told to sample is wrong, if only a little."""
    other = config.episode.temperature != 1 or config.episode.top_p < 1
    if other and not run.backend.capabilities(config.backend.model).behaviour_logprobs:
        print(
            "Warning: this backend gives logprobs at temperature 1 and top-p 1, so the probability ratio ignores "
            "--temperature and --top-p; train with both at 1 (docs/runs.md)",
            flush=True,
        )


def _reference(run: Run, config: TrainConfig) -> Sampler:
    """A sampler of the policy that the run started from."""
    model, start = config.backend.model, config.run.init_from
    if start is None:
        return run.backend.sampler(model)
    if Checkpoint.parse(start).kind == "sampler_weights":
        return run.backend.sampler(model, start)
    trainer = run.backend.trainer(TrainingStart(weights=start), lora_rank=config.run.lora_rank, seed=config.run.seed)
    return trainer.sampler()


def _row(trajectory: Trajectory, rewards: StepRewards, advantages: Sequence[float]) -> dict[str, Any]:
    """A kept trajectory, as docs/runs.md describes it."""
    parts = {name: float(part.sum()) for name, part in rewards.parts.items()}
    more = {
        "group": trajectory.game.game_id,
        "branch": trajectory.branch,
        "advantages": [round(value, 6) for value in advantages],
        "reward_parts": parts,
    }
    return ResultRow.of(trajectory, rewards, trajectory.usage, **more).to_json()


def _dry_run(config: TrainConfig, tasks: Sequence[Task], cost: Cost) -> None:
    """Say what the run would use, measured on games that it would play; nothing is asked of any service."""
    sample, _ = TaskOrder(tasks, config.run.seed).take(0, 24)
    paths = [path for task in sample if (path := getattr(task, "path", None)) is not None]
    if not paths:
        raise UsageError("--dry-run measures ALFWorld's games and knows no other environment")
    measured = measure([Game.load(path) for path in paths], config.episode.commands_shown)
    trajectories = config.run.max_steps * min(config.games_per_batch, len(tasks)) * config.group_size
    print(f"{config.run.max_steps} updates, {trajectories} trajectories of {config.backend.model}:")
    print(
        estimate(
            measured,
            trajectories=trajectories,
            max_episode_steps=config.episode.max_episode_steps,
            max_trajectory_tokens=config.episode.max_trajectory_tokens,
            epochs=config.learning.epochs,
        ).describe(cost)
    )

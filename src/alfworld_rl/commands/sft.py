"""`sft`: a warm start from demonstrations, with DAgger where it is asked for."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from alfworld_rl.agents import FORMATS, CommandsShown
from alfworld_rl.agents.calls import asked_action
from alfworld_rl.algorithms.config import OptimizerConfig
from alfworld_rl.backends import TrainingBackendConfig, open_backend
from alfworld_rl.commands.common import CommandConfig
from alfworld_rl.commands.train import lora_conflicts
from alfworld_rl.config import Config, Name, option
from alfworld_rl.config.workspace import alfworld_games, home
from alfworld_rl.envs import AlfworldFamily
from alfworld_rl.envs.tasks import tasks_hash
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.record import ResultRow, ResultsError
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import GameRef, discover
from alfworld_rl.games.scenes import split_by_scene
from alfworld_rl.imitation.dagger import DAgger
from alfworld_rl.imitation.demonstrations import Mistakes
from alfworld_rl.imitation.recipe import Imitation
from alfworld_rl.imitation.sources import Demonstrations, Play
from alfworld_rl.rollouts import Limits, Sampling
from alfworld_rl.runs.config import RunConfig, resumed
from alfworld_rl.runs.cost import Cost, CostConfig, Estimate, estimate, measure
from alfworld_rl.runs.folder import RunFolder
from alfworld_rl.runs.run import OpenBackend, RunPlan, open_run
from alfworld_rl.runs.tracking import TrackingConfig, check_tracking
from alfworld_rl.runs.validation import Validation, ValidationConfig
from alfworld_rl.types import Usage
from alfworld_rl.world import Game

SECONDS_BETWEEN_SAVES = 300.0
"""What a crash may cost; saving takes as long as several updates of a small model, so not every one is saved."""


class DemonstrationConfig(Config):
    """What is imitated."""

    data_root: tuple[Path, ...] = option(
        (), "folders that hold json_2.1.1; games of their train splits (default: 08-alfworld/datasets/alfworld)"
    )
    from_results: tuple[Path, ...] = option((), "imitate the won games of these results files instead", metavar="JSONL")
    format: Annotated[str, Name(FORMATS)] = option("tool-call", "how the agent reads and acts")
    admissible_commands: tuple[Literal["full", "changes", "none"], ...] = option(
        ("full",), "how the admissible commands are shown; several: each demonstration in one of them"
    )
    max_episode_steps: int = option(50, "steps of a demonstration", ge=1)
    max_trajectory_tokens: int = option(12000, "tokens of a demonstration", ge=256)
    max_assistant_tokens: int = option(256, "tokens of one message when the model itself plays", ge=1)
    perturbation: float = option(
        0.15, "share of commands that get in the way, in two demonstrations of three (half and full)", ge=0, le=0.9
    )
    exploration: float = option(1.0, "how far every third demonstration wanders in its search", ge=0)
    dagger_rounds: int = option(0, "times that the model plays and the expert labels what it did", ge=0)
    dagger_games: int = option(200, "games of one such round", ge=1)
    dagger_temperature: float = option(0.5, "sampling temperature in those games", ge=0)

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.data_root or (alfworld_games(),)

    @property
    def limits(self) -> Limits:
        return Limits(
            max_episode_steps=self.max_episode_steps,
            max_trajectory_tokens=self.max_trajectory_tokens,
            max_assistant_tokens=self.max_assistant_tokens,
        )

    def conflicts(self) -> list[str]:
        problems = []
        if self.max_assistant_tokens >= self.max_trajectory_tokens:
            problems.append("--max-assistant-tokens must be below --max-trajectory-tokens, or no prompt fits")
        if self.dagger_rounds and self.from_results:
            problems.append("--dagger-rounds needs the expert, who is not asked where --from-results is given")
        return problems


class SftConfig(CommandConfig):
    """Imitation of the expert. The defaults suit a large model with an adapter."""

    backend: TrainingBackendConfig = TrainingBackendConfig()
    demonstrations: DemonstrationConfig = DemonstrationConfig()
    run: RunConfig = RunConfig(run_name="alfworld-sft", max_steps=500, save_every=100)
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-4, schedule="linear", warmup_steps=20, beta2=0.98)
    validation: ValidationConfig = ValidationConfig()
    track: TrackingConfig = TrackingConfig(swanlab_mode="disabled")
    cost: CostConfig = CostConfig()
    observation_weight: float = option(
        0.0, "weight of the tokens that the model only reads, beside 1 for those it should write", ge=0
    )
    batch_tokens: int = option(16384, "tokens of the demonstrations of one update", ge=256)
    dev_games: int | None = option(None, "the same as --eval-games", ge=0)
    dry_run: bool = option(False, "print what the run would use and cost, and stop")

    @property
    def validation_games(self) -> int:
        return self.validation.eval_games or self.dev_games or 0

    def conflicts(self) -> list[str]:
        problems = lora_conflicts(self.backend, self.run)
        if self.dev_games is not None and self.validation.eval_games:
            problems.append("--dev-games and --eval-games are the same; give one of them")
        if self.demonstrations.dagger_rounds >= self.run.max_steps and self.demonstrations.dagger_rounds:
            problems.append(
                f"--dagger-rounds {self.demonstrations.dagger_rounds} must be below --max-steps "
                f"{self.run.max_steps}: there is an update between two rounds"
            )
        return problems


CONFIG = SftConfig


def run(config: SftConfig, *, open_backend: OpenBackend = open_backend) -> RunFolder | None:
    """Train on demonstrations, or go on with such a run (`--resume`), and return its folder; None for a dry run.

    Raises UsageError before anything slow or paid where the command cannot be, AlfworldRLError where the run fails,
    KeyboardInterrupt after a run that a signal ended; everything is saved then.
    """
    runs, resume, folder, asked = home() / "runs", config.run.resume, None, config.given
    if resume is not None:
        folder, config = resumed(runs, "sft", config, resume)
    cost = Cost.of_model(config.cost, config.backend.capabilities, config.backend.model)
    if not config.dry_run:
        check_tracking(config.track, asked)
    games, held_out = _games(config)
    plays = list(_recorded_plays(config.demonstrations, games))
    if config.dry_run:
        _dry_run(config, games, cost)
        return None
    settings = {**config.to_flat(), "base_model": config.backend.model}
    if folder is None:
        folder = RunFolder.new(runs, config.run.run_name, "sft", settings)
    plan = RunPlan(
        command="sft",
        settings=settings,
        tasks=tasks_hash(games),
        max_steps=config.run.max_steps,
        save_every=config.run.save_every,
        base_model=config.backend.model,
        lora_rank=config.run.lora_rank,
        seed=config.run.seed,
        max_trajectory_tokens=config.demonstrations.max_trajectory_tokens,
        init_from=config.run.init_from,
        rolling_seconds=SECONDS_BETWEEN_SAVES,
        may_grow=False,
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
                max_in_flight=64,
                open_backend=open_backend,
            )
        )
        wanted = config.demonstrations
        pool = stack.enter_context(AlfworldFamily(wanted.roots[0]).pool())
        make = FORMATS[wanted.format]
        agents = {shown: make(run.trainer.tokenizer, shown) for shown in wanted.admissible_commands}
        source = Demonstrations(
            games=games,
            agents=agents,
            commands=wanted.admissible_commands,
            limits=wanted.limits,
            mistakes=Mistakes(perturbation=wanted.perturbation, exploration=wanted.exploration),
            seed=config.run.seed,
            plays=plays,
        )
        dagger = None
        if wanted.dagger_rounds:
            dagger = DAgger(
                source=source,
                folder=folder.path,
                pool=pool,
                runner=run.runner,
                rounds=wanted.dagger_rounds,
                updates=config.run.max_steps,
                games=wanted.dagger_games,
                sampling=Sampling(temperature=wanted.dagger_temperature),
            )
            dagger.load(run.update)
        recipe = Imitation(
            source=source,
            adam=lambda update: config.optimizer.adam(update, config.run.max_steps),
            batch_tokens=config.batch_tokens,
            observation_weight=config.observation_weight,
            dagger=dagger,
        )
        validation = None
        if held_out:
            validation = Validation(
                tasks=held_out,
                agent=agents[wanted.admissible_commands[0]],
                pool=pool,
                limits=wanted.limits,
                seed=config.run.seed,
                every=config.validation.eval_every,
            )
        run.follow(recipe, validation)
    return folder


def _games(config: SftConfig) -> tuple[list[GameRef], list[GameRef]]:
    """The games to learn from, and those kept for validation."""
    games = [game for root in config.demonstrations.roots for game in discover(root, "train").games]
    if config.validation_games:
        return split_by_scene(games, config.validation_games, config.run.seed)
    return games, []


def _recorded_plays(config: DemonstrationConfig, games: Sequence[GameRef]) -> Iterator[Play]:
    """The won games of --from-results that are among `games`. Raises UsageError where there are none."""
    by_id = {game.game_id: game for game in games}
    found = False
    for path in config.from_results:
        for game_id, actions in won_plays(path):
            if game_id in by_id:
                found = True
                yield by_id[game_id], actions
    if config.from_results and not found:
        raise UsageError(
            "no won game of --from-results is in the train split under --data-root; "
            "results of valid_seen and valid_unseen are for measuring and are not learned from"
        )


def won_plays(results: Path) -> Iterator[tuple[str, list[str | None]]]:
    """The won games of a results JSONL: game id, and what each message of the agent asked for.

    Read are messages in this project's form and those with OpenAI's `tool_calls`. Raises UsageError for a file that
    is not a results file or has no won game.
    """
    if not results.is_file():
        raise UsageError(f"the results file {results} cannot be read (there is no such file)")
    found = False
    try:
        lines = read_jsonl(results)
    except AlfworldRLError as error:
        raise UsageError(f"{error}; give a results file that eval.py wrote") from error
    for number, line in enumerate(lines, 1):
        if line.get("type") != "trajectory" or line.get("won") is not True:
            continue
        try:
            # Of which split the game is its id tells; other programs need not say so again.
            row = ResultRow.from_json({"split": "?", **line}, f"{results}, line {number}")
            actions = [asked_action(message) for message in row.messages if message["role"] == "assistant"]
        except (ResultsError, ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"{results}, line {number} is not a line of a results file; give one that eval.py wrote"
            ) from None
        found = True
        yield row.game_id, actions
    if not found:
        raise UsageError(f"the results file {results} has no won game to learn from")


def _dry_run(config: SftConfig, games: Sequence[GameRef], cost: Cost) -> None:
    """Say what the run would use; nothing is asked of any service."""
    wanted = config.demonstrations
    trained = Usage(trained=config.run.max_steps * config.batch_tokens)
    low = high = trained
    if wanted.dagger_rounds:
        shown: CommandsShown = wanted.admissible_commands[0]
        played = estimate(
            measure([Game.load(game.path) for game in games[:24]], shown),
            trajectories=wanted.dagger_rounds * min(wanted.dagger_games, len(games)),
            max_episode_steps=wanted.max_episode_steps,
            max_trajectory_tokens=wanted.max_trajectory_tokens,
            epochs=0,
        )
        low, high = low + played.low, high + played.high
    print(f"{config.run.max_steps} updates of {config.batch_tokens} tokens each, {wanted.dagger_rounds} DAgger rounds:")
    print(Estimate(low=low, high=high).describe(cost))

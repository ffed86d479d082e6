"""`eval`: play every game, write each down when it is done, sum up at the end."""

import asyncio
import hashlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from alfworld_rl.agents import AgentFormat
from alfworld_rl.agents.chat import ChatFormat
from alfworld_rl.algorithms.config import RewardConfig
from alfworld_rl.backends import EvaluationBackendConfig, check_length, open_backend
from alfworld_rl.backends.base import Backend, ChatBackend, ChatModel, Checkpoint, Sampler
from alfworld_rl.commands.common import CommandConfig, EpisodeConfig, split_tasks
from alfworld_rl.config import flag_name, option
from alfworld_rl.config.workspace import home, project_root
from alfworld_rl.console import Progress, print_table, seconds, tokens
from alfworld_rl.envs.base import EnvironmentFamily
from alfworld_rl.envs.tasks import spread
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.evaluate import Failure, evaluate
from alfworld_rl.evaluation.metrics import intervals_of, metrics_of
from alfworld_rl.evaluation.output import ResultsOutput, check_output, opened
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.files import portable
from alfworld_rl.runs.cost import Cost, CostConfig
from alfworld_rl.runs.run import OpenBackend
from alfworld_rl.runs.tracking import TrackingConfig, check_tracking, tracking
from alfworld_rl.types import Task, Usage


class EvalConfig(CommandConfig):
    """Evaluation: how often a model wins games it was not trained on."""

    backend: EvaluationBackendConfig = EvaluationBackendConfig()
    episode: EpisodeConfig = EpisodeConfig(temperature=0.01)
    reward: RewardConfig = RewardConfig()
    track: TrackingConfig = TrackingConfig(swanlab_mode="disabled")
    cost: CostConfig = CostConfig()
    model_path: str | None = option(None, "sampler weights to evaluate (default: the base model)", metavar="URI")
    split: Literal["valid_seen", "valid_unseen", "all"] = option("all", "games to play")
    limit_per_split: int | None = option(None, "only N games of each split, spread over its list", ge=1)
    concurrency: int | None = option(None, "games in flight at once (default: 16)", ge=1)
    games_per_batch: int | None = option(None, "the same as --concurrency", ge=1)
    samples_per_game: int = option(1, "trajectories of each game, for pass@k", ge=1)
    seed: int = option(42, "seed of sampling", ge=0, le=2**31 - 1)
    output: Path | None = option(None, "results file (default: 08-alfworld/eval_results/MODEL.jsonl)")
    overwrite_output: bool = option(False, "replace an existing results file")
    resume_output: bool = option(False, "play only the games that an unfinished results file lacks")

    @property
    def in_flight(self) -> int:
        return self.concurrency or self.games_per_batch or 16

    @property
    def splits(self) -> tuple[str, ...]:
        return ("valid_seen", "valid_unseen") if self.split == "all" else (self.split,)

    @property
    def results_file(self) -> Path:
        if self.output is not None:
            return self.output
        name = self.backend.model if self.model_path is None else self.model_path.partition("://")[2]
        name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        return home() / "eval_results" / (f"{name}.jsonl" if portable(name) else f"{name}-results.jsonl")

    def conflicts(self) -> list[str]:
        problems = []
        if self.overwrite_output and self.resume_output:
            problems.append("--overwrite-output starts again and --resume-output goes on; give one of them")
        if self.concurrency is not None and self.games_per_batch is not None:
            problems.append("--concurrency and --games-per-batch are the same; give one of them")
        if self.output is not None and self.output.suffix != ".jsonl":
            problems.append(f"--output must end in .jsonl, not {self.output.name!r}")
        return problems


CONFIG = EvalConfig


def run(config: EvalConfig, *, open_backend: OpenBackend = open_backend) -> Mapping[str, Any]:
    """Play the games that `config` names and write the results file; returns its summary.

    Every game is played exactly once, and the score is the same for any number of games in flight, order of answers
    or interruption: the seed of a request depends on the game, the sample and the turn alone.
    """
    if config.model_path is not None and Checkpoint.parse(config.model_path).kind == "training_state":
        raise UsageError(
            f"--model-path {config.model_path} is a training state, for going on with training; "
            "use the URI that the run printed as `Saved sampler weights`"
        )
    model = config.backend.model
    cost = Cost.of_model(config.cost, config.backend.capabilities, model)
    check_tracking(config.track, config.given)
    family = config.episode.family()
    tasks = [task for split in config.splits for task in spread(split_tasks(family, split), config.limit_per_split)]
    # Reading every game now finds a broken one before the model is asked anything, and tells later what was played.
    hashes = {task.game_id: family.content_hash(task) for task in tasks}
    path = config.results_file
    check_output(path, overwrite=config.overwrite_output, resume=config.resume_output)

    backend = open_backend(
        config.backend, runs_dir=home() / "runs", max_in_flight=config.in_flight * config.samples_per_game
    )
    started = time.monotonic()
    try:
        check_length(backend, model, config.episode.max_trajectory_tokens)
        sampler, agent = _model_and_agent(backend, config)
        played = _played(config, agent, hashes)
        with (
            opened(path, played, overwrite=config.overwrite_output, resume=config.resume_output) as output,
            tracking(
                config.track, name=path.stem, settings=config.to_flat(), folder=project_root(), going_on=False
            ) as tracker,
        ):
            _play_or_say_how_to_go_on(output, tasks, sampler, agent, family, config, cost)
            order = [(task.game_id, sample) for task in tasks for sample in range(config.samples_per_game)]
            last = output.finish(order, lambda rows: _summary(rows, config, played, hashes))
            tracker.log(last["metrics"], 0)
    finally:
        backend.close()
    _show(last)
    usage = Usage(**last["usage"])
    price = f", {cost.text(usage)}" if cost.billed else ""
    duration = seconds(time.monotonic() - started)
    print(f"\n{tokens(usage.prefill)} tokens read, {tokens(usage.sampled)} written{price}, in {duration}")
    print(f"Results: {path}")
    return last


def _model_and_agent(backend: Backend, config: EvalConfig) -> tuple[Sampler | ChatModel, AgentFormat]:
    """What plays, and how it is spoken to. Raises UsageError where the format and the model do not go together."""
    model, episode, asked = config.backend.model, config.episode, config.backend
    if not isinstance(backend, ChatBackend):
        sampler = backend.sampler(model, config.model_path)
        return sampler, episode.agent(sampler.tokenizer)
    changed = [flag_name(name) for name in ("format", "thinking") if name in config.given]
    if changed:
        raise UsageError(
            f"{' and '.join(changed)} cannot be chosen for a model that is spoken to in messages: its service applies "
            "the chat template; --extra-body can tell the service how the model shall think"
        )
    agent = ChatFormat(
        episode.commands_shown,
        tool_calls=asked.tool_calls,
        send_reasoning=asked.send_reasoning,
        extra_body=asked.more_fields,
    )
    return backend.chat_model(model, config.model_path), agent


def _played(config: EvalConfig, agent: AgentFormat, hashes: Mapping[str, str]) -> dict[str, Any]:
    """All that decides what the rows of a results file hold."""
    return {
        "base_model": config.backend.model,
        "model_path": config.model_path,
        "backend": config.backend.backend,
        "split": config.split,
        "limit_per_split": config.limit_per_split,
        "samples_per_game": config.samples_per_game,
        "seed": config.seed,
        "protocol": agent.fingerprint,
        "format": agent.name,
        "games": hashlib.sha256("".join(hashes.values()).encode()).hexdigest()[:16],
        **config.episode.of_the_score(),
        **config.backend.of_the_score(),
        **config.reward.described(),
    }


def _summary(
    rows: Sequence[ResultRow], config: EvalConfig, played: Mapping[str, Any], hashes: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "type": "summary",
        "base_model": config.backend.model,
        "model_path": config.model_path,
        "metrics": metrics_of(rows),
        "intervals": intervals_of(rows),
        "settings": {
            **config.episode.of_the_score(),
            **config.backend.of_the_score(),
            **config.reward.described(),
        },
        "protocol": played["protocol"],
        "format": played["format"],
        "seed": config.seed,
        "samples_per_game": config.samples_per_game,
        "usage": {
            "prefill": sum(row.prefill_tokens for row in rows),
            "sampled": sum(row.sampled_tokens for row in rows),
        },
        "game_sha256": dict(hashes),
        "played": dict(played),
    }


def _play_or_say_how_to_go_on(
    output: ResultsOutput,
    tasks: Sequence[Task],
    sampler: Sampler | ChatModel,
    agent: AgentFormat,
    family: EnvironmentFamily,
    config: EvalConfig,
    cost: Cost,
) -> None:
    go_on = f"the finished games are in {output.path}; play the others with --resume-output"
    try:
        failed = _play(output, tasks, sampler, agent, family, config, cost)
    except KeyboardInterrupt:
        print(f"\n{go_on}" if output.rows else "", file=sys.stderr)
        raise
    except AlfworldRLError as error:
        if not output.rows:
            raise
        raise AlfworldRLError(f"{str(error).rstrip('.')}; {go_on}") from error
    if failed:
        raise AlfworldRLError(
            f"{len(failed)} of {len(tasks)} games were not played to their end ({failed[0]}); {go_on}"
        )


def _play(
    output: ResultsOutput,
    tasks: Sequence[Task],
    sampler: Sampler | ChatModel,
    agent: AgentFormat,
    family: EnvironmentFamily,
    config: EvalConfig,
    cost: Cost,
) -> list[str]:
    """Play the games that the output lacks; returns why games failed, a reason each."""
    samples = range(config.samples_per_game)
    missing = [task for task in tasks if any((task.game_id, sample) not in output.rows for sample in samples)]
    if len(missing) < len(tasks):
        print(f"{len(tasks) - len(missing)} of {len(tasks)} games are there already", flush=True)
    won = sum(row.won for row in output.rows.values())
    done, lost = 0, Usage()
    with Progress() as progress:
        progress.start("games", len(missing))

        def finished(result: Sequence[ResultRow] | Failure) -> None:
            nonlocal done, won, lost
            done += 1
            if isinstance(result, Failure):
                lost += result.usage
                result = ()
            for row in result:
                output.add(row)
                won += row.won
            progress.advance()
            if done % 20 == 0 and done < len(missing):
                progress.say(f"{done} of {len(missing)} games, {won} trajectories won so far")
            rows = output.rows.values()
            used = lost + Usage(sum(row.prefill_tokens for row in rows), 0, sum(row.sampled_tokens for row in rows))
            if done < len(missing) and not cost.affordable(used, Usage()):
                raise AlfworldRLError(f"the evaluation reached --max-cost {cost.ceiling_text}")

        evaluation = asyncio.run(
            evaluate(
                missing,
                sampler,
                agent,
                family,
                samples_per_task=config.samples_per_game,
                limits=config.episode.limits,
                sampling=config.episode.sampling,
                reward=config.reward.function(),
                seed=config.seed,
                in_flight=config.in_flight,
                on_finished=finished,
            )
        )
    return list(evaluation.failures.values())


def _show(summary: Mapping[str, Any]) -> None:
    metrics, intervals = summary["metrics"], summary["intervals"]

    def rate(name: str) -> str:
        low, high = intervals[name]
        return f"{metrics[name]:.1%} [{low:.1%}, {high:.1%}]"

    splits = [name.split("/")[1] for name in metrics if name.endswith("/games")]
    if len(splits) == 2:  # one split, and the same again as all
        splits = splits[:1]
    rows = [
        [
            split,
            f"{metrics[f'eval/{split}/games']}",
            rate(f"eval/{split}/success_rate"),
            f"{metrics[f'eval/{split}/reward_mean']:.3f}",
            f"{metrics[f'eval/{split}/steps_mean']:.1f}",
            f"{metrics[f'eval/{split}/invalid_actions_mean']:.2f}",
            f"{metrics[f'eval/{split}/valid_tool_call_rate']:.1%}",
        ]
        for split in splits
    ]
    print_table(["split", "games", "success", "reward", "steps", "invalid actions", "valid calls"], rows)
    types = sorted({name.split("/")[3] for name in metrics if name.count("/") == 3})
    print()
    print_table(
        ["task type", *splits],
        [
            [
                kind,
                *(rate(name) if (name := f"eval/{split}/success_rate/{kind}") in metrics else "-" for split in splits),
            ]
            for kind in types
        ],
    )
    if (samples := summary["samples_per_game"]) > 1:
        last = splits[-1]
        print("\n" + "  ".join(f"pass@{k} {metrics[f'eval/{last}/pass@{k}']:.1%}" for k in range(1, samples + 1)))

"""`eval`: play every game, write each down when it is done, sum up at the end."""

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from alfworld_rl.agents.tool_call import protocol_hash
from alfworld_rl.backends import check_length, open_backend
from alfworld_rl.backends.protocol import Backend, Checkpoint, Sampler, Usage
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.output import ResultsOutput, check_output, opened
from alfworld_rl.evaluation.results import Line, intervals_of, metrics_of
from alfworld_rl.games import GameRef
from alfworld_rl.rollout.scheduler import collect
from alfworld_rl.rollout.trajectory import Group, Trajectory
from alfworld_rl.runs.games import split_games, spread
from alfworld_rl.runs.money import Prices, cost
from alfworld_rl.runs.output import Progress, print_table, seconds, tokens
from alfworld_rl.runs.settings import EvalSettings, as_json, home, project_root
from alfworld_rl.runs.tracking import check_swanlab, tracking
from alfworld_rl.world import Game, GameFileError


def evaluate(settings: EvalSettings, *, open_backend: Callable[..., Backend] = open_backend) -> Mapping[str, Any]:
    """Play the games that `settings` names and write the results file; returns its summary.

    Every game is played exactly once, and the score is the same for any number of games in flight, order of answers
    or interruption: the seed of a request depends on the game, the sample and the turn alone.
    """
    if settings.model_path is not None and Checkpoint.parse(settings.model_path).kind == "training_state":
        raise UsageError(
            f"--model-path {settings.model_path} is a training state, for going on with training; "
            "use the URI that the run printed as `Saved sampler weights`"
        )
    prices = Prices.load(settings.prices)
    check_swanlab(settings.swanlab_mode)
    games = [
        game for split in settings.splits for game in spread(split_games(settings, split), settings.limit_per_split)
    ]
    rollout = settings.rollout
    # Reading every file now finds a broken one before the model is asked anything, and tells later what was played.
    hashes = {game.game_id: hashlib.sha256(_whole_game(game)).hexdigest() for game in games}
    path = settings.results_file
    check_output(path, overwrite=settings.overwrite_output, resume=settings.resume_output)

    score_settings = {name: value for name, value in asdict(rollout).items() if name not in NOT_OF_THE_SCORE}
    model = {"base_model": settings.model, "model_path": settings.model_path}
    played = model | {
        "backend": settings.backend,
        "split": settings.split,
        "limit_per_split": settings.limit_per_split,
        "samples_per_game": settings.samples_per_game,
        "seed": settings.seed,
        "protocol": protocol_hash(rollout.admissible_commands),
        "games": hashlib.sha256("".join(hashes.values()).encode()).hexdigest()[:16],
        **score_settings,
    }
    backend = open_backend(
        settings.backend,
        runs_dir=home() / "runs",
        max_in_flight=settings.games_per_batch * settings.samples_per_game,
    )
    started = time.monotonic()
    try:
        check_length(backend, settings.model, settings.max_trajectory_tokens)
        sampler = backend.sampler(settings.model, settings.model_path)
        with (
            opened(path, played, overwrite=settings.overwrite_output, resume=settings.resume_output) as output,
            tracking(
                settings.swanlab_mode,
                project=settings.swanlab_project,
                name=path.stem,
                config=as_json(settings),
                folder=project_root(),
            ) as tracker,
        ):
            way_on = f"the finished games are in {path}; play the others with --resume-output"
            try:
                failed = _play(output, games, sampler, settings)
            except KeyboardInterrupt:
                print(f"\n{way_on}" if output.lines else "", file=sys.stderr)
                raise
            except AlfworldRLError as error:
                if not output.lines:
                    raise
                raise AlfworldRLError(f"{str(error).rstrip('.')}; {way_on}") from error
            if failed:
                raise AlfworldRLError(
                    f"{len(failed)} of {len(games)} games were not played to their end ({failed[0]}); {way_on}"
                )

            def summary(lines: Sequence[Line]) -> Line:
                return {
                    "type": "summary",
                    **model,
                    "metrics": metrics_of(lines),
                    "intervals": intervals_of(lines),
                    "settings": score_settings,
                    "protocol": played["protocol"],
                    "seed": settings.seed,
                    "samples_per_game": settings.samples_per_game,
                    "usage": {name: sum(line[f"{name}_tokens"] for line in lines) for name in ("prefill", "sampled")},
                    "game_sha256": hashes,
                    "played": played,
                }

            order = [(game.game_id, sample) for game in games for sample in range(settings.samples_per_game)]
            last = output.finish(order, summary)
            tracker.log(last["metrics"], 0)
    finally:
        backend.close()
    _show(last)
    usage = Usage(**last["usage"])
    price = "" if settings.backend == "local" else f", ~{prices.format(cost(usage, prices))}"
    duration = seconds(time.monotonic() - started)
    print(f"\n{tokens(usage.prefill)} tokens read, {tokens(usage.sampled)} written{price}, in {duration}")
    print(f"Results: {path}")
    return last


#: Settings of a rollout that leave the score as it is.
NOT_OF_THE_SCORE = ("environment", "environment_asynchronous")


def _play(output: ResultsOutput, games: Sequence[GameRef], sampler: Sampler, settings: EvalSettings) -> list[str]:
    """Play the games that the output lacks; returns why games failed, a reason each."""
    samples = range(settings.samples_per_game)
    missing = [game for game in games if any((game.game_id, sample) not in output.lines for sample in samples)]
    if len(missing) < len(games):
        print(f"{len(games) - len(missing)} of {len(games)} games are there already", flush=True)
    failed: list[str] = []
    won = sum(line["won"] for line in output.lines.values())
    done = 0
    with Progress() as progress:
        progress.start("games", len(missing))

        def finished(group: Group) -> None:
            nonlocal done, won
            done += 1
            errors = [one.error or "for no known reason" for one in group.trajectories if one.failed]
            if errors:
                failed.append(errors[0])
            else:
                for trajectory in group.trajectories:
                    output.add(_line(trajectory, group))
                    won += trajectory.won
            progress.advance()
            if done % 20 == 0 and done < len(missing):
                progress.say(f"{done} of {len(missing)} games, {won} trajectories won so far")

        asyncio.run(
            collect(
                missing,
                sampler,
                settings.rollout,
                group_size=settings.samples_per_game,
                seed_path=(settings.seed, "eval"),
                games_in_flight=settings.games_per_batch,
                on_finished=finished,
            )
        )
    return failed


def _line(trajectory: Trajectory, group: Group) -> dict[str, Any]:
    # The request for all first messages of a game is counted with its first trajectory.
    usage = trajectory.usage if trajectory.branch else trajectory.usage + group.opening_usage
    return {
        "type": "trajectory",
        "game_id": trajectory.game.game_id,
        "split": trajectory.game.split,
        "evaluation_split": trajectory.game.split,
        "task_type": trajectory.game.task_type,
        "task": trajectory.task,
        "sample": trajectory.branch,
        "won": trajectory.won,
        "reward": trajectory.reward,
        "steps": trajectory.steps,
        "truncated": trajectory.truncated,
        "stop_reason": trajectory.stop_reason,
        "invalid_action_count": trajectory.invalid_action_count,
        "valid_tool_call_count": trajectory.valid_tool_call_count,
        "admissible_action_count": trajectory.admissible_action_count,
        "prefill_tokens": usage.prefill,
        "sampled_tokens": trajectory.transcript.written_count,
        "messages": trajectory.messages,
    }


def _whole_game(game: GameRef) -> bytes:
    try:
        content = game.path.read_bytes()
    except OSError as error:
        raise GameFileError(game.path, f"cannot be read ({error.strerror or error})") from error
    Game.parse(content, game.path)
    return content


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

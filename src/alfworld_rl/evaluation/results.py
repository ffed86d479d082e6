"""The results JSONL: what it holds, its metrics, and reading one that this or another program wrote.

Lines of `"type": "trajectory"` come first, one a trajectory; the last line is `"type": "summary"`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.evaluation.statistics import mean, pass_at_k, wilson_interval

Line = Mapping[str, Any]

#: No file counts more of anything; what claims to is refused before it overflows a figure.
_MOST = 1e9

#: The name of all splits together in metric names.
ALL = "all"


class ResultsError(AlfworldRLError):
    """A results file cannot be read, is not finished, or does not hold what it should."""


def metrics_of(lines: Sequence[Line]) -> dict[str, float]:
    """`eval/<split>/<metric>` of the trajectories, for every split and, under `all`, for them together.

    The steps of a trajectory are its tool calls, right or wrong. Rates over steps are of all steps of all
    trajectories. With K trajectories a game there are `pass@1` to `pass@K`, too (arXiv 2107.03374).
    """
    metrics: dict[str, float] = {}
    for split, members in by_split(lines).items():
        steps = sum(line["steps"] for line in members)
        metrics |= {
            f"eval/{split}/{name}": value
            for name, value in {
                "reward_mean": mean([line["reward"] for line in members]),
                "success_rate": mean([line["won"] for line in members]),
                "steps_mean": mean([line["steps"] for line in members]),
                "truncated_rate": mean([line["truncated"] for line in members]),
                "valid_tool_call_rate": _rate(sum(line["valid_tool_call_count"] for line in members), steps),
                "admissible_action_rate": _rate(sum(line["admissible_action_count"] for line in members), steps),
                "invalid_actions_mean": mean([line["invalid_action_count"] for line in members]),
                "games": len({line["game_id"] for line in members}),
            }.items()
        }
        for task_type in sorted({line["task_type"] for line in members}):
            of_type = [line["won"] for line in members if line["task_type"] == task_type]
            metrics[f"eval/{split}/success_rate/{task_type}"] = mean(of_type)
        wins, samples = wins_per_game(members)
        if samples > 1:
            for k in range(1, samples + 1):
                metrics[f"eval/{split}/pass@{k}"] = mean([pass_at_k(samples, won, k) for won in wins.values()])
    return metrics


def intervals_of(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Wilson 95% intervals of the rates of `metrics_of`, by the same names.

    Success is counted in games, however many trajectories a game has: trajectories of one game are alike,
    and counting them as independent would make the interval too narrow.
    """
    intervals: dict[str, list[float]] = {}

    def in_games(members: Sequence[Line], key: str) -> list[float]:
        games = len({line["game_id"] for line in members})
        return list(wilson_interval(mean([line[key] for line in members]) * games, games))

    for split, members in by_split(lines).items():
        intervals[f"eval/{split}/success_rate"] = in_games(members, "won")
        intervals[f"eval/{split}/truncated_rate"] = in_games(members, "truncated")
        steps = sum(line["steps"] for line in members)
        for name in ("valid_tool_call", "admissible_action"):
            hits = sum(line[f"{name}_count"] for line in members)
            intervals[f"eval/{split}/{name}_rate"] = list(wilson_interval(hits, steps))
        for task_type in sorted({line["task_type"] for line in members}):
            of_type = [line for line in members if line["task_type"] == task_type]
            intervals[f"eval/{split}/success_rate/{task_type}"] = in_games(of_type, "won")
    return intervals


def by_split(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The trajectories of each split, then of all of them under `all`; nothing for no lines."""
    splits: dict[str, list[Line]] = {}
    for line in lines:
        splits.setdefault(line["evaluation_split"], []).append(line)
    return dict(sorted(splits.items())) | ({ALL: list(lines)} if lines else {})


def wins_per_game(lines: Sequence[Line]) -> tuple[dict[str, int], int]:
    """Trajectories won of each game, and how many every game has (the fewest, should they differ)."""
    wins: dict[str, int] = {}
    counts: dict[str, int] = {}
    for line in lines:
        wins[line["game_id"]] = wins.get(line["game_id"], 0) + bool(line["won"])
        counts[line["game_id"]] = counts.get(line["game_id"], 0) + 1
    return wins, min(counts.values(), default=0)


@dataclass(frozen=True, slots=True)
class SplitScore:
    """What the figure shows of one split."""

    games: int
    success_rate: float
    invalid_actions_mean: float

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.success_rate * self.games, self.games)


@dataclass(frozen=True, slots=True)
class Results:
    """A finished results file. `protocol` and `game_hashes` are empty where another program wrote it."""

    path: Path
    base_model: str
    model_path: str | None
    scores: Mapping[str, SplitScore]
    trajectories: tuple[Line, ...] = ()
    protocol: str = ""
    game_hashes: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overall(self) -> SplitScore:
        games = sum(score.games for score in self.scores.values())

        def weighted(values: Sequence[tuple[int, float]]) -> float:
            return sum(count * value for count, value in values) / games if games else 0.0

        return SplitScore(
            games,
            weighted([(score.games, score.success_rate) for score in self.scores.values()]),
            weighted([(score.games, score.invalid_actions_mean) for score in self.scores.values()]),
        )

    @property
    def won(self) -> dict[str, bool]:
        """Game id -> won, for results with one trajectory a game; else empty."""
        wins, _ = wins_per_game(self.trajectories)
        return {game: bool(won) for game, won in wins.items()} if len(wins) == len(self.trajectories) else {}

    def per_game(self, key: str) -> dict[str, float]:
        """Game id -> mean of a number over the game's trajectories; empty where the file does not say it of all."""
        values: dict[str, list[float]] = {}
        for line in self.trajectories:
            if not isinstance(line.get(key), int | float):
                return {}
            values.setdefault(line["game_id"], []).append(line[key])
        return {game: mean(of_game) for game, of_game in values.items()}


def read_results(path: Path) -> Results:
    """Read a finished results file. Raises ResultsError saying what is missing or wrong, and in which line."""
    if not path.is_file():
        raise ResultsError(f"{path} is missing; write it with eval.py --output {path}")
    trajectories: list[Line] = []
    summary: Line | None = None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} cannot be read ({error})") from error
    # Not splitlines(): a model may write U+2028 and the like, which JSON keeps as they are.
    for number, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            line = json.loads(row)
        except (ValueError, RecursionError):
            raise ResultsError(f"{path}, line {number} is not JSON; finish the file with --resume-output") from None
        kind = line.get("type") if isinstance(line, dict) else None
        if kind == "summary":
            summary = line
        elif kind == "trajectory":
            trajectories.append(_trajectory(line, f"{path}, line {number}"))
    if summary is None:
        raise ResultsError(f"{path} has no summary: the evaluation is not finished; go on with --resume-output")
    base_model = summary.get("base_model")
    if not isinstance(base_model, str) or not base_model:
        raise ResultsError(f"{path}: the summary names no base_model")
    settings = summary.get("settings")
    hashes = summary.get("game_sha256")
    return Results(
        path=path,
        base_model=base_model,
        model_path=summary.get("model_path"),
        scores=_scores(trajectories, summary, path),
        trajectories=tuple(trajectories),
        protocol=str(summary.get("protocol") or ""),
        game_hashes=hashes if isinstance(hashes, dict) else {},
        settings=settings if isinstance(settings, dict) else {},
    )


def _trajectory(line: dict[str, Any], where: str) -> Line:
    """The keys that are counted, with the defaults of programs that write fewer."""
    game, won = line.get("game_id"), line.get("won")
    if not isinstance(game, str) or not isinstance(won, bool):
        raise ResultsError(f"{where}: a trajectory needs a game_id and won (true or false)")
    splits = [line.get("evaluation_split"), line.get("split")]
    split = next((name for name in splits if isinstance(name, str) and name not in ("", ALL)), None)
    if split is None:
        raise ResultsError(f"{where}: a trajectory needs an evaluation_split, the name of one split")
    invalid = line.get("invalid_action_count", 0)
    if not isinstance(invalid, int | float) or not 0 <= invalid <= _MOST:
        raise ResultsError(f"{where}: invalid_action_count is not a count")
    for key in ("steps", "reward"):
        number = line.get(key)
        if isinstance(number, int | float) and not abs(number) <= _MOST:  # NaN is neither below nor above
            raise ResultsError(f"{where}: {key} is {number}; write a finite number or leave it out")
    return {**line, "evaluation_split": split, "invalid_action_count": invalid}


def _scores(trajectories: Sequence[Line], summary: Line, path: Path) -> dict[str, SplitScore]:
    """Per split, counted from the trajectories; a file of a summary alone is taken at its word."""
    if trajectories:
        return {
            split: SplitScore(
                games=len({line["game_id"] for line in members}),
                success_rate=mean([line["won"] for line in members]),
                invalid_actions_mean=mean([line["invalid_action_count"] for line in members]),
            )
            for split, members in by_split(trajectories).items()
            if split != ALL
        }
    metrics = summary.get("metrics")
    if not isinstance(metrics, dict):
        raise ResultsError(f"{path} holds neither trajectories nor metrics")
    scores = {}
    for name in metrics:
        root, _, rest = name.partition("/")
        split, _, metric = rest.partition("/")
        if root == "eval" and metric == "games" and split != ALL:
            try:
                games, rate, invalid = (
                    float(metrics[f"eval/{split}/{key}"]) for key in ("games", "success_rate", "invalid_actions_mean")
                )
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise ResultsError(f"{path}: the summary's metrics of {split} are not all numbers ({error})") from None
            if not (1 <= games <= _MOST and 0 <= rate <= 1 and 0 <= invalid <= _MOST):
                raise ResultsError(f"{path}: the summary's metrics of {split} cannot be")
            scores[split] = SplitScore(int(games), rate, invalid)
    if not scores:
        raise ResultsError(f"{path} holds no results")
    return scores


def _rate(hits: float, trials: float) -> float:
    return hits / trials if trials else 0.0

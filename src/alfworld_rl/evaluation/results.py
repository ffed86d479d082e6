"""A results file as a whole: reading one that this or another program wrote.

Lines of `"type": "trajectory"` come first, one a trajectory; the last line is `"type": "summary"`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alfworld_rl.evaluation.metrics import by_split
from alfworld_rl.evaluation.record import ALL, MOST, OLDER, ResultRow, ResultsError
from alfworld_rl.evaluation.statistics import mean, wilson_interval


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
    rows: tuple[ResultRow, ...] = ()
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


def read_results(path: Path) -> Results:
    """Read a finished results file. Raises ResultsError saying what is missing or wrong, and in which line."""
    if not path.is_file():
        raise ResultsError(f"{path} is missing; write it with eval.py --output {path}")
    trajectories: list[ResultRow] = []
    summary: Mapping[str, Any] | None = None
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
            trajectories.append(ResultRow.from_json(line, f"{path}, line {number}"))
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
        rows=tuple(trajectories),
        protocol=str(summary.get("protocol") or ""),
        game_hashes=hashes if isinstance(hashes, dict) else {},
        # What an older version did not write down, it did by the only way there was.
        settings={**OLDER, **settings} if isinstance(settings, dict) and settings else {},
    )


def _scores(trajectories: Sequence[ResultRow], summary: Mapping[str, Any], path: Path) -> dict[str, SplitScore]:
    """Per split, counted from the trajectories; a file of a summary alone is taken at its word."""
    if trajectories:
        return {
            split: SplitScore(
                games=len({row.game_id for row in members}),
                success_rate=mean([row.won for row in members]),
                invalid_actions_mean=mean([row.invalid_action_count for row in members]),
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
            if not (1 <= games <= MOST and 0 <= rate <= 1 and 0 <= invalid <= MOST):
                raise ResultsError(f"{path}: the summary's metrics of {split} cannot be")
            scores[split] = SplitScore(int(games), rate, invalid)
    if not scores:
        raise ResultsError(f"{path} holds no results")
    return scores

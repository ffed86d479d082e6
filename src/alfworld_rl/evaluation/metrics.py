"""What rows of results say together, by name, and how sure that is."""

from collections.abc import Sequence

from alfworld_rl.evaluation.record import ALL, ResultRow
from alfworld_rl.evaluation.statistics import cluster_bootstrap_interval, mean, pass_at_k, wilson_interval


def metrics_of(rows: Sequence[ResultRow]) -> dict[str, float]:
    """`eval/<split>/<metric>` of the trajectories, for every split and, under `all`, for them together.

    The steps of a trajectory are its tool calls, right or wrong. Rates over steps are of all steps of all
    trajectories. With K trajectories a game there are `pass@1` to `pass@K`, too (arXiv 2107.03374).
    """
    metrics: dict[str, float] = {}
    for split, members in by_split(rows).items():
        steps = sum(row.steps or 0 for row in members)
        metrics |= {
            f"eval/{split}/{name}": value
            for name, value in {
                "reward_mean": mean([row.reward or 0.0 for row in members]),
                "success_rate": mean([row.won for row in members]),
                "steps_mean": mean([row.steps or 0 for row in members]),
                "truncated_rate": mean([row.truncated for row in members]),
                "valid_tool_call_rate": _rate(sum(row.valid_tool_call_count for row in members), steps),
                "admissible_action_rate": _rate(sum(row.admissible_action_count for row in members), steps),
                "invalid_actions_mean": mean([row.invalid_action_count for row in members]),
                "games": len({row.game_id for row in members}),
            }.items()
        }
        if any(row.thought_tokens for row in members):
            thought = sum(row.thought_tokens or 0 for row in members)
            metrics[f"eval/{split}/thought_tokens_per_step"] = _rate(thought, steps)
        for task_type in sorted({row.task_type for row in members}):
            of_type = [row.won for row in members if row.task_type == task_type]
            metrics[f"eval/{split}/success_rate/{task_type}"] = mean(of_type)
        wins, samples = wins_per_game(members)
        if samples > 1:
            for k in range(1, samples + 1):
                metrics[f"eval/{split}/pass@{k}"] = mean([pass_at_k(samples, won, k) for won in wins.values()])
    return metrics


def intervals_of(rows: Sequence[ResultRow]) -> dict[str, list[float]]:
    """95% intervals of the rates of `metrics_of`, by the same names.

    What is independent is a game: its trajectories are alike, and so are their steps, and counting these as independent
    would make the interval too narrow. So success and truncation get Wilson's interval, counted in games, however many
    trajectories a game has; rates over steps get that of a bootstrap over games.
    """
    intervals: dict[str, list[float]] = {}

    def in_games(members: Sequence[ResultRow], key: str) -> list[float]:
        games = len({row.game_id for row in members})
        return list(wilson_interval(mean([getattr(row, key) for row in members]) * games, games))

    for split, members in by_split(rows).items():
        intervals[f"eval/{split}/success_rate"] = in_games(members, "won")
        intervals[f"eval/{split}/truncated_rate"] = in_games(members, "truncated")
        steps = _sums(members, "steps")
        for name in ("valid_tool_call", "admissible_action"):
            hits = _sums(members, f"{name}_count")
            intervals[f"eval/{split}/{name}_rate"] = list(cluster_bootstrap_interval(hits, steps))
        for task_type in sorted({row.task_type for row in members}):
            of_type = [row for row in members if row.task_type == task_type]
            intervals[f"eval/{split}/success_rate/{task_type}"] = in_games(of_type, "won")
    return intervals


def by_split(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    """The trajectories of each split, then of all of them under `all`; nothing for no rows."""
    splits: dict[str, list[ResultRow]] = {}
    for row in rows:
        splits.setdefault(row.evaluation_split, []).append(row)
    return dict(sorted(splits.items())) | ({ALL: list(rows)} if rows else {})


def wins_per_game(rows: Sequence[ResultRow]) -> tuple[dict[str, int], int]:
    """Trajectories won of each game, and how many every game has (the fewest, should they differ)."""
    wins: dict[str, int] = {}
    counts: dict[str, int] = {}
    for row in rows:
        wins[row.game_id] = wins.get(row.game_id, 0) + bool(row.won)
        counts[row.game_id] = counts.get(row.game_id, 0) + 1
    return wins, min(counts.values(), default=0)


def won_games(rows: Sequence[ResultRow]) -> dict[str, bool]:
    """Game id -> won, for results with one trajectory a game; else empty."""
    wins, _ = wins_per_game(rows)
    return {game: bool(won) for game, won in wins.items()} if len(wins) == len(rows) else {}


def per_game(rows: Sequence[ResultRow], key: str) -> dict[str, float]:
    """Game id -> mean of a number over the game's trajectories; empty where the rows do not all say it."""
    values: dict[str, list[float]] = {}
    for row in rows:
        value = getattr(row, key)
        if value is None:
            return {}
        values.setdefault(row.game_id, []).append(value)
    return {game: mean(of_game) for game, of_game in values.items()}


def _sums(rows: Sequence[ResultRow], key: str) -> list[float]:
    """The sum over each game's trajectories, the games in an order that does not depend on that of the rows."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row.game_id] = sums.get(row.game_id, 0) + (getattr(row, key) or 0)
    return [sums[game] for game in sorted(sums)]


def _rate(hits: float, trials: float) -> float:
    return hits / trials if trials else 0.0

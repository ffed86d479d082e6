"""Results files -> what a page says of them as numbers: scores with intervals, paired differences, refusals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from alfworld_rl.analysis.report.turns import REFUSED
from alfworld_rl.evaluation.metrics import by_split, per_game, won_games
from alfworld_rl.evaluation.record import ALL, ResultRow
from alfworld_rl.evaluation.results import Results
from alfworld_rl.evaluation.statistics import compare_paired, mean, sign_flip_test, wilson_interval

#: How many refused commands of a result are listed.
_MOST_REFUSED = 10
#: Where the curve of games won within n steps ends at the latest.
_MOST_STEPS = 1000


def scores(results: Results) -> list[dict[str, Any]]:
    """One row for all games, then one a split and one a task type: "what" ("all", "split" or "type"), "name", counts,
    "success" with its 95% interval, and means of what every line of the row says.

    Success is counted in games, however many trajectories a game has, as in the results' own summary.
    """
    rows = results.rows
    if not rows:
        return _from_summary(results)
    types: dict[str, list[ResultRow]] = {}
    for row in rows:
        if row.task_type:
            types.setdefault(row.task_type, []).append(row)
    scored = [_score("all", ALL, rows)]
    scored += [_score("split", name, members) for name, members in by_split(rows).items() if name != ALL]
    return scored + [_score("type", name, types[name]) for name in sorted(types)]


def _score(what: str, name: str, rows: Sequence[ResultRow]) -> dict[str, Any]:
    games = len({row.game_id for row in rows})
    success = mean([row.won for row in rows])
    score: dict[str, Any] = {
        "what": what,
        "name": name,
        "games": games,
        "plays": len(rows),
        "success": success,
        "interval": list(wilson_interval(success * games, games)),
        "invalid": mean([row.invalid_action_count for row in rows]),
    }
    for key in ("steps", "reward"):
        values = [value for row in rows if (value := getattr(row, key)) is not None]
        if len(values) == len(rows):
            score[key] = mean(values)
    if won := [row.steps for row in rows if row.won and row.steps is not None]:
        score["steps_won"] = mean(won)
    return score


def _from_summary(results: Results) -> list[dict[str, Any]]:
    named = [("all", ALL, results.overall), *(("split", name, score) for name, score in results.scores.items())]
    return [
        {
            "what": what,
            "name": name,
            "games": score.games,
            "plays": score.games,
            "success": score.success_rate,
            "interval": list(score.interval),
            "invalid": score.invalid_actions_mean,
        }
        for what, name, score in named
    ]


def won_within(rows: Sequence[ResultRow]) -> list[float]:
    """Share of trajectories won after at most n steps, for n = 0, 1, ...; empty where steps are not known of all."""
    counts = [row.steps for row in rows if row.steps is not None]
    if not counts or len(counts) < len(rows):
        return []
    wins = Counter(row.steps for row in rows if row.won)
    shares, so_far = [], 0
    for number in range(min(max(counts), _MOST_STEPS) + 1):
        so_far += wins[number]
        shares.append(so_far / len(rows))
    return shares


def stop_reason(row: ResultRow) -> str:
    """Why a trajectory ended, also for files that say less."""
    return row.stop_reason or ("won" if row.won else "limit" if row.truncated else "not won")


def most_refused(plays: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[Any]]:
    """[command, times, trajectories, most frequent reason or ""] of what the game refused most often.

    `plays` holds the turns of each trajectory.
    """
    times: Counter[str] = Counter()
    in_plays: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = {}
    for turns in plays:
        refused = [turn for turn in turns if turn["kind"] == REFUSED]
        for turn in refused:
            reasons.setdefault(turn["action"], Counter())[turn.get("why", "")] += 1
        times.update(turn["action"] for turn in refused)
        in_plays.update({turn["action"] for turn in refused})
    return [
        [action, count, in_plays[action], reasons[action].most_common(1)[0][0]]
        for action, count in times.most_common(_MOST_REFUSED)
    ]


def paired(results: Sequence[Results]) -> list[dict[str, Any]]:
    """Every two results on the games that both hold: "before" and "after" are their places in `results`.

    Success with one trajectory a game is tested by McNemar's exact test, anything else by the randomization test on
    the games' means (`evaluation.statistics`). Games whose files are known to differ are left out.
    """
    found = []
    for before, after in combinations(range(len(results)), 2):
        pair = _pair(results[before], results[after])
        if pair is not None:
            found.append({"before": before, "after": after} | pair)
    return found


def _pair(before: Results, after: Results) -> dict[str, Any] | None:
    wins_before, wins_after = per_game(before.rows, "won"), per_game(after.rows, "won")
    shared = [game for game in wins_before if game in wins_after and _same_file(game, before, after)]
    if not shared:
        return None
    pair: dict[str, Any] = {"games": len(shared), "of": len(wins_before.keys() | wins_after.keys())}
    won_before, won_after = won_games(before.rows), won_games(after.rows)
    if won_before and won_after:
        flips = compare_paired({game: won_before[game] for game in shared}, {game: won_after[game] for game in shared})
        pair |= {"gained": len(flips.gained), "lost": len(flips.lost)}
        pair["success"] = {"difference": flips.difference, "p": flips.p_value, "test": "McNemar's exact test"}
    else:
        pair["success"] = _difference(wins_before, wins_after, shared)
        changes = [wins_after[game] - wins_before[game] for game in shared]
        pair |= {"gained": sum(change > 0 for change in changes), "lost": sum(change < 0 for change in changes)}
    for key in ("steps", "invalid_action_count", "reward"):
        numbers_before, numbers_after = per_game(before.rows, key), per_game(after.rows, key)
        if numbers_before and numbers_after:
            pair[key] = _difference(numbers_before, numbers_after, shared)
    return pair


def _difference(before: Mapping[str, float], after: Mapping[str, float], games: Sequence[str]) -> dict[str, Any]:
    changes_N = [after[game] - before[game] for game in games]
    # A tenth of `analysis`'s draws: three results make nine tests, and a page need not tell p = 0.0001 from 0.00001.
    return {"difference": mean(changes_N), "p": sign_flip_test(changes_N, draws=10_000), "test": "randomization test"}


def _same_file(game: str, before: Results, after: Results) -> bool:
    hashes = before.game_hashes.get(game), after.game_hashes.get(game)
    return None in hashes or hashes[0] == hashes[1]

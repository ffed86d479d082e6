"""Results files -> the content of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from alfworld_rl.analysis.compare import mismatches
from alfworld_rl.analysis.report.overview import most_refused, paired, scores, stop_reason, won_within
from alfworld_rl.analysis.report.page import Content
from alfworld_rl.analysis.report.turns import detail, kinds
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.evaluation.results import Results
from alfworld_rl.runs.cost import Prices, cost
from alfworld_rl.types import Usage


def content_of(results: Mapping[str, Results], prices: Mapping[str, Prices | None]) -> Content:
    """What a page shows of labelled results. `prices` says by label what tokens cost; None where nobody knows."""
    games: dict[str, dict[str, Any]] = {}
    details: dict[str, list[Any]] = {}
    shown = []
    for number, (label, item) in enumerate(results.items()):
        plays = [detail(row) for row in item.rows]
        for row, play in zip(item.rows, plays, strict=True):
            add_play(games, details, row.game_id, row, play, {"result": number, "sample": row.sample})
        shown.append(
            {
                "label": label,
                "file": item.path.name,
                "model": item.base_model,
                "weights": item.model_path,
                "settings": dict(item.settings),
                "scores": scores(item),
                "within": won_within(item.rows),
                "stops": dict(Counter(stop_reason(row) for row in item.rows).most_common()),
                "refused": most_refused([play.get("turns", []) for play in plays]),
                "usage": _usage(item.rows, prices.get(label)),
            }
        )
    return Content(
        index={
            "kind": "evaluation",
            "results": shown,
            "pairs": paired(list(results.values())),
            "notes": mismatches(results) if len(results) > 1 else [],
            "games": list(games.values()),
        },
        details=list(details.values()),
    )


def add_play(
    games: dict[str, dict[str, Any]],
    details: dict[str, list[Any]],
    key: str,
    row: ResultRow,
    play: Mapping[str, Any],
    more: Mapping[str, Any],
) -> None:
    """Put one trajectory into the table of games under `key`, and what it said and did into `details`."""
    entry = games.setdefault(
        key,
        {
            "id": key,
            "game": row.game_id,
            "split": row.evaluation_split,
            "type": row.task_type,
            "task": row.task,
            "plays": [],
        },
    )
    turns = play.get("turns", [])
    entry["plays"].append(
        {
            "won": row.won,
            "steps": row.steps if row.steps is not None else len(turns) or None,
            "invalid": row.invalid_action_count,
            "reward": row.reward,
            "stop": stop_reason(row),
            "kinds": kinds(turns),
            "actions": "\n".join(turn.get("action") or "" for turn in turns),
            **more,
        }
    )
    details.setdefault(key, []).append(play)


def _usage(rows: Sequence[ResultRow], prices: Prices | None) -> dict[str, Any]:
    """Tokens in all, and their cost where prices are known; nothing for files that do not count tokens."""
    counts = {
        "prefill": sum(row.prefill_tokens for row in rows),
        "sampled": sum(row.sampled_tokens for row in rows),
    }
    if not all(counts.values()):
        return {}
    price = {} if prices is None else {"cost": prices.format(cost(Usage(**counts), prices)), "prices": prices.date}
    return counts | price

"""Results files -> the content of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from alfworld_rl.analysis.compare import mismatches
from alfworld_rl.analysis.report.overview import most_refused, paired, scores, stop_reason, won_within
from alfworld_rl.analysis.report.page import Content
from alfworld_rl.analysis.report.turns import detail, kinds
from alfworld_rl.backends.protocol import Usage
from alfworld_rl.evaluation.results import Line, Results
from alfworld_rl.runs.money import Prices, cost


def content_of(results: Mapping[str, Results], prices: Mapping[str, Prices | None]) -> Content:
    """What a page shows of labelled results. `prices` says by label what tokens cost; None where nobody knows."""
    games: dict[str, dict[str, Any]] = {}
    details: dict[str, list[Any]] = {}
    shown = []
    for number, (label, item) in enumerate(results.items()):
        plays = [detail(line) for line in item.trajectories]
        for line, play in zip(item.trajectories, plays, strict=True):
            game = line["game_id"]
            add_play(games, details, game, line, play, {"result": number, "sample": line.get("sample", 0)})
        shown.append(
            {
                "label": label,
                "file": item.path.name,
                "model": item.base_model,
                "weights": item.model_path,
                "settings": dict(item.settings),
                "scores": scores(item),
                "within": won_within(item.trajectories),
                "stops": dict(Counter(stop_reason(line) for line in item.trajectories).most_common()),
                "refused": most_refused([play.get("turns", []) for play in plays]),
                "usage": _usage(item.trajectories, prices.get(label)),
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
    line: Line,
    play: Mapping[str, Any],
    more: Mapping[str, Any],
) -> None:
    """Put one trajectory into the table of games under `key`, and what it said and did into `details`."""
    entry = games.setdefault(
        key,
        {
            "id": key,
            "game": line["game_id"],
            "split": line["evaluation_split"],
            "type": line.get("task_type") or "",
            "task": line.get("task") or "",
            "plays": [],
        },
    )
    turns = play.get("turns", [])
    entry["plays"].append(
        {
            "won": line["won"],
            "steps": line.get("steps", len(turns) or None),
            "invalid": line["invalid_action_count"],
            "reward": line.get("reward"),
            "stop": stop_reason(line),
            "kinds": kinds(turns),
            "actions": "\n".join(turn.get("action") or "" for turn in turns),
            **more,
        }
    )
    details.setdefault(key, []).append(play)


def _usage(lines: Sequence[Line], prices: Prices | None) -> dict[str, Any]:
    counts = {}
    for name in ("prefill", "sampled"):
        values = [line.get(f"{name}_tokens") for line in lines]
        numbers = [value for value in values if isinstance(value, int)]
        if not numbers or len(numbers) < len(values):
            return {}
        counts[name] = sum(numbers)
    price = {} if prices is None else {"cost": prices.format(cost(Usage(**counts), prices)), "prices": prices.date}
    return counts | price

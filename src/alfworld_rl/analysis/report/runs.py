"""A run folder -> the content of a report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from alfworld_rl.analysis.curves import WINDOW
from alfworld_rl.analysis.report.evaluations import add_play
from alfworld_rl.analysis.report.page import Content
from alfworld_rl.analysis.report.turns import detail
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.files import read_json, read_jsonl
from alfworld_rl.runs.folder import RunFolder


def content_of(folder: RunFolder, currency: str = "") -> Content:
    """What a page shows of a run, finished or not. `currency` is that of `trainer/cost`.

    Raises AlfworldRLError, naming file and line, where the folder is damaged.
    """
    settings = read_json(folder.settings_file) if folder.settings_file.exists() else {}
    lines = [line for line in read_jsonl(folder.metrics_file) if isinstance(line.get("update"), int)]
    games: dict[str, dict[str, Any]] = {}
    details: dict[str, list[Any]] = {}
    for key, group in _groups(read_jsonl(folder.trajectories_file), str(folder.trajectories_file)).items():
        for row in group:
            given = row.more.get("advantages")
            numbers = [value for value in given if _is_number(value)] if isinstance(given, list) else []
            parts = row.more.get("reward_parts")
            more = {
                "branch": row.more.get("branch", row.sample),
                "advantage": sum(numbers) / len(numbers) if numbers else None,
                "parts": parts if isinstance(parts, dict) else {},
            }
            add_play(games, details, key, row, detail(row), more)
        games[key]["update"] = group[0].more["update"]
    names = {name for line in lines for name, value in line.items() if _is_number(value)} - {"update"}
    return Content(
        index={
            "kind": "run",
            "name": folder.name,
            "model": settings.get("model") or settings.get("base_model"),
            "settings": settings,
            "window": WINDOW,
            "currency": currency,
            "billed": settings.get("backend") != "local",
            "updates": [line["update"] for line in lines],
            "metrics": {
                name: [value if _is_number(value := line.get(name)) else None for line in lines]
                for name in sorted(names)
            },
            "checkpoints": read_jsonl(folder.checkpoints_file),
            "games": list(games.values()),
        },
        details=list(details.values()),
    )


def _groups(lines: Sequence[Mapping[str, Any]], where: str) -> dict[str, list[ResultRow]]:
    """The kept trajectories of each update and game, best first; lines of no update are passed over."""
    groups: dict[str, list[ResultRow]] = {}
    for number, line in enumerate(lines, 1):
        if isinstance(line.get("update"), int):
            row = ResultRow.from_json(line, f"{where}, line {number}")
            groups.setdefault(f"{line['update']}:{row.game_id}", []).append(row)
    for members in groups.values():
        members.sort(key=lambda row: -math.inf if row.reward is None else row.reward, reverse=True)
    return groups


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

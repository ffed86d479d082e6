"""A run folder -> the content of a report."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alfworld_rl.analysis.curves import WINDOW
from alfworld_rl.analysis.report.evaluations import add_play
from alfworld_rl.analysis.report.page import Content
from alfworld_rl.analysis.report.turns import detail
from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.files import whole_lines

SETTINGS, METRICS, TRAJECTORIES, CHECKPOINTS = (
    "settings.json",
    "metrics.jsonl",
    "trajectories.jsonl",
    "checkpoints.jsonl",
)


def is_run(path: Path) -> bool:
    """Whether a folder looks like a run's."""
    return path.is_dir() and any((path / name).is_file() for name in (SETTINGS, METRICS))


def content_of(folder: Path, currency: str = "") -> Content:
    """What a page shows of a run, finished or not. `currency` is that of `trainer/cost`.

    Raises AlfworldRLError, naming file and line, where the folder is damaged.
    """
    settings = _settings(folder / SETTINGS)
    lines = [line for line in whole_lines(folder / METRICS) if isinstance(line.get("update"), int)]
    games: dict[str, dict[str, Any]] = {}
    details: dict[str, list[Any]] = {}
    for key, group in _groups(whole_lines(folder / TRAJECTORIES)).items():
        for line in group:
            numbers = [value for value in line.get("advantages") or [] if isinstance(value, int | float)]
            more = {
                "branch": line.get("branch", 0),
                "advantage": sum(numbers) / len(numbers) if numbers else None,
                "parts": line.get("reward_parts") or {},
            }
            add_play(games, details, key, line, detail(line), more)
        games[key]["update"] = group[0]["update"]
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
            "checkpoints": whole_lines(folder / CHECKPOINTS),
            "games": list(games.values()),
        },
        details=list(details.values()),
    )


def _groups(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The kept trajectories of each update and game, best first; lines that name neither are passed over."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        game, update = line.get("game_id"), line.get("update")
        if not isinstance(game, str) or not isinstance(update, int):
            continue
        filled = {
            "won": bool(line.get("won")),
            "invalid_action_count": line.get("invalid_action_count") or 0,
            "evaluation_split": line.get("split") or "train",
        }
        groups.setdefault(f"{update}:{game}", []).append({**line, **filled})
    for members in groups.values():
        members.sort(key=lambda line: -_number(line.get("reward")))
    return groups


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AlfworldRLError(f"{path} cannot be read ({error})") from error
    return values if isinstance(values, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else float("-inf")

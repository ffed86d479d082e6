"""What runs and results leave behind, to compare one with another."""

import json
from pathlib import Path
from typing import Any

from alfworld_rl.files import read_jsonl
from alfworld_rl.runs.folder import RunFolder

RECORDED = Path(__file__).parent / "recorded"


def timeless(folder: RunFolder | Path) -> list[dict[str, Any]]:
    """The metrics of a run without times and memory: nothing else may differ from one computer to another."""
    lines = read_jsonl(folder.metrics_file if isinstance(folder, RunFolder) else folder / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def golden(name: str) -> list[dict[str, Any]]:
    """Metrics written down once, see tests/recorded/README.md."""
    return json.loads((RECORDED / "golden_metrics" / f"{name}.json").read_text(encoding="utf-8"))

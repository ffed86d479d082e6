"""Stands in for SwanLab, whose cloud no test can reach: writes what it is given to $SWANLAB_STUB, a JSON a line."""

import json
import os
from typing import Any


def _write(**line: Any) -> None:
    with open(os.environ["SWANLAB_STUB"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line, default=str) + "\n")


class Run:
    def __init__(self, id: str) -> None:
        self.id = id

    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        _write(call="log", step=step, metrics=metrics)


def init(**options: Any) -> Run:
    _write(call="init", **options)
    return Run(options.get("id") or f"{os.getpid():x}")


def finish(**options: Any) -> None:
    _write(call="finish", **options)

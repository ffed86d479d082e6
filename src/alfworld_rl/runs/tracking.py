"""SwanLab, for whoever watches metrics there. metrics.jsonl has the same, whatever the mode."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from alfworld_rl.config import Config, option
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import atomic_write, read_json

SwanLabMode = Literal["online", "local", "offline", "disabled"]


class TrackingConfig(Config):
    """Where others watch the metrics."""

    swanlab_project: str = option("alfworld-agent-rl", "SwanLab project")
    swanlab_mode: SwanLabMode = option("online", "where SwanLab keeps the metrics")


class Tracker(Protocol):
    """Where metrics go besides metrics.jsonl; `step` is the update, from 1."""

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...


class _Nowhere:
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        pass


class _SwanLab:
    """A SwanLab experiment. `state_file` remembers its id and the last step, which SwanLab never takes back."""

    def __init__(self, run: Any, state_file: Path | None, logged: int) -> None:
        self._run = run
        self._state_file = state_file
        self._logged = logged

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        # A run that goes on from an earlier save does updates again that the experiment has already.
        if step > self._logged:
            self._run.log(dict(metrics), step=step)
            self._logged = step
            if self._state_file is not None:
                state = {"id": getattr(self._run, "id", None), "step": step}
                atomic_write(self._state_file, json.dumps(state) + "\n")


def check_tracking(config: TrackingConfig) -> None:
    """Refuse a mode that could only fail later, before anything slow or paid. Raises UsageError."""
    if config.swanlab_mode == "local" and find_spec("swanboard") is None:
        raise UsageError(
            "--swanlab-mode local needs SwanLab's dashboard: `uv pip install 'swanlab[dashboard]'`, "
            "or choose --swanlab-mode offline"
        )
    # On a terminal SwanLab asks for the key itself.
    if config.swanlab_mode == "online" and not swanlab_login() and not sys.stdin.isatty():
        raise UsageError(
            "SwanLab is not logged in: run `uv run swanlab login`, or choose --swanlab-mode offline or disabled "
            "(metrics.jsonl is written in any mode)"
        )


def swanlab_login() -> bool:
    """Whether SwanLab finds a key, in its environment variable or where `swanlab login` keeps it."""
    if os.environ.get("SWANLAB_API_KEY"):
        return True
    root = os.environ.get("SWANLAB_ROOT") or os.environ.get("SWANLAB_SAVE_DIR") or Path.home() / ".swanlab"
    return any((folder / ".netrc").is_file() for folder in (Path(root), Path.cwd() / ".swanlab"))


@contextlib.contextmanager
def tracking(
    config: TrackingConfig, *, name: str, settings: Mapping[str, Any], folder: Path, going_on: bool = True
) -> Iterator[Tracker]:
    """A SwanLab experiment for the time of the block; with mode `disabled` SwanLab is not even imported.

    In a folder that has an experiment already, with `going_on`, mode `online` goes on with that one; the other modes
    keep each sitting as an experiment of its own, which is said. What goes wrong inside marks the experiment as
    crashed, Ctrl-C as aborted.
    """
    mode = config.swanlab_mode
    if mode == "disabled":
        yield _Nowhere()
        return
    import swanlab

    state_file = folder / "swanlab.json"
    before = read_json(state_file) if going_on and state_file.exists() else {}
    resuming: dict[str, Any] = {}
    if before.get("id") and mode == "online":
        resuming = {"id": before["id"], "resume": "allow"}
    elif before:
        print(f"SwanLab's mode {mode} cannot go on with an experiment: this sitting becomes one of its own", flush=True)
    try:
        run = swanlab.init(
            project=config.swanlab_project,
            name=name,
            mode=mode,
            config=dict(settings),
            log_dir=str(folder / "swanlog"),
            **resuming,
        )
    except Exception as error:  # SwanLab raises whatever its transport raises
        raise AlfworldRLError(
            f"SwanLab did not start ({error}); run `uv run swanlab login`, or choose --swanlab-mode disabled"
        ) from error
    try:
        yield _SwanLab(run, state_file if going_on else None, int(before.get("step", 0)) if resuming else -1)
    except KeyboardInterrupt:
        swanlab.finish(state="aborted")
        raise
    except BaseException as error:
        swanlab.finish(state="crashed", error=str(error))
        raise
    else:
        swanlab.finish()

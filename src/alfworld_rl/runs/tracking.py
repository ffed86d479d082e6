"""SwanLab, for whoever watches metrics there. metrics.jsonl has the same, whatever the mode."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from alfworld_rl.errors import AlfworldRLError, UsageError


class Tracker(Protocol):
    def log(self, metrics: Mapping[str, float], step: int) -> None: ...


class _Nowhere:
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        pass


class _SwanLab:
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)


def check_swanlab(mode: str) -> None:
    """Refuse a mode that could only fail later, before anything slow or paid. Raises UsageError."""
    if mode == "local" and find_spec("swanboard") is None:
        raise UsageError(
            "--swanlab-mode local needs SwanLab's dashboard: `uv pip install 'swanlab[dashboard]'`, "
            "or choose --swanlab-mode offline"
        )
    # On a terminal SwanLab asks for the key itself.
    if mode == "online" and not swanlab_login() and not sys.stdin.isatty():
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
def tracking(mode: str, *, project: str, name: str, config: Mapping[str, Any], folder: Path) -> Iterator[Tracker]:
    """A SwanLab experiment for the time of the block; with mode `disabled` SwanLab is not even imported.

    What goes wrong inside marks the experiment as crashed, Ctrl-C as aborted.
    """
    if mode == "disabled":
        yield _Nowhere()
        return
    import swanlab

    try:
        run = swanlab.init(project=project, name=name, mode=mode, config=dict(config), log_dir=str(folder / "swanlog"))
    except Exception as error:  # SwanLab raises whatever its transport raises
        raise AlfworldRLError(
            f"SwanLab did not start ({error}); run `uv run swanlab login`, or choose --swanlab-mode disabled"
        ) from error
    try:
        yield _SwanLab(run)
    except KeyboardInterrupt:
        swanlab.finish(state="aborted")
        raise
    except BaseException as error:
        swanlab.finish(state="crashed", error=str(error))
        raise
    else:
        swanlab.finish()

"""Where people watch metrics. metrics.jsonl has the same, whatever is chosen here."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from alfworld_rl.config import Config, option
from alfworld_rl.errors import UsageError, installing, installing_package, running
from alfworld_rl.runs import trackers
from alfworld_rl.runs.trackers import Experiment, Tracker

__all__ = ["Tracker", "TrackingConfig", "check_tracking", "swanlab_login", "tracking"]

SwanLabMode = Literal["online", "local", "offline", "disabled"]


class TrackingConfig(Config):
    """Where others watch the metrics."""

    track: tuple[Literal["swanlab", "tensorboard", "wandb", "none"], ...] = option(
        ("swanlab",), "what shows the metrics: one or several of swanlab, tensorboard, wandb; or none"
    )
    swanlab_project: str = option("alfworld-agent-rl", "SwanLab project")
    swanlab_mode: SwanLabMode = option("online", "where SwanLab keeps the metrics")
    wandb_project: str = option("alfworld-agent-rl", "W&B project")
    wandb_mode: Literal["online", "offline"] = option("offline", "send metrics to W&B, or keep them for `wandb sync`")

    @property
    def trackers(self) -> tuple[str, ...]:
        """What is tracked by, each once; `--swanlab-mode disabled` is as if SwanLab were not named."""
        names = dict.fromkeys(self.track)
        off = {"none"} | ({"swanlab"} if self.swanlab_mode == "disabled" else set())
        return tuple(name for name in names if name not in off)

    def conflicts(self) -> list[str]:
        if "none" in self.track and len(self.track) > 1:
            return ["--track none and another tracker contradict each other"]
        return []


_OPEN: Mapping[str, Callable[[TrackingConfig, Experiment], contextlib.AbstractContextManager[Tracker]]] = {
    "swanlab": lambda config, run: trackers.swanlab(run, project=config.swanlab_project, mode=config.swanlab_mode),
    "tensorboard": lambda _, run: trackers.tensorboard(run),
    "wandb": lambda config, run: trackers.wandb(run, project=config.wandb_project, mode=config.wandb_mode),
}


def check_tracking(config: TrackingConfig, asked: Set[str] = frozenset()) -> None:
    """Refuse what could only fail later, before anything slow or paid. Raises UsageError.

    `asked` names the settings that this very command gave, as against those of a run that goes on.
    """
    if "swanlab" in config.track and "track" in asked and "swanlab" not in config.trackers:
        raise UsageError("--track swanlab needs --swanlab-mode online, offline or local: it is disabled now")
    for name in ("tensorboard", "wandb"):
        if name in config.trackers and find_spec(name) is None:
            raise UsageError(f"--track {name} needs {name}; install it with `{installing(name)}`")
    if "swanlab" in config.trackers:
        _check_swanlab(config.swanlab_mode)
    if "wandb" in config.trackers and config.wandb_mode == "online" and not _wandb_login() and not sys.stdin.isatty():
        raise UsageError(
            f"W&B is not logged in: run `{running('wandb login')}`, or choose --wandb-mode offline "
            "(metrics.jsonl is written in any mode)"
        )


def _check_swanlab(mode: str) -> None:
    if mode == "local" and find_spec("swanboard") is None:
        raise UsageError(
            f"--swanlab-mode local needs SwanLab's dashboard: `{installing_package('swanlab[dashboard]')}`, "
            "or choose --swanlab-mode offline"
        )
    # On a terminal SwanLab asks for the key itself.
    if mode == "online" and not swanlab_login() and not sys.stdin.isatty():
        raise UsageError(
            f"SwanLab is not logged in: run `{running('swanlab login')}`, or choose --swanlab-mode offline or disabled "
            "or another --track (metrics.jsonl is written in any case)"
        )


def swanlab_login() -> bool:
    """Whether SwanLab finds a key, in its environment variable or where `swanlab login` keeps it."""
    if os.environ.get("SWANLAB_API_KEY"):
        return True
    root = os.environ.get("SWANLAB_ROOT") or os.environ.get("SWANLAB_SAVE_DIR") or Path.home() / ".swanlab"
    return any((folder / ".netrc").is_file() for folder in (Path(root), Path.cwd() / ".swanlab"))


def _wandb_login() -> bool:
    """Whether W&B finds a key, in its environment variable or in the .netrc that `wandb login` writes."""
    netrc = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    return bool(os.environ.get("WANDB_API_KEY")) or netrc.is_file()


class _All:
    """Several trackers as one."""

    def __init__(self, members: list[Tracker]) -> None:
        self._members = members

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for one in self._members:
            one.log(metrics, step)


@contextlib.contextmanager
def tracking(
    config: TrackingConfig, *, name: str, settings: Mapping[str, Any], folder: Path, going_on: bool = True
) -> Iterator[Tracker]:
    """The trackers that `config` names, for the time of the block; none of the others is even imported.

    They keep their files in `folder`. With `going_on`, what was tracked there before is gone on with.
    """
    with contextlib.ExitStack() as stack:
        run = Experiment(name, settings, folder, going_on)
        yield _All([stack.enter_context(_OPEN[one](config, run)) for one in config.trackers])

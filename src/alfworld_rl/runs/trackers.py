"""The trackers: SwanLab, TensorBoard's event files, and W&B. Each is opened for the time of a block.

What goes wrong inside the block marks an experiment as crashed, Ctrl-C as aborted. A run that goes on from an earlier
save does updates again; no tracker shows one of them twice.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from alfworld_rl.errors import AlfworldRLError, running
from alfworld_rl.files import atomic_write, read_json


class Tracker(Protocol):
    """Where metrics go besides metrics.jsonl; `step` is the update, from 1."""

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is tracked. With `going_on` what lies in `folder` from an earlier sitting is gone on with."""

    name: str
    settings: Mapping[str, Any]
    folder: Path
    going_on: bool


class _Once:
    """Logs each step once and never an earlier one; `state_file` remembers the experiment's id and its last step."""

    def __init__(self, run: Any, state_file: Path | None, logged: int) -> None:
        self._run = run
        self._state_file = state_file
        self._logged = logged

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if step > self._logged:
            self._run.log(dict(metrics), step=step)
            self._logged = step
            if self._state_file is not None:
                state = {"id": getattr(self._run, "id", None), "step": step}
                atomic_write(self._state_file, json.dumps(state) + "\n")


@contextlib.contextmanager
def swanlab(experiment: Experiment, *, project: str, mode: str) -> Iterator[Tracker]:
    """A SwanLab experiment. Mode `online` goes on with the one of the folder; the other modes keep each sitting as an
    experiment of its own, which is said."""
    import swanlab

    state_file = experiment.folder / "swanlab.json"
    before = _state(experiment, state_file)
    resuming: dict[str, Any] = {}
    if before.get("id") and mode == "online":
        resuming = {"id": before["id"], "resume": "allow"}
    elif before:
        print(f"SwanLab's mode {mode} cannot go on with an experiment: this sitting becomes one of its own", flush=True)
    try:
        run = swanlab.init(
            project=project,
            name=experiment.name,
            mode=mode,
            config=dict(experiment.settings),
            log_dir=str(experiment.folder / "swanlog"),
            **resuming,
        )
    except Exception as error:  # SwanLab raises whatever its transport raises
        raise AlfworldRLError(
            f"SwanLab did not start ({error}); run `{running('swanlab login')}`, or choose --swanlab-mode disabled"
        ) from error
    try:
        yield _Once(run, _kept(experiment, state_file), int(before.get("step", 0)) if resuming else -1)
    except KeyboardInterrupt:
        swanlab.finish(state="aborted")
        raise
    except BaseException as error:
        swanlab.finish(state="crashed", error=str(error))
        raise
    else:
        swanlab.finish()


@contextlib.contextmanager
def wandb(experiment: Experiment, *, project: str, mode: Literal["online", "offline"]) -> Iterator[Tracker]:
    """A W&B run. Offline it lies in the folder's `wandb` until `wandb sync` sends it; every sitting has the same id, so
    that they become one run."""
    import wandb

    state_file = experiment.folder / "wandb.json"
    before = _state(experiment, state_file)
    resuming: dict[str, Any] = {"id": before["id"], "resume": "allow"} if before.get("id") else {}
    try:
        run = wandb.init(
            project=project,
            name=experiment.name,
            mode=mode,
            config=dict(experiment.settings),
            dir=str(experiment.folder),
            settings=wandb.Settings(silent=True),
            **resuming,
        )
    except Exception as error:
        raise AlfworldRLError(
            f"W&B did not start ({error}); run `{running('wandb login')}`, or choose --wandb-mode offline"
        ) from error
    try:
        yield _Once(run, _kept(experiment, state_file), int(before.get("step", 0)) if resuming else -1)
    except KeyboardInterrupt:
        run.finish(exit_code=130)
        raise
    except BaseException:
        run.finish(exit_code=1)
        raise
    else:
        run.finish()


@contextlib.contextmanager
def tensorboard(experiment: Experiment) -> Iterator[Tracker]:
    """Event files in the folder's `tensorboard`, for `tensorboard --logdir`; runs side by side by their folders' names.

    The writer is TensorBoard's own and needs no TensorFlow.
    """
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(experiment.folder / "tensorboard" / experiment.name))
    try:
        yield _Events(writer, experiment)
    finally:
        writer.close()


class _Events:
    def __init__(self, writer: Any, experiment: Experiment) -> None:
        self._writer = writer
        self._settings = json.dumps(dict(experiment.settings), indent=2, default=str)
        self._begun = False

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        now = time.time()
        if not self._begun:
            # TensorBoard then forgets what earlier sittings logged from this step on.
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=now, step=step, session_log=start))
            self._writer.add_event(Event(wall_time=now, step=step, summary=_text("settings", self._settings)))
            self._begun = True
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=values)))
        self._writer.flush()


def _text(tag: str, text: str) -> Any:
    """A summary that TensorBoard's text page shows, as code."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    code = "\n".join("    " + line for line in text.split("\n"))
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[code.encode()])
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _state(experiment: Experiment, file: Path) -> dict[str, Any]:
    return read_json(file) if experiment.going_on and file.exists() else {}


def _kept(experiment: Experiment, file: Path) -> Path | None:
    return file if experiment.going_on else None

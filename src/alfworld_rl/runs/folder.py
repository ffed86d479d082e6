"""The run folder: what a run was asked, what it did, and where it can go on.

    settings.json         the settings it was started with
    metrics.jsonl         one line an update
    checkpoints.jsonl     one line for every checkpoint that was reported saved
    trajectories.jsonl    a few trajectories of every update, where they are kept
    state.json            the last finished update, and the saved one that `--resume` goes back to
    metrics.redone.jsonl  updates that were finished but not saved when the run died, and were done again

A local run's checkpoints lie in the same folder. Only `state.json` decides: it is replaced in one piece, after
everything it names is on the disk, so an update either happened or did not.
"""

import contextlib
import errno
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import append_jsonl, atomic_write, file_lock, read_json, read_jsonl, writable, write_jsonl
from alfworld_rl.types import Usage


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved update: all that the next one depends on."""

    update: int
    position: int
    """How much of the recipe's endless sequence (of games, of demonstrations) is used up."""
    state_uri: str
    sampler_uri: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Best:
    """The update that did best on the validation games so far, and the URI of its sampler weights."""

    update: int
    success_rate: float
    sampler_uri: str


@dataclass(frozen=True, slots=True)
class Record:
    """`state.json`. `update` is the last finished update; `saved` the newest one that can be gone back to."""

    update: int
    usage: Usage
    games: str
    """Hash of the ids of the training games, so that a run never goes on with others."""
    saved: Saved | None = None
    resumes: int = 0
    finished: bool = False
    best: Best | None = None


class RunFolder:
    """One run on the disk. Made with `new` or `existing`; lock it with `with folder.in_use(): ...`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "settings.json"
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoints_file = path / "checkpoints.jsonl"
        self.trajectories_file = path / "trajectories.jsonl"
        self.state_file = path / "state.json"

    @property
    def name(self) -> str:
        return self.path.name

    @classmethod
    def new(cls, runs: Path, name: str, command: str, settings: Mapping[str, Any]) -> "RunFolder":
        """A folder of its own for a new run: NAME, or NAME-2, NAME-3, ... where that is taken."""
        if problem := writable(runs):
            raise UsageError(problem)
        # Filled first and then put in its place: a folder under a run's name always holds the run's settings.
        try:
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=runs))
            new.chmod(0o755)
        except OSError as error:
            raise UsageError(f"no folder can be made in {runs} ({error.strerror or error})") from error
        cls(new).write_settings(command, settings)
        number = 1
        while True:
            path = runs / (name if number == 1 else f"{name}-{number}")
            try:
                new.rename(path)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise UsageError(f"{path} cannot be made ({error.strerror or error})") from error
                number += 1
        return cls(path)

    @classmethod
    def existing(cls, runs: Path, name: str) -> "RunFolder":
        """The run `name`. Raises UsageError, naming the runs there are, where there is none."""
        folder = cls(runs / name)
        if not folder.settings_file.is_file():
            names = sorted(path.parent.name for path in runs.glob("*/settings.json"))
            known = f"; there are {', '.join(names)}" if names else "; there are no runs yet"
            raise UsageError(f"there is no run {name} under {runs}{known}")
        return folder

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with file_lock(self.path / ".lock", f"run {self.name}"):
            yield

    @contextlib.contextmanager
    def removed_if_unused(self) -> Iterator[None]:
        """Where the backend refuses a new run, leave no folder behind that looks like one."""
        try:
            yield
        except BaseException:
            if self.record() is None and not self.metrics_file.exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def settings(self, command: str) -> dict[str, Any]:
        """What the run was started with, by flat names.

        Raises AlfworldRLError where its file is damaged, UsageError where another command made the run.
        """
        values = read_json(self.settings_file)
        made_by = values.pop("command", command)
        if made_by != command:
            raise UsageError(
                f"run {self.name} was made by {made_by}; go on with it by `alfworld-rl {made_by} --resume {self.name}`"
            )
        return values

    def write_settings(self, command: str, settings: Mapping[str, Any]) -> None:
        atomic_write(self.settings_file, json.dumps({"command": command, **settings}, indent=2) + "\n")

    def record(self) -> Record | None:
        """The last record, or None where no update was finished."""
        if not self.state_file.exists():
            return None
        values = read_json(self.state_file)
        try:
            saved, best = values["saved"], values.get("best")
            return Record(
                update=_count(values["update"]),
                usage=_usage(values["usage"]),
                games=values["games"],
                saved=None
                if saved is None
                else Saved(
                    update=_count(saved["update"]),
                    position=_count(saved["position"]),
                    state_uri=_text(saved["state_uri"]),
                    sampler_uri=None if saved["sampler_uri"] is None else _text(saved["sampler_uri"]),
                    usage=_usage(saved["usage"]),
                ),
                resumes=_count(values["resumes"]),
                finished=values["finished"],
                best=None
                if best is None
                else Best(_count(best["update"]), float(best["success_rate"]), _text(best["sampler_uri"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise AlfworldRLError(f"{self.state_file} is not a run's record; it lacks or misnames {error}") from None

    def write_record(self, record: Record) -> None:
        atomic_write(self.state_file, json.dumps(asdict(record), indent=2) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every finished update, in order."""
        return read_jsonl(self.metrics_file)

    def add_metrics(self, metrics: Mapping[str, Any]) -> None:
        append_jsonl(self.metrics_file, metrics)

    def replace_last_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Write the last update's metrics again."""
        write_jsonl(self.metrics_file, [*self.metrics()[:-1], metrics])

    def add_trajectories(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            append_jsonl(self.trajectories_file, row)

    def add_checkpoint(self, update: int, kind: str, uri: str) -> None:
        """Note a checkpoint before anyone is told of it: what was reported saved is never lost."""
        append_jsonl(
            self.checkpoints_file,
            {"update": update, "kind": kind, "uri": uri, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())},
        )

    def go_back_to(self, update: int) -> None:
        """Let metrics.jsonl end with `update`; later lines, and a torn one, move aside."""
        lines = self.metrics()
        if strange := [number for number, line in enumerate(lines, 1) if not isinstance(line.get("update"), int)]:
            raise AlfworldRLError(f"{self.metrics_file}, line {strange[0]} is of no update; the file is damaged")
        for line in lines:
            if line["update"] > update:
                append_jsonl(self.path / "metrics.redone.jsonl", line)
        write_jsonl(self.metrics_file, [line for line in lines if line["update"] <= update])
        if self.checkpoints_file.exists():
            write_jsonl(self.checkpoints_file, read_jsonl(self.checkpoints_file))
        if self.trajectories_file.exists():
            rows = read_jsonl(self.trajectories_file)
            write_jsonl(self.trajectories_file, [row for row in rows if row.get("update", 0) <= update])


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r}, which is no count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r}, which is no text")
    return value


def _usage(values: Mapping[str, Any]) -> Usage:
    return Usage(**{name: _count(value) for name, value in dict(values).items()})

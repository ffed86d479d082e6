"""The run folder: what a run was asked, what it did, and where it can go on.

    settings.json         the settings it was started with
    metrics.jsonl         one line an update
    checkpoints.jsonl     one line for every checkpoint that was reported saved
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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from alfworld_rl.backends.protocol import Usage
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import append_line, held, whole_lines, write_whole
from alfworld_rl.runs.settings import RunSettings, as_json, from_json, writable


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved update: all that the next one depends on."""

    update: int
    position: int
    """Games taken from the endless shuffled sequence so far."""
    state_uri: str
    sampler_uri: str | None = None
    usage: Usage = field(default_factory=Usage)


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


class RunFolder:
    """One run on the disk. Made with `new` or `existing`; hold it with `with folder.in_use(): ...`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoints_file = path / "checkpoints.jsonl"
        self.state_file = path / "state.json"

    @property
    def name(self) -> str:
        return self.path.name

    @classmethod
    def new(cls, runs: Path, settings: RunSettings) -> "RunFolder":
        """A folder of its own for a new run: NAME, or NAME-2, NAME-3, ... where that is taken."""
        if problem := writable(runs):
            raise UsageError(problem)
        # Filled first and then put in its place: a folder under a run's name always holds the run's settings.
        try:
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=runs))
            new.chmod(0o755)
        except OSError as error:
            raise UsageError(f"no folder can be made in {runs} ({error.strerror or error})") from error
        content = {"command": settings.command, **as_json(settings)}
        write_whole(new / "settings.json", json.dumps(content, indent=2) + "\n")
        number = 1
        while True:
            path = runs / (settings.run_name if number == 1 else f"{settings.run_name}-{number}")
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
        folder = cls(runs / name)
        if not (folder.path / "settings.json").is_file():
            names = sorted(path.parent.name for path in runs.glob("*/settings.json"))
            known = f"; there are {', '.join(names)}" if names else "; there are no runs yet"
            raise UsageError(f"there is no run {name} under {runs}{known}")
        return folder

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with held(self.path / ".lock", f"run {self.name}"):
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

    def settings[S: RunSettings](self, kind: type[S]) -> S:
        """What the run was started with.

        Raises AlfworldRLError where its file is damaged, UsageError where another command made the run.
        """
        path = self.path / "settings.json"
        values = _read_object(path)
        if (command := values.get("command", kind.command)) != kind.command:
            raise UsageError(
                f"run {self.name} was made by {command}; go on with it by `alfworld-rl {command} --resume {self.name}`"
            )
        try:
            return from_json(kind, values)
        except UsageError as error:
            raise AlfworldRLError(f"{path} is damaged ({error})") from None

    def record(self) -> Record | None:
        """The last record, or None where no update was finished."""
        if not self.state_file.exists():
            return None
        values = _read_object(self.state_file)
        try:
            saved = values["saved"]
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
            )
        except (KeyError, TypeError, ValueError) as error:
            raise AlfworldRLError(f"{self.state_file} is not a run's record; it lacks or misnames {error}") from None

    def write_record(self, record: Record) -> None:
        write_whole(self.state_file, json.dumps(asdict(record), indent=2) + "\n")

    def add_metrics(self, metrics: Mapping[str, Any]) -> None:
        append_line(self.metrics_file, metrics)

    def add_checkpoint(self, update: int, kind: str, uri: str) -> None:
        """Note a checkpoint before anyone is told of it: what was reported saved is never lost."""
        append_line(
            self.checkpoints_file,
            {"update": update, "kind": kind, "uri": uri, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())},
        )

    def go_back_to(self, update: int) -> None:
        """Let metrics.jsonl end with `update`; later lines, and a torn one, move aside."""
        lines = whole_lines(self.metrics_file)
        if strange := [number for number, line in enumerate(lines, 1) if not isinstance(line.get("update"), int)]:
            raise AlfworldRLError(f"{self.metrics_file}, line {strange[0]} is of no update; the file is damaged")
        kept = [line for line in lines if line["update"] <= update]
        for line in lines:
            if line["update"] > update:
                append_line(self.path / "metrics.redone.jsonl", line)
        write_whole(self.metrics_file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))
        if self.checkpoints_file.exists():
            whole = whole_lines(self.checkpoints_file)
            write_whole(self.checkpoints_file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in whole))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AlfworldRLError(f"{path} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise AlfworldRLError(f"{path} does not hold a JSON object")
    return value


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

"""The results file while it grows: each finished game at once, the whole in order at the end.

Beside NAME.jsonl lies NAME.jsonl.settings while an evaluation is unfinished; it says with what settings the lines
so far were played, so that `--resume-output` can refuse others. When the last game is done, the lines are put in the
order of the games, the summary follows, and the file is replaced in one piece: it is the same file, byte for byte,
whether it was interrupted or not.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any

from alfworld_rl.errors import UsageError
from alfworld_rl.files import append_line, held, whole_lines, write_whole
from alfworld_rl.runs.settings import differences, writable

Line = Mapping[str, Any]
Key = tuple[str, int]


#: What the summary is made of, in a trajectory's line.
COUNTED: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("game_id", "evaluation_split", "task_type"), str),
    **dict.fromkeys(("sample", "steps", "invalid_action_count", "valid_tool_call_count"), int),
    **dict.fromkeys(("admissible_action_count", "prefill_tokens", "sampled_tokens"), int),
    **dict.fromkeys(("won", "truncated"), bool),
    "reward": int | float,
}


class ResultsOutput:
    """An open results file; made with `opened`. `lines` are the trajectories it holds so far."""

    def __init__(self, path: Path, lines: Mapping[Key, Line]) -> None:
        self.path = path
        self.lines = dict(lines)

    def add(self, line: Line) -> None:
        """Write a finished trajectory; it is on the disk when this returns."""
        append_line(self.path, line)
        self.lines[key(line)] = line

    def finish(self, order: Sequence[Key], summary: Callable[[Sequence[Line]], Line]) -> Line:
        """Put the lines in order, the summary of them behind, and leave the finished file. Returns the summary."""
        ordered = [self.lines[item] for item in order]
        last = summary(ordered)
        write_whole(self.path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [*ordered, last]))
        _beside(self.path, "settings").unlink(missing_ok=True)
        _beside(self.path, "old").unlink(missing_ok=True)
        return last


def key(line: Line) -> Key:
    """What a line is of: the game and the number of the sample."""
    return line["game_id"], line["sample"]


def check_output(path: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse a results file that exists unless it may be replaced or gone on with. Raises UsageError."""
    if problem := writable(path.parent):
        raise UsageError(problem)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give --output the name of a file")
    if path.exists() and not overwrite and not resume:
        raise UsageError(
            f"{path} exists; give --overwrite-output to replace it, --resume-output to finish it, or another --output"
        )


@contextlib.contextmanager
def opened(path: Path, played: Mapping[str, Any], *, overwrite: bool, resume: bool) -> Iterator[ResultsOutput]:
    """Hold `path` for this evaluation alone, whose settings are `played`.

    A file that is replaced is kept as NAME.jsonl.old until the new one is finished, and comes back if no game was.
    Raises UsageError where the file exists and may not be touched, is in use, or was played with other settings.
    """
    with held(_beside(path, "lock"), str(path)):
        check_output(path, overwrite=overwrite, resume=resume)
        settings, old = _beside(path, "settings"), _beside(path, "old")
        lines = _lines_so_far(path, played) if path.exists() and resume else {}
        if path.exists() and overwrite:
            # An .old file that is still here is finished, and so worth more than the unfinished one at `path`.
            if old.exists():
                path.unlink()
            else:
                path.replace(old)
        write_whole(settings, json.dumps(played, indent=2) + "\n")  # first: no file is ever there without
        write_whole(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines.values()))
        output = ResultsOutput(path, lines)
        try:
            yield output
        finally:
            if not output.lines:
                path.unlink(missing_ok=True)
                settings.unlink(missing_ok=True)
                if old.exists():
                    old.replace(path)


def _lines_so_far(path: Path, played: Mapping[str, Any]) -> dict[Key, Line]:
    """The trajectories of an unfinished file, or of a finished one. Raises UsageError if played otherwise."""
    lines = whole_lines(path)
    settings = _beside(path, "settings")
    if settings.exists():
        before = _settings_in(settings)
    elif lines and lines[-1].get("type") == "summary" and isinstance(lines[-1].get("played"), dict):
        before = lines[-1]["played"]
    else:
        raise UsageError(
            f"{path} does not say with what settings it was played; give --overwrite-output to play all games again"
        )
    if changed := differences(before, played):
        raise UsageError(f"{path} cannot go on with other settings: {'; '.join(changed)}")
    so_far: dict[Key, Line] = {}
    for line in lines:
        if line.get("type") == "trajectory":
            if wrong := [name for name, kind in COUNTED.items() if not isinstance(line.get(name), kind)]:
                raise UsageError(
                    f"{path} holds a trajectory whose {', '.join(wrong)} cannot be; give --overwrite-output"
                )
            so_far[key(line)] = line
    return so_far


def _settings_in(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise UsageError(f"{path} is damaged, so nobody can tell what was played; give --overwrite-output")
    return settings


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")

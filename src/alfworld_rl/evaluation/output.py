"""The results file while it grows: each finished game at once, the whole in order at the end.

Beside NAME.jsonl lies NAME.jsonl.settings while an evaluation is unfinished; it says with what settings the rows
so far were played, so that `--resume-output` can refuse others. When the last game is done, the rows are put in the
order of the games, the summary follows, and the file is replaced in one piece: it is the same file, byte for byte,
whether it was interrupted or not.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alfworld_rl.config import differences
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.record import OLDER, ResultRow, ResultsError
from alfworld_rl.files import append_jsonl, atomic_write, file_lock, read_json, read_jsonl, writable, write_jsonl

Key = tuple[str, int]
"""What a row is of: the game and the number of the sample."""


class ResultsOutput:
    """An open results file; made with `opened`. `rows` are the trajectories it holds so far."""

    def __init__(self, path: Path, rows: Mapping[Key, ResultRow]) -> None:
        self.path = path
        self.rows = dict(rows)

    def add(self, row: ResultRow) -> None:
        """Write a finished trajectory; it is on the disk when this returns."""
        append_jsonl(self.path, row.to_json())
        self.rows[row.game_id, row.sample] = row

    def finish(
        self, order: Sequence[Key], summary: Callable[[Sequence[ResultRow]], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Put the rows in order, the summary of them behind, and leave the finished file. Returns the summary."""
        ordered = [self.rows[key] for key in order]
        last = summary(ordered)
        write_jsonl(self.path, [*(row.to_json() for row in ordered), last])
        _beside(self.path, "settings").unlink(missing_ok=True)
        _beside(self.path, "old").unlink(missing_ok=True)
        return last


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
    """Lock `path` for this evaluation alone, whose settings are `played`.

    A file that is replaced is kept as NAME.jsonl.old until the new one is finished, and comes back if no game was.
    Raises UsageError where the file exists and may not be touched, is in use, or was played with other settings.
    """
    with file_lock(_beside(path, "lock"), str(path)):
        check_output(path, overwrite=overwrite, resume=resume)
        settings, old = _beside(path, "settings"), _beside(path, "old")
        rows = _rows_so_far(path, played) if path.exists() and resume else {}
        if path.exists() and overwrite:
            # An .old file that is still here is finished, and so worth more than the unfinished one at `path`.
            if old.exists():
                path.unlink()
            else:
                path.replace(old)
        atomic_write(settings, json.dumps(played, indent=2) + "\n")  # first: no file is ever there without
        write_jsonl(path, [row.to_json() for row in rows.values()])
        output = ResultsOutput(path, rows)
        try:
            yield output
        finally:
            if not output.rows:
                path.unlink(missing_ok=True)
                settings.unlink(missing_ok=True)
                if old.exists():
                    old.replace(path)


def _rows_so_far(path: Path, played: Mapping[str, Any]) -> dict[Key, ResultRow]:
    """The trajectories of an unfinished file, or of a finished one. Raises UsageError if played otherwise."""
    lines = read_jsonl(path)
    settings = _beside(path, "settings")
    if settings.exists():
        try:
            before = read_json(settings)
        except AlfworldRLError:
            raise UsageError(
                f"{settings} is damaged, so nobody can tell what was played; give --overwrite-output"
            ) from None
    elif lines and lines[-1].get("type") == "summary" and isinstance(lines[-1].get("played"), dict):
        before = lines[-1]["played"]
    else:
        raise UsageError(
            f"{path} does not say with what settings it was played; give --overwrite-output to play all games again"
        )
    # What an older version did not write down, it did by the only way there was.
    if changed := differences({**OLDER, "format": "tool-call", **before}, played):
        raise UsageError(f"{path} cannot go on with other settings: {'; '.join(changed)}")
    so_far: dict[Key, ResultRow] = {}
    for number, line in enumerate(lines, 1):
        if line.get("type") == "trajectory":
            try:
                row = ResultRow.from_json(line, f"{path}, line {number}")
            except ResultsError as error:
                raise UsageError(f"{error}; give --overwrite-output to play all games again") from None
            if row.steps is None or row.reward is None:
                raise UsageError(f"{path}, line {number} does not say steps and reward; give --overwrite-output")
            so_far[row.game_id, row.sample] = row
    return so_far


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")

"""What an earlier listing learned about game folders, kept so that the next one need not read 360 MB again.

An entry is believed only while the sizes and times of the folder's files are what they were when it was written.
The index is a cache and nothing more: missing, torn, foreign or unwritable, it costs time and never an answer.
"""

import contextlib
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1  # of the file's shape and of the rules that made its findings

type FileStamp = tuple[int, int, int] | None
"""Size in bytes, mtime and ctime in nanoseconds; None: no such file."""
type Stamp = tuple[FileStamp, FileStamp]
"""Of a folder's traj_data.json and game.tw-pddl. ctime also gives away a file swapped for one of the same mtime."""

SETTLED_NS = 2_000_000_000
"""A file younger than this may change again within the clock's tick and look the same: it is not indexed yet."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What reading a game folder said: a game of `task_type`, or left out for `reason` (`detail` where it helps)."""

    task_type: str = ""
    reason: str = ""
    detail: str = ""


class Index:
    """The findings kept for one split, from the data root and, where that cannot be written, the user's cache."""

    def __init__(self, data_root: Path, split: str) -> None:
        """Read what there is; never raises."""
        key = hashlib.sha256(os.fsencode(data_root.resolve())).hexdigest()[:16]
        self._places = [data_root / ".alfworld-rl" / f"{split}.json", _user_cache() / key / f"{split}.json"]
        self._known = [_read(place) for place in self._places]

    def get(self, folder: str, stamp: Stamp) -> Finding | None:
        """The finding on `folder`, if its files are still those that were read."""
        for known in self._known:
            if (entry := known.get(folder)) is not None and entry[0] == stamp:
                return entry[1]
        return None

    def covers(self, folders: Mapping[str, Stamp]) -> bool:
        """Whether one of the kept indexes is exactly these folders, so that writing would change nothing."""
        return any(len(known) == len(folders) and known.keys() == folders.keys() for known in self._known)

    def write(self, folders: Mapping[str, tuple[Stamp, Finding]], now_ns: int) -> None:
        """Replace the index in the first place that can be written; `now_ns`: when the stamps were taken.

        The file appears whole or not at all, so that processes listing at the same moment cannot hurt each other.
        """
        games = {
            folder: [stamp, finding.task_type, finding.reason, finding.detail]
            for folder, (stamp, finding) in folders.items()
            if all(file is None or file[2] < now_ns - SETTLED_NS for file in stamp)
        }
        text = json.dumps({"version": VERSION, "games": games}, separators=(",", ":"))
        for place in self._places:
            with contextlib.suppress(OSError):
                _write_whole(place, text)
                return


def _read(place: Path) -> dict[str, tuple[Stamp, Finding]]:
    try:
        content = json.loads(place.read_bytes())
        if content["version"] != VERSION:
            return {}
        return dict(_entries(content["games"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entries(games: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Stamp, Finding]]]:
    """Raises ValueError or TypeError where the shape is wrong: then nothing of the index is believed."""
    for folder, ((trajectory, game), task_type, reason, detail) in games.items():
        if not (isinstance(task_type, str) and isinstance(reason, str) and isinstance(detail, str)):
            raise TypeError
        yield folder, ((trajectory and tuple(trajectory), game and tuple(game)), Finding(task_type, reason, detail))


def _write_whole(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _user_cache() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "alfworld-rl"

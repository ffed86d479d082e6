"""The games of a split: which folders hold one, in an order that is the same everywhere."""

import json
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alfworld_rl.config.workspace import RELEASE
from alfworld_rl.errors import UsageError, running_with
from alfworld_rl.games.index import FileStamp, Finding, Index, Stamp
from alfworld_rl.games.progress import with_progress
from alfworld_rl.games.task_types import TASK_TYPES

SPLITS = ("train", "valid_seen", "valid_unseen")

TRAJECTORY_FILE = "traj_data.json"
GAME_FILE = "game.tw-pddl"
_MAX_BYTES = 64 * 2**20  # real files have 0.1 MB (games) and up to a few MB (traj_data.json)


@dataclass(frozen=True, slots=True)
class GameRef:
    """A playable game on disk.

    `path` is its game.tw-pddl; `game_id` the path of its folder under json_2.1.1, with forward slashes
    ("train/look_at_obj_in_light-Book-None-DeskLamp-301/trial_T2019...").
    """

    path: Path
    game_id: str
    split: str
    task_type: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A split's games, sorted by game_id, and how many folders were left out for what reason.

    `broken` names the files among them that should have been games and could not be read, with what is wrong.
    """

    games: tuple[GameRef, ...]
    left_out: Mapping[str, int]
    broken: tuple[str, ...] = ()


def discover(data_root: Path, split: str) -> Listing:
    """List the games of `split` ("train", "valid_seen" or "valid_unseen") under `data_root`.

    A game is a folder, at any depth, that holds traj_data.json with one of the six task types and game.tw-pddl
    marked solvable; folders with "movable" or "Sliced" in their path are left out, as ALFWorld itself does.
    What the files say is kept in an index (see `index.py`), so that only new and changed ones are read again;
    a first listing shows its progress on a terminal.

    Raises UsageError if the folder is missing or holds no game, saying how to get some.
    """
    if split not in SPLITS:
        raise UsageError(f"There is no split {split!r}; choose one of {', '.join(SPLITS)}.")
    data_root = Path(data_root)
    folder = data_root / RELEASE / split
    if not folder.is_dir():
        raise UsageError(f"No games in {folder}: there is no such folder. {_how_to_get_games(data_root)}")

    now_ns = time.time_ns()
    stamps, unreadable = _game_folders(folder)
    index = Index(data_root, split)
    findings = {name: index.get(name, stamp) for name, stamp in stamps.items()}
    unknown = [name for name, finding in findings.items() if finding is None]
    for name in with_progress(unknown, len(unknown), f"Reading {split} games"):
        findings[name] = _look_into(folder, name, stamps[name])
    known = {name: (stamps[name], finding) for name, finding in findings.items() if finding is not None}
    if unknown or not index.covers(stamps):
        index.write(known, now_ns)
    return _listing(data_root, split, known, unreadable)


def _listing(
    data_root: Path, split: str, known: Mapping[str, tuple[Stamp, Finding]], unreadable: Sequence[str]
) -> Listing:
    place = data_root / RELEASE / split
    games: list[GameRef] = []
    left_out: Counter[str] = Counter()
    broken = list(unreadable)
    for name in sorted(known):  # code points, not the file system's or the locale's order
        finding = known[name][1]
        if finding.task_type:
            games.append(GameRef(Path(f"{place}/{name}/{GAME_FILE}"), f"{split}/{name}", split, finding.task_type))
            continue
        left_out[finding.reason] += 1
        if finding.detail:
            broken.append(f"{place}/{name}: {finding.detail}")
    if unreadable:
        left_out["unreadable folder"] += len(unreadable)
    if not games:
        why = ", ".join(f"{count} with {reason}" for reason, count in left_out.most_common())
        left = f"{left_out.total()} folders were left out ({why})" if left_out else "it is empty"
        raise UsageError(f"No games in {place}: {left}. {_how_to_get_games(data_root)}")
    return Listing(tuple(games), dict(left_out.most_common()), tuple(broken))


def _how_to_get_games(data_root: Path) -> str:
    if data_root.name == RELEASE or data_root.parent.name == RELEASE:
        root = data_root.parent if data_root.name == RELEASE else data_root.parent.parent
        return f"The data root is the folder that contains {RELEASE}: pass {root} instead."
    quoted = shlex.quote(data_root.as_posix())
    download = running_with("alfworld", f"alfworld-download --data-dir {quoted}")
    return (
        f"Download ALFWorld's games with `{download}`, "
        f"or make new ones with `alfworld-rl games generate --data-root {quoted} --train 100 --valid-seen 10 "
        f"--valid-unseen 10`."
    )


def _game_folders(folder: Path) -> tuple[dict[str, Stamp], list[str]]:
    """Every folder below `folder` that holds one of a game's two files, by its path with forward slashes."""
    stamps: dict[str, Stamp] = {}
    unreadable: list[str] = []
    waiting = [""]
    top = str(folder)  # texts, since thousands of Path objects would take longer than the disk does
    while waiting:
        name = waiting.pop()
        trajectory: FileStamp = None
        game: FileStamp = None
        try:
            with os.scandir(f"{top}/{name}" if name else top) as entries:
                for entry in entries:
                    if entry.name == TRAJECTORY_FILE:
                        trajectory = _stamp(entry)
                    elif entry.name == GAME_FILE:
                        game = _stamp(entry)
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{name}/{entry.name}" if name else entry.name)
        except OSError as error:
            unreadable.append(f"{error.filename}: {error.strerror}")
            continue
        if trajectory or game:
            stamps[name] = (trajectory, game)
    return stamps, sorted(unreadable)


def _stamp(entry: os.DirEntry[str]) -> FileStamp:
    try:
        status = entry.stat()
    except OSError:  # a dangling link
        return None
    if not stat.S_ISREG(status.st_mode):  # reading a named pipe would wait for ever
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _look_into(folder: Path, name: str, stamp: Stamp) -> Finding:
    """Read a game folder's files, cheapest first, and say what it is."""
    if not name.isascii() and name != name.encode(errors="replace").decode():
        return Finding(reason="a name that is not UTF-8")  # no results file could hold it
    if "movable" in name:
        return Finding(reason="a movable receptacle (not playable as text)")
    if "Sliced" in name:
        return Finding(reason="a sliced object (not playable as text)")
    if stamp[0] is None:
        return Finding(reason=f"no {TRAJECTORY_FILE}")
    if stamp[1] is None:
        return Finding(reason=f"no {GAME_FILE}")
    trajectory = _read(folder / name / TRAJECTORY_FILE)
    if isinstance(trajectory, str):
        return Finding(reason=f"a broken {TRAJECTORY_FILE}", detail=f"{TRAJECTORY_FILE} {trajectory}")
    task_type = trajectory.get("task_type")
    if task_type not in TASK_TYPES:
        return Finding(reason="a task type that is not one of the six")
    game = _read(folder / name / GAME_FILE)
    if isinstance(game, str):
        return Finding(reason=f"a broken {GAME_FILE}", detail=f"{GAME_FILE} {game}")
    if not game.get("solvable"):
        return Finding(reason="a game that is not marked solvable")
    return Finding(task_type)


def _read(path: Path) -> dict[str, object] | str:
    """The file's JSON object, or what is wrong with it."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return f"has more than {_MAX_BYTES // 2**20} MB"
        content = json.loads(data)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except RecursionError:
        return "is nested too deeply"
    except ValueError as error:
        return f"is not JSON, perhaps truncated: {error}"
    return content if isinstance(content, dict) else "is not a JSON object"

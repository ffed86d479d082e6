"""Files that say the truth after a crash: whole or absent, appended line by line, locked by one process."""

import contextlib
import json
import ntpath
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from alfworld_rl.errors import AlfworldRLError, UsageError


def atomic_write(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` so that a crash at any moment leaves the old content or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        fsync(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise AlfworldRLError(f"{path} cannot be written ({error.strerror or error})") from error


def append_jsonl(path: Path, value: Mapping[str, Any]) -> None:
    """Add one JSON object as a line, on the disk when this returns."""
    line = json.dumps(value, ensure_ascii=False) + "\n"
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise AlfworldRLError(f"{path} cannot be written ({error.strerror or error})") from error


def write_jsonl(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Replace `path` by these lines, in one piece."""
    atomic_write(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines. A torn last line, which a crash leaves, is not there yet.

    Raises AlfworldRLError, naming the line, where the file is broken anywhere else.
    """
    if not path.exists():
        return []
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except OSError as error:
        raise AlfworldRLError(f"{path} cannot be read ({error.strerror or error})") from error
    values = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise AlfworldRLError(f"{path}, line {number} is not JSON; the file is damaged") from None
        if not isinstance(value, dict):
            raise AlfworldRLError(f"{path}, line {number} is not a JSON object; the file is damaged")
        values.append(value)
    return values


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds. Raises AlfworldRLError, naming the file, for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AlfworldRLError(f"{path} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise AlfworldRLError(f"{path} does not hold a JSON object")
    return value


@contextlib.contextmanager
def file_lock(path: Path, what: str) -> Iterator[None]:
    """Lock the file `path` for this process alone. Raises UsageError where another has it.

    The lock goes with the process, however it ends; a file that a killed process left behind locks nobody out.
    """
    lock = FileLock(path, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(f"{what} is in use by another process; wait for it or choose another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror or error})") from error
    try:
        yield
    finally:
        # Removed while it is still locked: filelock looks whether a file that it waited for is still there.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def writable(folder: Path) -> str | None:
    """Why no file can be written in `folder` (made if it is not there), or None."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror or error})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written to; change its permissions or choose another"
    return None


def portable(name: str) -> bool:
    """Whether every system can have a file of this name: Windows keeps some (NUL, COM1.txt) and drops a last dot."""
    return not ntpath.isreserved(name)


def fsync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk when this returns: a rename before that could outlive them.

    Windows gives no handle to a folder, whose renames are journalled, and writes out only what is open for writing.
    """
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

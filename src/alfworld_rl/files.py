"""Files that say the truth after a crash: whole or absent, appended line by line, held by one process."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alfworld_rl.errors import AlfworldRLError, UsageError


def write_whole(path: Path, text: str) -> None:
    """Replace `path` by `text` so that a crash at any moment leaves the old content or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        synced(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise AlfworldRLError(f"{path} cannot be written ({error.strerror or error})") from error


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Add one JSON object as a line, on the disk when this returns."""
    line = json.dumps(value, ensure_ascii=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise AlfworldRLError(f"{path} cannot be written ({error.strerror or error})") from error


def whole_lines(path: Path) -> list[dict[str, Any]]:
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


@contextlib.contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` for this process alone. Raises UsageError where another holds it.

    The lock goes with the process, however it ends; a file that a killed process left behind locks nobody out.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror or error})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise UsageError(f"{what} is in use by another process; wait for it or choose another name") from None
        # The holder before may have removed the file between our open and our lock: then we hold nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def synced(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk when this returns: a rename before that could outlive them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

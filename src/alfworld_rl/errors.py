"""The errors a person can act on. Everything the program raises on purpose derives from these two."""

import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "alfworld-agent-rl"


class AlfworldRLError(Exception):
    """The run failed for a reason that one sentence explains; the command line prints it and exits with 1."""


class UsageError(AlfworldRLError):
    """The command asks for something that cannot be; nothing was started. The command line exits with 2."""


def checkout() -> Path | None:
    """The checkout of its repository that the package runs from, where `uv sync` and `uv run` work; None elsewhere."""
    root = Path(__file__).resolve().parents[2]
    # A pyproject.toml alone could be that of a project which keeps its installed packages in a folder of its own.
    return root if (root / "pyproject.toml").is_file() and (root / "08-alfworld" / "train.py").is_file() else None


def installing(extra: str) -> str:
    """The command that installs an extra of this package and leaves the other extras where they are."""
    if checkout() is not None:
        return f"uv sync --inexact --extra {extra}"
    # What the extra consists of, and not its name: that works wherever the package itself came from.
    return installing_package(*_requirements(extra))


def installing_package(*packages: str) -> str:
    """The command that puts packages into this environment."""
    quoted = shlex.join(packages)
    if checkout() is None and find_spec("pip"):
        return f"pip install {quoted}"
    there = "" if checkout() is not None else f"--python {shlex.quote(Path(sys.prefix).as_posix())} "
    return f"uv pip install {there}{quoted}"


def running(command: str) -> str:
    """How a program of this environment is typed here."""
    return f"uv run {command}" if checkout() is not None else command


def running_with(extra: str, command: str) -> str:
    """How a program that comes with an extra is typed here, with what has to be installed before."""
    if checkout() is not None:
        return f"uv run --extra {extra} {command}"
    return command if shutil.which(command.split()[0]) else f"{installing(extra)} && {command}"


def _requirements(extra: str) -> list[str]:
    """What an extra consists of, by the package's own metadata."""
    from importlib import metadata

    found = []
    for requirement in metadata.requires(PACKAGE) or []:
        name, _, marker = requirement.partition(";")
        if f"extra == '{extra}'" in marker.replace('"', "'"):
            found.append(name.strip())
    return found or [f"{PACKAGE}[{extra}]"]

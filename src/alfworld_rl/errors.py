"""The errors a person can act on. Everything the program raises on purpose derives from these two."""

from pathlib import Path


class AlfworldRLError(Exception):
    """The run failed for a reason that one sentence explains; the command line prints it and exits with 1."""


class UsageError(AlfworldRLError):
    """The command asks for something that cannot be; nothing was started. The command line exits with 2."""


def in_checkout() -> bool:
    """Whether the package runs from a checkout of its repository, where `uv sync` and `uv run` work."""
    return (Path(__file__).resolve().parents[2] / "pyproject.toml").is_file()


def installing(extra: str) -> str:
    """The command that installs an extra of this package and leaves the other extras where they are."""
    if in_checkout():
        return f"uv sync --inexact --extra {extra}"
    return f"pip install 'alfworld-agent-rl[{extra}]'"


def running(command: str) -> str:
    """How a program of this environment is typed here."""
    return f"uv run {command}" if in_checkout() else command

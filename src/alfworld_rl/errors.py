"""The errors a person can act on. Everything the program raises on purpose derives from these two."""


class AlfworldRLError(Exception):
    """The run failed for a reason that one sentence explains; the command line prints it and exits with 1."""


class UsageError(AlfworldRLError):
    """The command asks for something that cannot be; nothing was started. The command line exits with 2."""


def installing(extra: str) -> str:
    """The command that installs an extra of this package and leaves the other extras where they are."""
    return f"uv sync --inexact --extra {extra}"

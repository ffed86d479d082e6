"""A progress bar for what takes longer than a person waits without asking."""

import sys
from collections.abc import Iterable

_WORTH_A_BAR = 100


def with_progress[T](items: Iterable[T], total: int, label: str) -> Iterable[T]:
    """`items`, with a bar on stderr while they are gone through, if it is a terminal and there are many."""
    if total < _WORTH_A_BAR or not sys.stderr.isatty():
        return items
    from rich.console import Console  # slower to import than a warm listing takes
    from rich.progress import track

    return track(items, description=label, total=total, console=Console(stderr=True), transient=True)

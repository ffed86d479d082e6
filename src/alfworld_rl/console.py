"""What a person sees while a command runs: rich on a terminal, plain lines in a file or a pipe."""

import sys
from collections.abc import Sequence
from typing import Any, Self


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on standard output."""
    if not sys.stdout.isatty():
        widths = [max(len(str(row[column])) for row in [header, *rows]) for column in range(len(header))]
        if title:
            print(title)
        for row in [header, *rows]:
            cells = [str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
            print("  ".join(cells).rstrip())
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, header_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


class Progress:
    """Counts something that takes a while: a bar on a terminal; nothing but the lines that are `say`d elsewhere.

    A context manager. `start` begins a new count, `advance` moves it, `say` prints a line that stays.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            # On standard error where standard output is a file or a pipe, which the bar must not get into.
            console = Console(stderr=not sys.stdout.isatty())
            self._bar = Bar(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def start(self, what: str, total: int) -> None:
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total)

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    def say(self, line: str) -> None:
        if self._bar is not None and sys.stdout.isatty():
            # A URI that is broken at the terminal's width cannot be copied.
            self._bar.console.print(line, soft_wrap=True, markup=False, highlight=False)
        else:
            print(line, flush=True)


def tokens(count: int) -> str:
    """A number of tokens for people: 950, 12.3k, 4.56M."""
    if count < 1000:
        return str(count)
    return f"{count / 1e3:.1f}k" if count < 1_000_000 else f"{count / 1e6:.2f}M"


def seconds(duration: float) -> str:
    """A duration for people: 8.2 s, 3 min 05 s, 2 h 07 min."""
    if duration < 60:
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def printable(text: str) -> str:
    """`text` without anything a terminal would obey; game files come from strangers."""
    return "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

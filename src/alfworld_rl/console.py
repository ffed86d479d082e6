"""What a person sees while a command runs: rich on a terminal, plain lines in a file or a pipe."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self


@contextlib.contextmanager
def for_people(*, quiet: bool = False, aside: bool = False) -> Iterator[None]:
    """Where what people read goes while the block runs: `aside` to standard error, `quiet` nowhere.

    Errors are raised, not printed, and go where they always do; so does what `answer` prints. Within a quiet block
    all is quiet.
    """
    global _answers, _quiet
    before = _answers, _quiet
    quiet = quiet or _quiet
    _answers, _quiet = _answers or sys.stdout, quiet
    try:
        with contextlib.ExitStack() as stack:
            if quiet:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            elif aside:
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            yield
    finally:
        _answers, _quiet = before


_answers: Any = None
_quiet = False


def answer(line: str) -> None:
    """Print a line that the command was asked for, and that another program may read: `for_people` leaves it be."""
    print(line, file=_answers or sys.stdout)


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
        if sys.stderr.isatty() and not _quiet:
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


def printable(text: str) -> str:
    """`text` without anything a terminal would obey; game files come from strangers."""
    return "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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

"""What a person sees while a command runs: rich on a terminal, plain lines in a file or a pipe."""

import sys
from collections.abc import Sequence


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

"""List every error that the program raises on purpose, and those that docs/troubleshooting.md does not have.

    uv run --group dev python docs/errors.py [--missing]

A message counts as being on the page where five words of it in a row are. The page is written by hand: what to do is
more than a message can say.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "alfworld_rl"
PAGE = ROOT / "docs" / "troubleshooting.md"

#: What is raised for a caller's mistake, or is caught and said in other words.
OTHERS = {
    "AssertionError",
    "AttributeError",
    "IndexError",
    "KeyError",
    "NotImplementedError",
    "OSError",
    "TypeError",
    "ValueError",
}
#: Told within other messages, word for word, or by Ctrl-C.
TOLD_WITHIN = {"ProblemError", "_EnvironmentError", "WorldProcessError", "CancelledError", "Interrupted"}


class Raised(NamedTuple):
    place: str
    kind: str
    texts: tuple[str, ...]
    """The parts of the message that do not vary."""


def raised() -> Iterator[Raised]:
    """Every `raise SomeError(...)` of the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                kind = ast.unparse(node.exc.func).rpartition(".")[2]
                if kind.endswith("Error") and kind not in OTHERS | TOLD_WITHIN:
                    place = f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"
                    yield Raised(place, kind, tuple(_texts(node.exc)))


def _texts(call: ast.Call) -> Iterator[str]:
    """Constants of the message, but not those within what is put into it."""
    waiting: list[ast.expr] = list(call.args)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            waiting = [*node.values, *waiting]
        elif isinstance(node, ast.BinOp):
            waiting = [node.left, node.right, *waiting]


def documented(error: Raised, page: str) -> bool:
    """`page` is a text of words."""
    rows = [row for text in error.texts if (row := _words(text))]
    if not rows:  # only what varies: another error's words
        return True
    size = min(5, max(map(len, rows)))
    return any(f" {' '.join(row[i : i + size])} " in page for row in rows for i in range(len(row) - size + 1))


def _words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text)


def main() -> int:
    page = f" {' '.join(_words(PAGE.read_text(encoding='utf-8')))} "
    missing = "--missing" in sys.argv[1:]
    for error in raised():
        if not missing or not documented(error, page):
            print(f"{error.place}: {error.kind}: {' ... '.join(error.texts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

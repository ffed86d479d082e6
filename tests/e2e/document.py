"""The commands of the quick start's document, character for character."""

from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[3] / "shared" / "seed" / "000_07a4b5914478d1bb.txt"
_PROGRAMS = ("uv ", "trio ", "swanlab ")


def commands(text: str) -> list[str]:
    """Every command of the document, in its order, with its line breaks."""
    found: list[str] = []
    going_on = False
    for line in text.splitlines():
        if going_on:
            found[-1] += f"\n{line}"
        elif line.startswith(_PROGRAMS):
            found.append(line)
        else:
            continue
        going_on = line.endswith("\\")
    return found


def command(text: str, *parts: str) -> str:
    """The first command of the document that has all these parts."""
    return next(found for found in commands(text) if all(part in found for part in parts))

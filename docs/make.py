"""Write what in the documents is made from the code: the figure of the house, and docs/flags.md.

    uv run --group dev python docs/make.py [--check]

`--check` writes nothing and fails where a document is not as it would be made.
"""

import importlib
import re
import sys
import tomllib
from pathlib import Path

from alfworld_rl.cli import COMMANDS, Command
from alfworld_rl.config import flags_table

ROOT = Path(__file__).resolve().parents[1]


def house() -> str:
    """The layers of import-linter's contract, an arrow a line."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return "\n".join(["    " + layer for layer in contracts[0]["layers"]])


def flags() -> str:
    """Every command's settings."""
    parts = [
        "# Flags",
        "",
        "Made from the code by `python docs/make.py`. A TOML file given by `--config` takes the same names.",
        "",
    ]
    for name, command in COMMANDS.items():
        entries = (
            {name: command} if isinstance(command, Command) else {f"{name} {one}": c for one, c in command.items()}
        )
        for title, entry in entries.items():
            module = importlib.import_module(f"alfworld_rl.commands.{entry.module}")
            parts += [f"## {title}", "", f"{entry.help}.".capitalize(), "", flags_table(getattr(module, entry.config))]
    return "\n".join(parts)


def made() -> dict[Path, str]:
    contributing = ROOT / "CONTRIBUTING.md"
    figure = re.sub(
        r"(<!-- house -->\n).*?(<!-- /house -->)",
        lambda found: f"{found[1]}\n{house()}\n\n{found[2]}",
        contributing.read_text(),
        flags=re.DOTALL,
    )
    return {contributing: figure, ROOT / "docs" / "flags.md": flags()}


def main() -> int:
    stale = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not as python docs/make.py makes it")
        return 1 if stale else 0
    for path, text in made().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

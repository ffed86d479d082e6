"""`doctor`: what works on this computer now, and what to do about the rest."""

import os
import platform
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from alfworld_rl.backends.kinds import BACKENDS, OpenOptions, check_kind
from alfworld_rl.commands.common import GAMES_HELP, CommandConfig
from alfworld_rl.config import Name, option
from alfworld_rl.config.workspace import alfworld_games, generated_games, home
from alfworld_rl.errors import UsageError, installing, running
from alfworld_rl.files import writable
from alfworld_rl.runs.tracking import swanlab_login

EXTRAS = {
    "local": ("torch", "transformers", "peft", "safetensors"),
    "alfworld": ("alfworld", "textworld"),
    "gym": ("gymnasium", "yaml"),
    "serve": ("openenv", "prometheus_client", "uvicorn"),
    "trl": ("trl",),
    "skyrl": ("skyrl_gym", "pyarrow", "pandas"),
    "verifiers": ("verifiers",),
    "tinker": ("tinker", "transformers"),
}


class DoctorConfig(CommandConfig):
    """What works on this computer now."""

    data_root: Path | None = option(None, GAMES_HELP)
    backend: Annotated[str, Name(BACKENDS)] | None = option(None, "say what works of this backend alone, by asking it")
    base_url: str | None = option(
        None, "tinker backend: address of the server (default: TINKER_BASE_URL)", metavar="URL"
    )


CONFIG = DoctorConfig


def run(config: DoctorConfig) -> int:
    """Print one line a matter: `ok` or `--`, what was found, and what to do. Never prints a key.

    Of a backend that is asked for by name, returns 1 where something of it does not work.
    """
    if config.backend is not None:
        options = OpenOptions(runs_dir=home() / "runs", base_url=config.base_url)
        works = True
        for good, matter, found in check_kind(config.backend, options):
            _line(good, matter, found)
            works &= good
        return 0 if works else 1
    extras = {name: all(find_spec(module) for module in modules) for name, modules in EXTRAS.items()}
    trio, swanlab = trio_login(), swanlab_login()
    _line(True, "Python", f"{platform.python_version()}, {os.cpu_count()} processors")
    for name, there in extras.items():
        _line(there, f"extra {name}", "installed" if there else f"not installed: {installing(name)}")
    games = _games(alfworld_games(config.data_root))
    _line(trio, "PyTRIO", "a key is there" if trio else f"not logged in: {running('trio login')}")
    _line(swanlab, "SwanLab", "a key is there" if swanlab else f"not logged in: {running('swanlab login')}")
    problems = [_folder(home() / name) for name in ("runs", "eval_results", "images")]
    folders = not any(problems)

    commands = {
        "alfworld-rl quickstart": extras["local"] and folders,
        "train, eval and sft with --backend local": extras["local"] and folders and games,
        "train and eval with --backend trio": trio and folders and games,
        "train, eval and sft with --backend tinker (doctor --backend tinker asks the server)": (
            extras["tinker"] and folders and games
        ),
        "--environment textworld": extras["alfworld"] and games,
        "analysis, play, games": True,
    }
    print("\nworks now:  " + "; ".join(name for name, now in commands.items() if now))
    if not all(commands.values()):
        print("not yet:    " + "; ".join(name for name, now in commands.items() if not now))
    return 0


def trio_login() -> bool:
    """Whether PyTRIO finds a key, in its environment variable or where `trio login` keeps it."""
    if os.environ.get("PYTRIO_API_KEY"):
        return True
    folder = Path.home() / ".pytrio"
    return folder.is_dir() and any("api_key" in _text(path) for path in folder.rglob("*") if path.is_file())


def _games(data_root: Path) -> bool:
    from alfworld_rl.games import SPLITS, discover

    problems: dict[str, str] = {}
    for split in SPLITS:
        try:
            listing = discover(data_root, split)
        except UsageError as error:
            problems[split] = str(error)
            continue
        if split == SPLITS[0] or SPLITS[0] in problems:
            _line(True, "games", f"those of {data_root}")
        left_out = sum(listing.left_out.values())
        _line(True, f"games {split}", f"{len(listing.games)}" + (f" ({left_out} left out)" if left_out else ""))
    if problems:
        if generated_games().is_dir():
            _line(True, "games, generated", f"those of the quick start: --data-root {generated_games()}")
        _line(False, f"games {', '.join(problems)}", next(iter(problems.values())))
    return len(problems) < len(SPLITS)


def _folder(folder: Path) -> str | None:
    existed = folder.exists()
    problem = writable(folder)
    if problem is None:
        free = shutil.disk_usage(folder).free / 2**30
        _line(True, f"folder {folder.name}", f"{folder} can be written to, {free:.1f} GiB free")
        if not existed:
            folder.rmdir()
    else:
        _line(False, f"folder {folder.name}", problem)
    return problem


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _line(good: bool, matter: str, found: str) -> None:
    print(f"{'ok' if good else '--'}  {matter:<20} {found}")

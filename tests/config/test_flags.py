"""Configs as flags, as settings files and as a table."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from alfworld_rl.config import Config, Name, add_flags, flags_table, option, read_config, read_flags
from alfworld_rl.errors import UsageError
from alfworld_rl.registry import Registry

KINDS: Registry[int] = Registry("kind")
KINDS.add("plain", 1, "nothing else")
KINDS.add("fancy", 2, "with all")


class Play(Config):
    """How a game is played.

    More of it, which is not for the help.
    """

    temperature: float = option(1.0, "sampling temperature", ge=0)
    kind: Annotated[str, Name(KINDS)] = option("plain", "kind of play")


class Base(Config):
    """What every command knows."""

    debug: bool = option(False, "show 100% of the traceback")


class Command(Base):
    """The command's own."""

    max_steps: int = option(80, "updates", ge=1)
    play: Play = Play(temperature=0.5)
    mode: Literal["a", "b"] = option("a", "which | what")
    save: bool = option(True, "save at the end")
    data_root: tuple[Path, ...] = option((), "folders", metavar="DIR")
    init_from: str | None = option(None, "a checkpoint (default: none)", metavar="URI")


def parsed(*words: str) -> tuple[dict[str, Any], list[str]]:
    parser = argparse.ArgumentParser(prog="x", allow_abbrev=False)
    add_flags(parser, Command)
    known, unknown = parser.parse_known_args(words)
    return vars(known), unknown


def command(*words: str) -> Command:
    return read_flags(Command, *parsed(*words))


def refusal(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        command(*words)
    return str(caught.value)


def test_flags_make_the_config() -> None:
    words = "--max-steps 3 --temperature 0 --no-save --debug --data-root a b --init-from trio://x --kind fancy --mode b"
    config = command(*words.split())
    assert config.to_flat() == {
        "debug": True,
        "max_steps": 3,
        "temperature": 0.0,
        "kind": "fancy",
        "mode": "b",
        "save": False,
        "data_root": ["a", "b"],
        "init_from": "trio://x",
    }
    assert config.given == set(config.to_flat())
    assert command("--max-steps", "80").given == {"max_steps"}
    assert command() == Command()


def test_help_says_what_is_declared() -> None:
    parser = argparse.ArgumentParser(prog="x", formatter_class=lambda prog: argparse.HelpFormatter(prog, width=200))
    add_flags(parser, Command)
    text = re.sub(r"\s+", " ", parser.format_help())
    assert text.startswith("usage: x [flags] ")
    for line in (
        "--max-steps N updates (default: 80)",
        "--temperature X sampling temperature (default: 0.5)",
        "--kind NAME kind of play: plain, fancy, or MODULE:FUNCTION (default: plain)",
        "--debug show 100% of the traceback",
        "--mode {a,b} which | what (default: a)",
        "--save, --no-save save at the end (default: on)",
        "--data-root DIR [DIR ...] folders",
        "--init-from URI a checkpoint (default: none)",
    ):
        assert f" {line} " in f"{text} "
    titles = ["The command's own.", "What every command knows.", "How a game is played."]
    assert sorted(titles, key=text.index) == titles
    assert "More of it" not in text


def test_wrong_values_and_unknown_flags_are_refused_together() -> None:
    words = "--max-steps x --mode c --temprature 3 --debug --data-rot=4"
    assert refusal(*words.split()) == (
        "--max-steps must be a whole number, not 'x'; --mode must be one of a, b, not c; "
        "there is no --temprature (did you mean --temperature?); there is no --data-rot (did you mean --data-root?)"
    )
    assert refusal("word", "--debug") == "'word' belongs to no flag"


def test_flags_go_before_the_file_which_goes_before_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('max-steps = 7\ntemperature = 2\ndata_root = ["a"]\nsave = false\n')
    config = command("--config", str(file), "--max-steps", "9")
    assert (config.max_steps, config.play.temperature, config.data_root, config.save) == (9, 2, (Path("a"),), False)
    assert config.mode == "a"
    assert config.given == {"max_steps", "temperature", "data_root", "save"}


def test_values_of_a_file_are_checked_with_those_of_flags(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('max-steps = true\nmod = "a"\ndata-root = "a"\n')
    assert refusal("--config", str(file), "--kind", "x") == (
        "--max-steps must be a whole number, not True; --kind must be one of plain, fancy, not x; "
        "--data-root must be a list, not 'a'; there is no --mod (did you mean --mode?)"
    )


def test_the_settings_of_a_run_are_such_a_file(tmp_path: Path) -> None:
    config = command("--max-steps", "3", "--data-root", "x")
    (tmp_path / "settings.json").write_text(json.dumps({"command": "train", **config.to_flat()}))
    assert "init_from" not in read_config(tmp_path)
    for path in (tmp_path, tmp_path / "settings.json"):
        assert command("--config", str(path)) == config


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.toml", "x = ", "a.toml is not TOML ("),
        ("a.json", "{", "a.json is not JSON ("),
        ("a.json", "[1]", "a.json must hold names and values"),
        ("a.toml", "[play]\nx = 1", "a.toml has the section play; settings have no sections"),
        ("a.toml", "max-steps = 1\nmax_steps = 2", "a.toml has max_steps twice"),
    ],
)
def test_a_broken_file_is_refused_in_a_sentence(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=re.escape(complaint)):
        read_config(tmp_path / name)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere.toml cannot be read \(No such file or directory\)"):
        read_config(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"binary.toml cannot be read"):
        read_config(tmp_path / "binary.toml")


def test_the_table_has_a_row_for_every_setting() -> None:
    table = flags_table(Command)
    assert table.startswith("The command's own.\n\n| flag | default | what |\n| --- | --- | --- |\n")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == len(Command.settings)
    assert "| `--temperature X` | `0.5` | sampling temperature |" in rows
    assert "| `--mode {a,b}` | `a` | which \\| what |" in rows
    assert "| `--save, --no-save` | `on` | save at the end |" in rows
    assert "| `--data-root DIR ...` |  | folders |" in rows
    assert "| `--kind NAME` | `plain` | kind of play: plain, fancy, or MODULE:FUNCTION |" in rows


def test_importing_configs_loads_nothing_heavy() -> None:
    heavy = {"torch", "numpy", "rich", "pytrio", "swanlab", "transformers", "pydantic_settings"}
    code = f"import sys, alfworld_rl.config; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

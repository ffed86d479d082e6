"""`alfworld-rl play`, through pipes and through a terminal of its own."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alfworld_rl.cli import run_command
from alfworld_rl.console import printable
from alfworld_rl.errors import UsageError
from alfworld_rl.world import Game, GameFileError


@pytest.fixture(scope="module")
def game_file(real_games: Path) -> Path:
    return sorted((real_games / "json_2.1.1" / "valid_seen").rglob("game.tw-pddl"))[0]


def run(arguments: list[str], typed: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    result: int = run_command(["play", *arguments])
    return result


def test_a_piped_walkthrough_wins(
    game_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walkthrough = Game.load(game_file).walkthrough
    assert run([str(game_file.parent)], "\n".join(["fly", "?", "", *walkthrough, "look"]), monkeypatch) == 0
    told = capsys.readouterr().out
    assert told.startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert "> fly\nNothing happens.\n" in told
    assert "\nhelp\ninventory\nlook\n" in told
    assert all(f"> {command}\nYou " in told for command in walkthrough)
    assert told.endswith(f"You won in {len(walkthrough) + 1} steps.\n")


@pytest.mark.parametrize("typed", ["look\nquit\nlook\n", "look\n", "look"])
def test_leaving(
    game_file: Path, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(game_file)], typed, monkeypatch) == 0
    assert capsys.readouterr().out.endswith(f"You left after 1 step; the task was to {Game.load(game_file).task}\n")


def test_the_demonstrator_shows_how(
    game_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--demonstrator", str(game_file)], "", monkeypatch) == 0
    told = capsys.readouterr().out
    assert told.count("\n> ") == int(told.split("won in ")[1].split()[0])


def test_the_official_stack_plays_the_same(
    game_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("textworld", reason="--environment textworld needs the extra alfworld")
    pytest.importorskip("alfworld", reason="--environment textworld needs the extra alfworld")
    told = []
    for environment in ("fast", "textworld"):
        assert run(["--environment", environment, str(game_file)], "look\ngo to shelf 1\nquit\n", monkeypatch) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_a_game_is_found_by_its_id(
    game_file: Path, real_games: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As listings, results files and run folders name it."""
    monkeypatch.setenv("ALFWORLD_DATA", str(real_games))
    game_id = game_file.parent.relative_to(real_games / "json_2.1.1")
    assert run([str(game_id)], "quit\n", monkeypatch) == 0
    assert Game.load(game_file).task in capsys.readouterr().out


def test_a_wrong_path_says_what_to_pass(game_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no game /nowhere: pass a game\.tw-pddl, the folder it is in, or the id"):
        run(["/nowhere"], "", monkeypatch)
    with pytest.raises(UsageError, match="pass a trial's folder"):
        run([str(game_file.parents[2])], "", monkeypatch)


def test_a_game_is_also_named_by_its_id(
    game_file: Path, real_games: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(real_games))
    game_id = game_file.parent.relative_to(real_games / "json_2.1.1").as_posix()
    assert run([game_id], "look\n", monkeypatch) == 0
    assert Game.load(game_file).task in capsys.readouterr().out


def test_nothing_in_a_game_file_reaches_the_terminal_as_a_command(
    game_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hostile text is refused by the reader or made harmless here; either way no escape sequence comes out."""
    assert printable("a\x1b[2Jb\x07\x9b31m\u202ec\n") == "a�[2Jb��31m�c\n"
    game = json.loads(game_file.read_text())
    game["grammar"] = game["grammar"].replace("Your task is to: ", "Your task is to: \x1b]0;owned\x07 \x9b2J ")
    hostile = tmp_path / "game.tw-pddl"
    hostile.write_text(json.dumps(game))
    try:
        run([str(hostile)], "look\n\x1b[2J\nquit\n", monkeypatch)
        text = capsys.readouterr().out
    except GameFileError as error:
        text = printable(str(error))
    assert "\x1b" not in text
    assert "\x9b" not in text


READY = b"\x1b[?2004h"  # prompt_toolkit asks for bracketed paste when it starts to read


def test_in_a_terminal_tab_completes_and_ctrl_d_leaves(game_file: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "alfworld_rl.cli", "play", str(game_file)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        start_new_session=True,
    )
    os.close(follower)
    told = b""

    def read_until(text: bytes) -> None:
        nonlocal told
        deadline = time.monotonic() + 60
        while text not in told:
            ready, _, _ = select.select([leader], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, told
            told += os.read(leader, 4096)
        told = told.partition(text)[2]

    try:
        read_until(b"Your task is to")
        read_until(READY)
        os.write(leader, b"inven")
        read_until(b"inventory")  # the menu of completions
        os.write(leader, b"\t\r")
        read_until(b"You are not carrying anything.")
        read_until(READY)
        os.write(leader, b"\x04")
        read_until(b"You left after 1 step")
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        child.wait()
        os.close(leader)

"""Where games are looked for, by every command alike."""

import shutil
from pathlib import Path

import pytest

from alfworld_rl.cli import main
from alfworld_rl.config.workspace import alfworld_games, generated_games, home, project_root
from alfworld_rl.games import generate

GAMES = {"train": 2, "valid_seen": 1, "valid_unseen": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    generate(root, **GAMES, seed=3)
    return root


@pytest.fixture(autouse=True)
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a workspace of its own, and no ALFWORLD_DATA."""
    (tmp_path / "work" / "08-alfworld").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    return tmp_path


def test_the_order_in_which_games_are_looked_for(computer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = computer / "work" / "08-alfworld" / "datasets" / "alfworld"
    cache = computer / "person" / ".cache" / "alfworld"
    assert alfworld_games() == usual
    cache.mkdir(parents=True)  # importing alfworld makes it, empty
    assert alfworld_games() == usual
    (cache / "json_2.1.1").mkdir()
    assert alfworld_games() == cache
    (usual / "json_2.1.1").mkdir(parents=True)
    assert alfworld_games() == usual
    monkeypatch.setenv("ALFWORLD_DATA", "elsewhere")
    assert alfworld_games() == Path("elsewhere")
    assert alfworld_games("given") == Path("given")
    monkeypatch.setenv("ALFWORLD_DATA", "")
    assert alfworld_games() == usual


def test_what_importing_alfworld_sets_hides_no_games(computer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets ALFWORLD_DATA to its cache, and makes that folder, where the variable is not set."""
    usual = computer / "work" / "08-alfworld" / "datasets" / "alfworld"
    cache = computer / "person" / ".cache" / "alfworld"
    (usual / "json_2.1.1").mkdir(parents=True)
    cache.mkdir(parents=True)
    monkeypatch.setenv("ALFWORLD_DATA", str(cache))
    assert alfworld_games() == usual
    (cache / "json_2.1.1").mkdir()
    assert alfworld_games() == cache


def test_the_workspace_is_found_from_within(computer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = computer / "work" / "notes" / "today"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert project_root() == computer / "work"
    assert home() == computer / "work" / "08-alfworld"
    assert generated_games() == home() / "datasets" / "generated"


@pytest.mark.parametrize("place", ["ALFWORLD_DATA", "cache"])
def test_the_commands_find_games_without_a_flag(
    place: str,
    computer: Path,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = computer / "mine" if place == "ALFWORLD_DATA" else computer / "person" / ".cache" / "alfworld"
    shutil.copytree(made, root)
    if place == "ALFWORLD_DATA":
        monkeypatch.setenv("ALFWORLD_DATA", str(root))

    assert main(["games", "list"]) == 0
    told = capsys.readouterr().out
    assert f"Games of {root}\n" in told
    assert "train: 2 games" in told

    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert f"those of {root}\n" in told
    assert "games valid_unseen   1" in told

    game = next((root / "json_2.1.1" / "train").glob("*/*/game.tw-pddl")).parent
    assert main(["play", "--demonstrator", str(game.relative_to(root / "json_2.1.1"))]) == 0
    assert "The demonstrator won" in capsys.readouterr().out

    assert main(["train", "--backend", "local", "--dry-run"]) == 0
    assert "2 games" in capsys.readouterr().out


def test_where_there_are_none_the_folder_to_fill_is_named(
    computer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["games", "list"]) == 2
    assert str(computer / "work" / "08-alfworld" / "datasets" / "alfworld") in capsys.readouterr().err
    monkeypatch.setenv("ALFWORLD_DATA", str(computer / "mistyped"))
    for command in (["games", "list"], ["train", "--swanlab-mode", "disabled"], ["eval"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert str(computer / "mistyped") in error
        assert "alfworld-download" in error
    assert main(["play", "no/such/game"]) == 2
    assert f"the id of a game in {computer / 'mistyped'}" in capsys.readouterr().err

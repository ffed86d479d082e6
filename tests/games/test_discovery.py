"""Which folders are games, in what order, and what the index notices."""

import json
import os
import sys
from pathlib import Path

import pytest

from alfworld_rl.errors import UsageError
from alfworld_rl.games import SPLITS, discovery, index
from alfworld_rl.games.discovery import GAME_FILE, TRAJECTORY_FILE, Listing, discover
from alfworld_rl.world import Game, GameFileError

SIMPLE = "pick_and_place_simple"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, away from the real one."""
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that listings read, in order; files just written count as settled, so that a test need not wait."""
    monkeypatch.setattr(index, "SETTLED_NS", -(10**12))
    files: list[str] = []
    original = discovery._read

    def note(path: Path) -> object:
        files.append(f"{path.parent.name}/{path.name}")
        return original(path)

    monkeypatch.setattr(discovery, "_read", note)
    return files


def add(root: Path, name: str, task_type: str = SIMPLE, split: str = "train", **game: object) -> Path:
    folder = root / "json_2.1.1" / split / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TRAJECTORY_FILE).write_text(json.dumps({"task_type": task_type, "scene": {"objects": []}}))
    (folder / GAME_FILE).write_text(json.dumps({"solvable": True} | game))
    return folder


def names(listing: Listing) -> list[str]:
    return [game.game_id for game in listing.games]


def test_a_game_says_where_and_what_it_is(root: Path) -> None:
    folder = add(root, "look-1/trial_1", "look_at_obj_in_light", split="valid_seen")
    (game,) = discover(root, "valid_seen").games
    assert game.path == folder / GAME_FILE
    assert (game.game_id, game.split) == ("valid_seen/look-1/trial_1", "valid_seen")
    assert game.task_type == "look_at_obj_in_light"


def test_the_order_is_that_of_the_ids_whatever_the_file_system(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/t", "B/t", "a-b/t", "a/t10", "a/t9", "é/t"):
        add(root, name)
    expected = [f"train/{name}" for name in ("B/t", "a-b/t", "a/t10", "a/t9", "b/t", "é/t")]
    assert names(discover(root, "train")) == expected

    class Backwards:
        def __init__(self, folder: object) -> None:
            with scandir(folder) as entries:
                self.entries = list(entries)[::-1]

        def __enter__(self) -> "list[os.DirEntry[str]]":
            return self.entries

        def __exit__(self, *_: object) -> None: ...

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", Backwards)
    assert names(discover(root, "train")) == expected


def test_folders_left_out_are_counted_by_reason(root: Path) -> None:
    add(root, "good/t")
    add(root, "pick_and_place_with_movable_recep-Fork-Cup-Table-1/t", "pick_and_place_with_movable_recep")
    add(root, "pick_and_place_simple-AppleSliced-None-Fridge-1/t")
    add(root, "other/t", "juggle")
    add(root, "unsolvable/t", solvable=False)
    add(root, "unchecked/t", solvable=None)
    (add(root, "no-game/t") / GAME_FILE).unlink()
    (add(root, "no-trajectory/t") / TRAJECTORY_FILE).unlink()
    listing = discover(root, "train")
    assert names(listing) == ["train/good/t"]
    assert listing.left_out == {
        "a game that is not marked solvable": 2,
        "a movable receptacle (not playable as text)": 1,
        "a sliced object (not playable as text)": 1,
        "a task type that is not one of the six": 1,
        "no game.tw-pddl": 1,
        "no traj_data.json": 1,
    }
    assert listing.broken == ()
    assert discover(root, "train") == listing  # and the index says the same


def test_words_in_the_data_roots_own_path_do_not_matter(tmp_path: Path) -> None:
    add(tmp_path / "movable-Sliced", "good/t")
    assert names(discover(tmp_path / "movable-Sliced", "train")) == ["train/good/t"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"solvable": tr', "is not JSON, perhaps truncated"),
        (b"", "is not JSON, perhaps truncated"),
        (b"\xff\xfe{", "is not JSON, perhaps truncated"),
        (b"[1]", "is not a JSON object"),
        (b"[" * 200_000, "is nested too deeply"),
    ],
)
@pytest.mark.parametrize("name", [GAME_FILE, TRAJECTORY_FILE])
def test_a_broken_file_is_left_out_and_named(root: Path, name: str, content: bytes, problem: str) -> None:
    add(root, "good/t")
    (add(root, "bad/t") / name).write_bytes(content)
    for _ in range(2):
        listing = discover(root, "train")
        assert names(listing) == ["train/good/t"]
        assert listing.left_out == {f"a broken {name}": 1}
        (broken,) = listing.broken
        assert problem in broken
        assert f"bad/t: {name}" in broken


def test_nothing_there_is_an_error_with_both_ways_on(root: Path) -> None:
    with pytest.raises(UsageError, match="no such folder") as error:
        discover(root, "train")
    assert f"uv run --extra alfworld alfworld-download --data-dir {root}" in str(error.value)
    assert f"alfworld-rl games generate --data-root {root}" in str(error.value)

    (root / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(UsageError, match="it is empty"):
        discover(root, "train")
    add(root, "other/t", "juggle")
    with pytest.raises(UsageError, match=r"1 folders were left out .1 with a task type that is not one of the six"):
        discover(root, "train")
    with pytest.raises(UsageError, match="choose one of train, valid_seen, valid_unseen"):
        discover(root, "test")


def test_a_data_root_one_folder_too_deep_is_put_right(root: Path) -> None:
    add(root, "good/t")
    for deep in (root / "json_2.1.1", root / "json_2.1.1" / "train"):
        with pytest.raises(UsageError, match=f"pass {root} instead"):
            discover(deep, "train")


def test_a_warm_listing_reads_only_what_changed(root: Path, read: list[str]) -> None:
    for name in ("a/t1", "a/t2", "b/t3"):
        add(root, name)
    first = discover(root, "train")
    assert len(read) == 6
    read.clear()
    assert discover(root, "train") == first
    assert read == []

    add(root, "a/t2", "pick_two_obj_and_place")
    add(root, "c/t4")
    for file in (root / "json_2.1.1" / "train" / "b" / "t3").iterdir():
        file.unlink()
    assert names(discover(root, "train")) == ["train/a/t1", "train/a/t2", "train/c/t4"]
    assert sorted(set(read)) == ["t2/game.tw-pddl", "t2/traj_data.json", "t4/game.tw-pddl", "t4/traj_data.json"]
    read.clear()
    assert discover(root, "train").games[1].task_type == "pick_two_obj_and_place"
    assert read == []


def test_a_change_that_keeps_size_and_mtime_is_noticed(root: Path, read: list[str]) -> None:
    folder = add(root, "a/t1", solvable=True, note=".")
    add(root, "a/t2")
    assert len(discover(root, "train").games) == 2
    before = (folder / GAME_FILE).stat()
    (folder / GAME_FILE).write_text((folder / GAME_FILE).read_text().replace("true", "null"))
    os.utime(folder / GAME_FILE, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (folder / GAME_FILE).stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    if after.st_ctime_ns == before.st_ctime_ns:
        pytest.skip("this file system's clock did not tick between two writes")
    assert names(discover(root, "train")) == ["train/a/t2"]


def test_a_file_just_written_is_not_trusted_to_stay(root: Path) -> None:
    """Two changes within one tick of the clock leave the same stamp, so young files are read again."""
    folder = add(root, "a/t1")
    add(root, "a/t2")
    assert len(discover(root, "train").games) == 2
    text = (folder / GAME_FILE).read_text()
    (folder / GAME_FILE).write_text(text.replace("true", "null"))
    assert names(discover(root, "train")) == ["train/a/t2"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"version": 1}',
        b'{"version": 1, "games": []}',
        b'{"version": 1, "games": {"a/t1": 3}}',
        b'{"version": 1, "games": {"a/t1": [[1, 2], "x", "", ""]}}',
        b'{"version": 1, "games": {"a/t1": [[null, null], 3, "", ""]}}',
        b'{"version": 99, "games": {"a/t1": [[null, null], "x", "", ""]}}',
        b"\xff" * 100,
        b"[" * 200_000,
    ],
)
def test_a_corrupt_index_is_replaced(root: Path, read: list[str], content: bytes) -> None:
    add(root, "a/t1")
    expected = discover(root, "train")
    (file,) = (root / ".alfworld-rl").iterdir()
    file.write_bytes(content)
    assert discover(root, "train") == expected
    read.clear()
    assert discover(root, "train") == expected
    assert read == []


def test_an_index_copied_with_other_games_is_not_believed(root: Path, tmp_path: Path, read: list[str]) -> None:
    add(root, "a/t1")
    discover(root, "train")
    other = tmp_path / "other"
    add(other, "a/t1", "pick_two_obj_and_place")
    (other / ".alfworld-rl").mkdir()
    (other / ".alfworld-rl" / "train.json").write_bytes((root / ".alfworld-rl" / "train.json").read_bytes())
    assert discover(other, "train").games[0].task_type == "pick_two_obj_and_place"


def test_where_the_data_root_cannot_be_written_the_users_cache_is_used(
    root: Path, cache: Path, read: list[str]
) -> None:
    add(root, "a/t1")
    (root / ".alfworld-rl").write_text("a file where the folder would be: not even root can write below it")
    expected = discover(root, "train")
    assert len(list(cache.rglob("train.json"))) == 1
    read.clear()
    assert discover(root, "train") == expected
    assert read == []


def test_where_nothing_can_be_written_games_are_listed_all_the_same(root: Path, cache: Path) -> None:
    add(root, "a/t1")
    (root / ".alfworld-rl").write_text("")
    cache.write_text("")
    assert discover(root, "train") == discover(root, "train")


def test_no_draft_of_an_index_is_left_behind(root: Path) -> None:
    for name in ("a/t1", "a/t2"):
        add(root, name)
        discover(root, "train")
    assert [file.name for file in (root / ".alfworld-rl").iterdir()] == ["train.json"]


def test_links_are_not_followed_round_and_round(root: Path) -> None:
    folder = add(root, "a/t1")
    (folder / "loop").symlink_to(root, target_is_directory=True)
    assert names(discover(root, "train")) == ["train/a/t1"]


def test_the_real_games(real_games: Path) -> None:
    counts = {split: discover(real_games, split) for split in SPLITS}
    assert len(counts["train"].games) == 3553
    assert len(counts["valid_seen"].games) == 140
    assert len(counts["valid_unseen"].games) in (34, 134)
    assert all(listing.broken == () for listing in counts.values())
    for listing in counts.values():
        assert names(listing) == sorted(names(listing))
        assert all(game.game_id.split("/")[1].startswith(game.task_type) for game in listing.games)


def test_progress_is_for_terminals_only(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(101):
        add(root, f"a/t{i}")
    assert len(discover(root, "train").games) == 101
    assert capsys.readouterr() == ("", "")

    (root / ".alfworld-rl" / "train.json").unlink()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert len(discover(root, "train").games) == 101
    out, err = capsys.readouterr()
    assert out == ""
    assert "Reading train games" in err


@pytest.mark.parametrize("file", [TRAJECTORY_FILE, GAME_FILE])
def test_a_named_pipe_is_no_file_to_wait_for(root: Path, file: str) -> None:
    add(root, "good")
    pipe = add(root, "pipe") / file
    pipe.unlink()
    os.mkfifo(pipe)
    listing = discover(root, "train")
    assert names(listing) == ["train/good"]
    assert listing.left_out == {f"no {file}": 1}
    with pytest.raises(GameFileError, match="no file"):
        Game.load(pipe)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such names")
def test_a_name_that_no_results_file_can_hold_is_left_out(root: Path) -> None:
    add(root, "good-\u00e9")
    add(root, "bad-\udcff")
    listing = discover(root, "train")
    assert names(listing) == ["train/good-\u00e9"]
    assert listing.left_out == {"a name that is not UTF-8": 1}

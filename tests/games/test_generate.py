"""New games: whole, varied, the same for the same seed, and playable by both engines."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from alfworld_rl.cli import main
from alfworld_rl.errors import UsageError
from alfworld_rl.games import SPLITS, TASK_TYPES, discover, generate
from alfworld_rl.games.generate import new_games
from alfworld_rl.world import Game, World

COUNTS = {"train": 60, "valid_seen": 12, "valid_unseen": 12}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("generated")
    generate(root, **COUNTS, seed=0)
    return root


def files(root: Path) -> dict[str, bytes]:
    top = root / "json_2.1.1"
    return {str(file.relative_to(top)): file.read_bytes() for file in sorted(top.rglob("*")) if file.is_file()}


def scene(game_id: str) -> str:
    return game_id.split("/")[1].split("-")[-1]


def test_every_walkthrough_wins_with_its_last_command(root: Path) -> None:
    for split in SPLITS:
        for ref in discover(root, split).games:
            game = Game.load(ref.path)
            assert game.solvable
            assert game.task_type == ref.task_type
            world = World(game)
            view = world.reset()
            for command in game.walkthrough:
                assert not view.won, (ref, command)
                assert command in view.admissible_commands, (ref, command)
                view = world.step(command)
            assert view.won, ref
            assert 3 <= len(game.walkthrough) <= 14


def test_the_splits_have_the_games_asked_for_and_all_six_types(root: Path) -> None:
    for split, count in COUNTS.items():
        listing = discover(root, split)
        assert len(listing.games) == count
        assert listing.left_out == {}
        types = Counter(game.task_type for game in listing.games)
        assert set(types) == set(TASK_TYPES)
        assert max(types.values()) - min(types.values()) <= 2


def test_valid_seen_plays_in_houses_of_train_and_valid_unseen_in_its_own(root: Path) -> None:
    scenes = {split: {scene(game.game_id) for game in discover(root, split).games} for split in SPLITS}
    assert scenes["valid_seen"] <= scenes["train"]
    assert not scenes["valid_unseen"] & scenes["train"]
    games = {split: {Game.load(game.path) for game in discover(root, split).games} for split in SPLITS}
    furniture = {scene(str(game.path.relative_to(root / "json_2.1.1"))): game.receptacles for game in games["train"]}
    for game in games["valid_seen"]:
        assert game.receptacles == furniture[scene(str(game.path.relative_to(root / "json_2.1.1")))]


def test_folders_and_trajectories_are_named_as_in_the_release(root: Path) -> None:
    for ref in discover(root, "train").games:
        task_type, target, movable, destination, number = ref.path.parent.parent.name.split("-")
        trajectory = json.loads((ref.path.parent / "traj_data.json").read_text())
        assert trajectory["task_type"] == task_type == ref.task_type
        assert trajectory["task_id"] == ref.path.parent.name
        assert trajectory["pddl_params"]["object_target"] == target
        assert trajectory["pddl_params"]["parent_target"] == destination
        assert trajectory["scene"]["scene_num"] == int(number)
        assert movable == "None"
        task = Game.load(ref.path).task
        assert target.lower() in task
        assert destination.lower() in task


def test_no_two_games_are_the_same(root: Path) -> None:
    problems = [json.loads(data)["pddl_problem"] for name, data in files(root).items() if name.endswith("pddl")]
    assert len({problem.partition("(:objects")[2] for problem in problems}) == sum(COUNTS.values())


def test_a_seed_makes_the_same_bytes_and_another_seed_others(root: Path, tmp_path: Path) -> None:
    generate(tmp_path / "again", **COUNTS, seed=0)
    assert files(tmp_path / "again") == files(root)
    ids = {new.game_id.rpartition("/")[0] for new in new_games(**COUNTS, seed=1)}
    assert ids != {game.game_id.rpartition("/")[0] for split in SPLITS for game in discover(root, split).games}


def test_the_same_bytes_in_every_process() -> None:
    """Nothing hangs on the order of sets, which differs from process to process."""
    code = (
        "import hashlib\n"
        "from alfworld_rl.games.generate import new_games\n"
        f"games = repr(list(new_games(**{COUNTS}, seed=0)))\n"
        "print(hashlib.sha256(games.encode()).hexdigest())"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(prints) == 1


def test_the_first_games_do_not_depend_on_how_many_follow() -> None:
    few = list(new_games(train=7, valid_seen=0, valid_unseen=5, seed=3))
    many = list(new_games(train=20, valid_seen=0, valid_unseen=9, seed=3))
    assert few == many[:7] + many[20:25]


def test_one_train_game_is_house_enough_for_valid_seen() -> None:
    train, *seen = new_games(train=1, valid_seen=8, valid_unseen=0, seed=5)
    assert {scene(new.game_id) for new in seen} == {scene(train.game_id)}
    assert len({new.game for new in seen}) == 8


def test_generating_again_changes_nothing_and_mends_what_was_cut_off(tmp_path: Path) -> None:
    counts = {"train": 3, "valid_seen": 1, "valid_unseen": 1}
    generate(tmp_path, **counts, seed=0)
    expected = files(tmp_path)
    stamps = {name: (tmp_path / "json_2.1.1" / name).stat().st_mtime_ns for name in expected}
    generate(tmp_path, **counts, seed=0)
    assert {name: (tmp_path / "json_2.1.1" / name).stat().st_mtime_ns for name in expected} == stamps

    game = discover(tmp_path, "train").games[1].path
    game.write_bytes(game.read_bytes()[:1000])
    discover(tmp_path, "train").games[0].path.unlink()
    generate(tmp_path, **counts, seed=0)
    assert files(tmp_path) == expected


def test_other_games_are_never_mixed_or_overwritten(tmp_path: Path, root: Path) -> None:
    game = tmp_path / "json_2.1.1" / "train" / "task" / "trial" / "game.tw-pddl"
    game.parent.mkdir(parents=True)
    game.write_text("precious")
    with pytest.raises(UsageError, match="holds games that were not generated: choose another --data-root"):
        generate(tmp_path, train=1, valid_seen=0, valid_unseen=0, seed=0)
    assert files(tmp_path) == {"train/task/trial/game.tw-pddl": b"precious"}

    before = files(root)
    for change in ({"seed": 1}, {"train": 61}):
        with pytest.raises(UsageError, match="generated with other settings"):
            generate(root, **{**COUNTS, "seed": 0, **change})
    (root / "json_2.1.1" / "generated.json").write_text("{")
    with pytest.raises(UsageError, match="generated with other settings"):
        generate(root, **COUNTS, seed=0)
    (root / "json_2.1.1" / "generated.json").write_bytes(before["generated.json"])
    assert files(root) == before


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 0, 0), "at least one game"),
        ((-1, 0, 2), "not --train -1"),
        ((1, 0, 100_000), "not --valid-unseen 100000"),
        ((0, 1, 0), "ask for train games, too"),
    ],
)
def test_counts_that_make_no_sense_are_refused(tmp_path: Path, counts: tuple[int, int, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(tmp_path / "new", train=counts[0], valid_seen=counts[1], valid_unseen=counts[2], seed=0)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"Cannot write games to .*file"):
        generate(tmp_path / "file", train=1, valid_seen=0, valid_unseen=0, seed=0)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path / "data")
    counts = ["--train", "6", "--valid-seen", "1", "--valid-unseen", "2"]
    assert main(["games", "generate", "--data-root", root, *counts, "--seed", "4"]) == 0
    assert "6 train, 1 valid_seen, 2 valid_unseen games" in capsys.readouterr().out
    assert main(["games", "list", "--data-root", root]) == 0
    out = capsys.readouterr().out
    assert "train: 6 games" in out
    assert all(task_type in out for task_type in TASK_TYPES)
    assert main(["games", "list", "--data-root", root, "--split", "valid_unseen"]) == 0
    paths = capsys.readouterr().out.splitlines()
    assert paths == [str(game.path) for game in discover(Path(root), "valid_unseen").games]
    assert main(["games", "list", "--data-root", str(tmp_path / "none")]) == 2
    assert "alfworld-download" in capsys.readouterr().err
    assert main(["games", "generate", "--data-root", root, "--train", "7"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_the_official_stack_plays_them_alike(root: Path) -> None:
    pytest.importorskip("textworld", reason="the official stack is not installed: extra alfworld")
    from alfworld_rl.world.textworld import TextWorldWorld

    by_type = {ref.task_type: ref for ref in discover(root, "train").games}
    for task_type in ("look_at_obj_in_light", "pick_two_obj_and_place", "pick_heat_then_place_in_recep"):
        game = Game.load(by_type[task_type].path)
        world = World(game)
        with TextWorldWorld(game.path) as official:
            view, theirs = world.reset(), official.reset()
            assert view == theirs
            for command in ("help", "inventory", "look", *game.walkthrough):
                view, theirs = world.step(command), official.step(command)
                assert view == theirs, command
            assert theirs.won


def test_domain_and_grammar_are_those_of_the_real_games(real_games: Path, root: Path) -> None:
    real = json.loads(discover(real_games, "valid_seen").games[0].path.read_bytes())
    new = json.loads(discover(root, "train").games[0].path.read_bytes())
    assert list(new) == list(real)
    assert new["pddl_domain"] == real["pddl_domain"]
    sentence = "Your task is to: "
    for text in (real, new):
        before, _, after = text["grammar"].partition(sentence)
        text["grammar"] = before + after.partition('"')[2]
    assert new["grammar"] == real["grammar"]

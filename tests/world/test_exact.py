"""Every recorded play of the official stack, replayed without one differing character."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest
from houses import kitchen, written

from alfworld_rl.world import Game, World
from alfworld_rl.world.replay import first_difference, main, recorded
from old_games import as_before_0_4

RECORDINGS = ("train", "train2", "train_deep", "valid_seen", "valid_seen2", "valid_unseen")


@pytest.mark.parametrize("recording", RECORDINGS)
def test_replays_what_the_official_stack_said(recording: str, recorded_plays: Path, real_games: Path) -> None:
    plays = list(recorded(recorded_plays / f"{recording}.jsonl.xz"))
    assert len(plays) > 30
    for play in plays:
        world = World(Game.load(real_games / "json_2.1.1" / play["game"]))
        assert first_difference(world, play) is None, play["game"]


def test_replays_what_the_official_stack_said_of_games_of_older_releases(real_games: Path) -> None:
    """Real games in the texts of alfworld 0.2.2 to 0.3.5 (`sinks`: their domain counts sinks as well as basins)."""
    plays = list(recorded(Path(__file__).with_name("plays_before_0_4.jsonl.xz")))
    assert {play["sinks"] for play in plays} == {False, True}
    assert {step["command"].partition(" ")[0] for play in plays for step in play["steps"]} >= {"put", "heat", "use"}
    for play in plays:
        path = real_games / "json_2.1.1" / play["game"]
        if not path.exists():
            pytest.skip(f"the game {play['game']} is not among these")
        game = as_before_0_4(json.loads(path.read_text()), sinks=play["sinks"])
        assert first_difference(World(Game.parse(json.dumps(game), path)), play) is None, play["game"]


def test_real_games_are_won_by_their_walkthroughs(real_games: Path) -> None:
    paths = sorted((real_games / "json_2.1.1").rglob("game.tw-pddl"))[::6]  # all of them take half a minute
    assert paths
    lost = []
    for path in paths:
        game = Game.load(path)
        world = World(game)
        views = [world.step(command) for command in game.walkthrough]
        assert game.solvable
        assert game.task_type == path.parent.parent.name.partition("-")[0]
        assert all(world.goals.values()) == world.view.won
        if not views or not views[-1].won or any(view.won for view in views[:-1]):
            lost.append(str(path))
    assert lost == []


def test_a_play_that_differs_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "json_2.1.1"
    folder.mkdir()
    world = World(Game.load(written(kitchen(), folder)))
    opening, view = world.reset(), world.step("look")
    step = {"command": "look", "observation": view.observation, "score": 0, "done": False, "won": False}
    step["admissible"] = list(view.admissible_commands)
    play = {"game": "game.tw-pddl", "observation": opening.observation, "admissible": step["admissible"]}
    plays = tmp_path / "plays.jsonl"
    arguments = [str(tmp_path), str(plays)]

    plays.write_text(json.dumps(play | {"steps": [step]}) + "\n")
    assert main(arguments) == 0
    assert capsys.readouterr().out == "1 plays replayed, 0 differ\n"

    plays.write_text(json.dumps(play | {"steps": [step, step | {"observation": "You see.", "won": True}]}) + "\n")
    assert main(arguments) == 1
    assert capsys.readouterr().out.startswith("game.tw-pddl: step 2, 'look': observation, won\n")

    plays.write_text(json.dumps(play)[:-20])
    assert main(arguments) == 2
    assert "line 1 is no recorded play" in capsys.readouterr().err


def test_a_batch_of_worlds_is_small(real_games: Path) -> None:
    paths = sorted((real_games / "json_2.1.1").rglob("game.tw-pddl"))[::450][:8]
    rng = random.Random(0)
    tracemalloc.start()
    try:
        worlds = [World(game) for game in map(Game.load, paths) for _ in range(8)]
        for world in worlds:
            for _ in range(20):
                world.step(rng.choice(world.view.admissible_commands))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(worlds) == 64
    assert held < 10_000_000

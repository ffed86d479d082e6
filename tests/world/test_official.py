"""Our world and the live official stack, side by side; skipped where the extra `alfworld` is not installed."""

import json
import os
import random
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from houses import kitchen, random_house, written

from alfworld_rl.errors import UsageError
from alfworld_rl.world import Game, GameFileError, World
from alfworld_rl.world.textworld import TextWorldWorld
from old_games import as_before_0_4

official = pytest.mark.skipif(find_spec("textworld") is None, reason="TextWorld is not installed (extra alfworld)")

REJECTED = (
    "",
    " \n",
    "LOOK",
    "look around",
    "go to  desk 1",
    "go to loc 1",
    "examine agent1",
    "examine book",
    "examine book ",
    "look\x00",
    "🍎",
    "{r.name}",
)


def commands(rng: random.Random, world: World, steps: int) -> Iterator[str]:
    """Seldom-seen verbs as often as `go to`, commands with space around them, and some that nothing admits."""
    plan = list(world.game.walkthrough)
    for _ in range(steps):
        admissible = world.view.admissible_commands
        if plan and rng.random() < 0.4 and plan[0] in admissible:
            yield plan.pop(0)
        elif rng.random() < 0.1:
            yield rng.choice(REJECTED)
        else:
            verb = rng.choice(sorted({command.partition(" ")[0] for command in admissible} - {"help"}))
            command = rng.choice([command for command in admissible if command.startswith(verb)])
            yield f"\t{command} \u3000" if rng.random() < 0.05 else command


def compare(path: Path, rng: random.Random, steps: int) -> None:
    ours = World(Game.load(path))
    with TextWorldWorld(path) as theirs:
        assert ours.reset() == theirs.reset()
        played: list[str] = []
        for command in commands(rng, ours, steps):
            played.append(command)
            assert ours.step(command) == theirs.step(command), f"{path} after {played}"
            assert all(ours.goals.values()) == ours.view.won


@official
@pytest.mark.parametrize("seed", range(3))
def test_random_houses(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    compare(written(random_house(rng), tmp_path), rng, steps=15)


@official
@pytest.mark.parametrize("sinks", [False, True])
def test_random_houses_in_the_words_of_older_releases(sinks: bool, tmp_path: Path) -> None:
    rng = random.Random(10 + sinks)
    compare(written(as_before_0_4(random_house(rng), sinks=sinks), tmp_path), rng, steps=15)


@official
def test_places_that_share_their_names_with_things(tmp_path: Path) -> None:
    """Games of older releases name places; these are numbered together with objects and receptacles."""
    game = as_before_0_4(kitchen())
    for place, name in (("loc_bar_1", "Apple_bar_7"), ("loc_bar_2", "drawer_bar_0"), ("loc_bar_3", "corner")):
        game["pddl_problem"] = game["pddl_problem"].replace(place, name)
    compare(written(game, tmp_path), random.Random(0), steps=15)


@official
def test_a_real_game_of_an_older_release_is_won(real_games: Path, tmp_path: Path) -> None:
    source = sorted((real_games / "json_2.1.1" / "valid_seen").rglob("pick_clean*/*/game.tw-pddl"))[0]
    path = written(as_before_0_4(json.loads(source.read_text()), sinks=True), tmp_path)
    ours = World(Game.load(path))
    with TextWorldWorld(path) as theirs:
        assert ours.reset() == theirs.reset()
        for command in ("help", "look", *ours.game.walkthrough, "look"):
            assert ours.step(command) == theirs.step(command)
    assert ours.view.won


@official
def test_a_real_game_to_the_end_and_beyond(real_games: Path) -> None:
    rng = random.Random(3)
    paths = sorted((real_games / "json_2.1.1").rglob("pick_and_place_simple*/*/game.tw-pddl"))
    path = min(rng.sample(paths, 20), key=lambda path: len(Game.load(path).walkthrough))
    ours = World(Game.load(path))
    *plan, last = ours.game.walkthrough
    away = last.replace("move", "take").replace(" to ", " from ")
    with TextWorldWorld(path) as theirs:
        assert ours.reset() == theirs.reset()
        for command in ("help", *plan, last, "nonsense", away, "look"):
            assert ours.step(command) == theirs.step(command)
            assert ours.view.won is (command in (last, "nonsense"))


@official
def test_the_callers_process_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["train.py", "--max-steps", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    environment = dict(os.environ)
    with TextWorldWorld(written(kitchen(), tmp_path)) as world:
        world.reset()
    world.close()  # a second time does nothing
    assert dict(os.environ) == environment
    assert sys.argv is arguments
    assert arguments == ["train.py", "--max-steps", "1"]


@official
def test_what_the_official_stack_would_evaluate_is_read_by_us_first(tmp_path: Path) -> None:
    game = kitchen()
    mark = tmp_path / "mark"
    game["grammar"] = game["grammar"].replace("{r.name}", f"{{open('{mark}', 'w')}}")
    with pytest.raises(GameFileError, match="grammar"):
        TextWorldWorld(written(game, tmp_path))
    assert not mark.exists()


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(kitchen(), tmp_path)
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(UsageError, match="uv sync --inexact --extra alfworld"):
        TextWorldWorld(path)

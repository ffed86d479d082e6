"""Our world and the live official stack, side by side; skipped where the extra `alfworld` is not installed."""

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

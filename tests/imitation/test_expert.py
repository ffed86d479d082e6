"""The demonstrator wins from what a player sees, whoever played before it took over."""

import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.games import generate
from alfworld_rl.imitation.expert import Demonstrator, Goal, TaskError, parse_task
from alfworld_rl.imitation.expert_places import learn, worth
from alfworld_rl.world import Game, View, World
from old_games import as_before_0_4, old_command


def game_files(root: Path, split: str) -> list[Path]:
    return sorted((root / "json_2.1.1" / split).rglob("game.tw-pddl"))


def finish(demonstrator: Demonstrator, world: World, view: View, limit: int) -> tuple[bool, list[str]]:
    """Let the demonstrator play on; whether it won, and its commands."""
    commands: list[str] = []
    while not view.done and len(commands) < limit:
        command = demonstrator.act()
        assert command in view.admissible_commands
        view = world.step(command)
        demonstrator.observe(command, view)
        commands.append(command)
    return view.won, commands


def play(path: Path, limit: int = 50, **options: Any) -> tuple[bool, list[str]]:
    world = World(Game.load(path))
    view = world.reset()
    return finish(Demonstrator(view.task, view, **options), world, view, limit)


@pytest.mark.parametrize("split", ["train", "valid_seen", "valid_unseen"])
def test_every_real_game_is_won_within_fifty_steps(real_games: Path, split: str) -> None:
    paths = game_files(real_games, split)
    if not paths:
        pytest.skip(f"no {split} games in {real_games}")
    results = {path: play(path) for path in paths}
    assert [str(path) for path, (won, _) in results.items() if not won] == []
    if len(paths) >= 100:  # an average of a few games says nothing
        assert sum(len(commands) for _, commands in results.values()) / len(paths) <= 8.0


def test_games_of_older_releases_are_won_in_their_words(real_games: Path) -> None:
    paths = game_files(real_games, "valid_seen")[::5]
    for path in paths:
        game = Game.parse(json.dumps(as_before_0_4(json.loads(path.read_text()), sinks=True)), path)
        world = World(game)
        won, commands = finish(Demonstrator(world.view.task, world.view), world, world.view, limit=50)
        assert won, path
        assert commands == [old_command(command) for command in play(path)[1]]  # the same, in other words


def test_generated_games_are_won_too(tmp_path: Path) -> None:
    generate(tmp_path, train=36, valid_seen=0, valid_unseen=36, seed=8)
    paths = [path for split in ("train", "valid_unseen") for path in game_files(tmp_path, split)]
    assert len(paths) == 72
    results = [play(path, limit=100) for path in paths]
    assert all(won for won, _ in results)
    # Some of these houses have more drawers than fifty commands can open.
    assert sum(len(commands) > 50 for _, commands in results) <= 2


def test_it_takes_over_from_a_player_who_does_anything(real_games: Path) -> None:
    rng = random.Random(20)
    paths = rng.sample(game_files(real_games, "train") or game_files(real_games, "valid_seen"), 150)
    for path in paths:
        world = World(Game.load(path))
        view = world.reset()
        demonstrator = Demonstrator(view.task, view)
        for _ in range(rng.choice((3, 15, 50))):
            if view.done:
                break
            busy = [
                c for c in view.admissible_commands if c.split()[0] in ("take", "move", "open", "close", "heat", "cool")
            ]
            command = rng.choice(
                (rng.choice(busy or ["look"]), rng.choice(view.admissible_commands), "fly to the moon")
            )
            view = world.step(command)
            demonstrator.observe(command, view)
        won, _ = finish(demonstrator, world, view, limit=50)
        # Houses have no place for these two: once taken, the hand is never free again.
        lost = any(f"examine {kind} {n}" in world.view.admissible_commands for kind in DEAD_ENDS for n in range(1, 9))
        assert won or view.won or lost, path


DEAD_ENDS = ("papertowelroll", "teddybear")


def test_its_advice_can_be_followed_in_every_recorded_state(recorded_plays: Path) -> None:
    states = 0
    for line in lzma.decompress((recorded_plays / "train_deep.jsonl.xz").read_bytes()).decode().splitlines():
        trace = json.loads(line)
        task = trace["observation"].rpartition("Your task is to: ")[2]
        view = View(trace["observation"], task, tuple(trace["admissible"]), 0, False, False)
        demonstrator = Demonstrator(task, view)
        for step in trace["steps"]:
            assert demonstrator.act() in view.admissible_commands
            view = View(step["observation"], task, tuple(step["admissible"]), step["score"], step["done"], step["won"])
            demonstrator.observe(step["command"], view)
            states += 1
    assert states > 1000


def test_asking_changes_nothing_and_refused_commands_teach_nothing(real_games: Path) -> None:
    path = game_files(real_games, "valid_seen")[3]
    world, twin = World(Game.load(path)), World(Game.load(path))
    view = world.reset()
    pestered, calm = Demonstrator(view.task, view), Demonstrator(view.task, view)
    twin.reset()
    while not view.done:
        assert pestered.act() == pestered.act() == calm.act()
        pestered.observe("open the window", world.step("open the window"))
        command = pestered.act()
        view = world.step(command)
        pestered.observe(command, view)
        calm.observe(command, twin.step(command))
    assert view.won
    assert pestered.act() == "look"


def test_exploration_varies_the_search_and_repeats_with_its_seed(real_games: Path) -> None:
    paths = game_files(real_games, "valid_seen")[::10]
    first = [play(path, exploration=1.0, rng=random.Random(3)) for path in paths]
    again = [play(path, exploration=1.0, rng=random.Random(3)) for path in paths]
    plain = [play(path) for path in paths]
    assert first == again
    assert first != plain
    with pytest.raises(ValueError, match="rng"):
        play(paths[0], exploration=1.0)


@pytest.mark.parametrize(
    ("task", "goal"),
    [
        ("put a cd in safe.", Goal("place", "cd", "safe")),
        ("put some toiletpaper on toiletpaperhanger.", Goal("place", "toiletpaper", "toiletpaperhanger")),
        ("put two cellphone in bed.", Goal("two", "cellphone", "bed")),
        ("find two pen and put them in drawer.", Goal("two", "pen", "drawer")),
        ("put a clean mug in coffeemachine.", Goal("clean", "mug", "coffeemachine")),
        ("clean some ladle and put it in diningtable.", Goal("clean", "ladle", "diningtable")),
        ("put a hot egg in fridge.", Goal("heat", "egg", "fridge")),
        ("heat some egg and put it in fridge.", Goal("heat", "egg", "fridge")),
        ("put a cool pan in stoveburner.", Goal("cool", "pan", "stoveburner")),
        ("cool some pan and put it in stoveburner.", Goal("cool", "pan", "stoveburner")),
        ("look at book under the desklamp.", Goal("look", "book", "desklamp")),
        ("examine the book with the desklamp.", Goal("look", "book", "desklamp")),
        ("Your task is to: put a cd in safe", Goal("place", "cd", "safe")),
    ],
)
def test_task_sentences(task: str, goal: Goal) -> None:
    assert parse_task(task) == goal


def test_a_sentence_that_is_not_alfworlds_is_refused_by_name() -> None:
    with pytest.raises(TaskError, match="make me a sandwich"):
        parse_task("make me a sandwich")


def test_the_places_are_those_of_the_train_games(real_games: Path) -> None:
    """The shipped table is what its command makes: here on a part of the games, roughly."""
    table = learn(game_files(real_games, "train")[::40])
    if not table:
        pytest.skip(f"no train games in {real_games}")
    for kind, place in (("mug", "coffeemachine"), ("pillow", "bed"), ("egg", "fridge")):
        assert table[kind][place] == pytest.approx(worth(kind, place), abs=0.2)
    assert worth("mug", "coffeemachine") > worth("mug", "cabinet") > worth("mug", "bed")
    assert worth("a thing never seen", "countertop") > 0

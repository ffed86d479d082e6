"""What a world does, on a small kitchen that needs no real game."""

import dataclasses
import hashlib
import json
import pickle
from pathlib import Path

import pytest
from houses import GOALS, kitchen, rules

from alfworld_rl.world import Game, World
from old_games import DOMAIN_HASH, GRAMMAR_HASH, as_before_0_4, old_domain, old_grammar


@pytest.fixture
def game() -> Game:
    return Game.parse(json.dumps(kitchen()), "kitchen")


def play(world: World, *commands: str) -> list[str]:
    return [world.step(command).observation for command in commands]


def test_opening(game: Game) -> None:
    view = World(game).reset()
    assert view.observation == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a countertop 1, a drawer 1, a fridge 1, and a sinkbasin 1.\n\nYour task is to: put it there."
    )
    assert view.admissible_commands == (
        "go to countertop 1",
        "go to drawer 1",
        "go to fridge 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
    )
    assert (view.task, view.score, view.done, view.won) == ("put it there.", 0, False, False)


def test_a_game_is_a_value_that_may_be_sent_to_another_process(game: Game) -> None:
    assert (game.task, game.task_type, game.solvable, game.walkthrough) == (
        "put it there.",
        "pick_and_place_simple",
        True,
        (),
    )
    world = World(game)
    world.step("go to fridge 1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        game.task = "another"  # type: ignore[misc]
    twin = World(pickle.loads(pickle.dumps(game)))
    assert twin.step("go to fridge 1") == world.view


def test_commands_are_exact_but_for_space_around_them(game: Game) -> None:
    world = World(game)
    before = world.state_key
    for command in ("", " ", "\n", "LOOK", "look around", "go to  fridge 1", "take", "examine agent1", "\x00", "🍎"):
        view = world.step(command)
        assert view.observation == "Nothing happens."
        assert world.state_key == before
    assert world.step("\t go to fridge 1\n\u3000").observation == "You arrive at fridge 1. The fridge 1 is closed."


def test_games_of_older_releases_speak_in_their_own_words() -> None:
    world = World(Game.parse(json.dumps(as_before_0_4(kitchen())), "kitchen"))
    assert "help" not in world.view.admissible_commands
    assert play(world, "help", "go to countertop 1", "take apple 1 from countertop 1", "go to drawer 1") == [
        "Nothing happens.",
        "You arrive at loc 3. On the countertop 1, you see a apple 2, a apple 1, a desklamp 1, and a knife 1.",
        "You pick up the apple 1 from the countertop 1.",
        "You arrive at loc 2. The drawer 1 is closed.",
    ]
    view = world.step("open drawer 1")
    assert "put apple 1 in/on drawer 1" in view.admissible_commands
    assert not any(command.startswith("move ") for command in view.admissible_commands)
    assert play(world, "move apple 1 to drawer 1", "put apple 1 in/on drawer 1") == [
        "Nothing happens.",
        "You put the apple 1 in/on the drawer 1.",
    ]
    assert world.view.won


def test_the_texts_of_older_releases_are_theirs() -> None:
    """What the tests make is what alfworld 0.3.5 ships, to the letter."""
    domain, grammar = rules()
    assert hashlib.sha256(old_domain(domain).encode()).hexdigest() == DOMAIN_HASH
    assert hashlib.sha256(old_grammar(grammar).encode()).hexdigest() == GRAMMAR_HASH


def test_receptacles_at_one_place_are_all_in_reach(game: Game) -> None:
    world = World(game)
    view = world.step("go to fridge 1")
    assert {"open fridge 1", "open drawer 1", "examine drawer 1"} <= set(view.admissible_commands)
    assert "go to drawer 1" not in view.admissible_commands
    assert play(world, "look", "open drawer 1", "close drawer 1") == [
        "You are facing the drawer 1, and fridge 1. Next to it, you see nothing.",
        "You open the drawer 1. The drawer 1 is open. In it, you see nothing.",
        "You close the drawer 1.",
    ]


def test_slicing_heating_cooling_and_cleaning_show(game: Game) -> None:
    world = World(game)
    play(world, "go to countertop 1", "take knife 1 from countertop 1")
    assert (
        play(world, "slice apple 2 with knife 1", "slice apple 2 with knife 1")
        == ["You sliced the apple 2 with the knife 1."] * 2
    )
    play(world, "move knife 1 to countertop 1", "take apple 2 from countertop 1")
    assert play(world, "examine apple 2", "inventory") == ["This is a sliced apple 2.", "You are carrying: a apple 2."]
    play(world, "go to fridge 1")
    assert play(world, "cool apple 2 with fridge 1", "examine apple 2") == [
        "You cool the apple 2 using the fridge 1.",
        "This is a cool sliced apple 2.",
    ]
    play(world, "go to sinkbasin 1", "clean apple 2 with sinkbasin 1")
    assert play(world, "examine apple 2") == ["This is a cool and clean sliced apple 2."]


def test_a_won_game_goes_on_and_can_be_lost_again(game: Game) -> None:
    world = World(game)
    play(world, "go to countertop 1", "take apple 1 from countertop 1", "go to drawer 1", "open drawer 1")
    view = world.step("move apple 1 to drawer 1")
    assert (view.score, view.done, view.won, world.goals) == (1, True, True, {"object placed": True})
    assert world.step("nonsense").won
    view = world.step("take apple 1 from drawer 1")
    assert (view.score, view.done, view.won, world.goals) == (0, False, False, {"object placed": False})
    assert not world.reset().won


def test_a_copy_goes_its_own_way(game: Game) -> None:
    world = World(game)
    play(world, "go to countertop 1", "take apple 1 from countertop 1")
    twin = world.copy()
    assert (twin.view, twin.state_key) == (world.view, world.state_key)
    play(twin, "move apple 1 to countertop 1")
    assert twin.state_key != world.state_key
    assert world.step("inventory").observation == "You are carrying: a apple 1."
    assert twin.step("inventory").observation == "You are not carrying anything."


def test_state_keys_are_equal_for_equal_states_and_no_others(game: Game) -> None:
    one, other = World(game), World(game)
    play(one, "go to fridge 1", "open fridge 1", "go to drawer 1")
    play(other, "look", "go to drawer 1", "open fridge 1", "inventory")
    assert one.state_key == other.state_key
    assert hash(one.state_key) == hash(other.state_key)
    keys = {one.state_key}
    for command in ("close fridge 1", "go to countertop 1", "use desklamp 1", "take apple 2 from countertop 1"):
        one.step(command)
        assert one.state_key not in keys
        keys.add(one.state_key)


def test_the_facts_follow_what_is_done(game: Game) -> None:
    world = World(game)
    at_first = set(world.facts)
    assert ("inreceptacle", "apple 1", "countertop 1") in at_first
    play(world, "go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "open fridge 1")
    play(world, "cool apple 1 with fridge 1")
    assert set(world.facts) - at_first == {
        ("holds", "apple 1"),
        ("not_inreceptacle", "apple 1", "countertop 1"),
        ("opened", "fridge 1"),
        ("iscool", "apple 1"),
    }
    assert at_first - set(world.facts) == {("inreceptacle", "apple 1", "countertop 1")}


@pytest.mark.parametrize(
    ("goal", "commands", "conditions"),
    [
        (
            GOALS["pick_two_obj_and_place"].format(o="Apple", r="CounterTop"),
            ("go to countertop 1", "take apple 1 from countertop 1"),
            [(True, True), (True, False)],
        ),
        (
            GOALS["pick_cool_then_place_in_recep"].format(o="Apple", r="CounterTop"),
            (
                "go to countertop 1",
                "take apple 1 from countertop 1",
                "go to fridge 1",
                "cool apple 1 with fridge 1",
                "go to countertop 1",
                "move apple 1 to countertop 1",
            ),
            [(False, True, False)] * 3 + [(True, True, False)] * 2 + [(True, True, True)],
        ),
        (
            GOALS["look_at_obj_in_light"].format(o="Knife", l="DeskLamp"),
            ("go to countertop 1", "use desklamp 1", "take knife 1 from countertop 1", "go to fridge 1"),
            [(False, False), (False, True), (True, True), (True, False)],
        ),
    ],
)
def test_the_goals_conditions_by_name(goal: str, commands: tuple[str, ...], conditions: list[tuple[bool, ...]]) -> None:
    world = World(Game.parse(json.dumps(kitchen(goal)), Path("kitchen")))
    seen = []
    for command in commands:
        view = world.step(command)
        seen.append(tuple(world.goals.values()))
        assert view.won == all(seen[-1])
    assert seen == conditions


def test_worlds_of_a_game_do_not_touch_each_other(game: Game) -> None:
    worlds = [World(game) for _ in range(4)]
    for number, world in enumerate(worlds):
        play(world, *("go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1")[:number])
    assert [world.step("inventory").observation for world in worlds] == [
        *["You are not carrying anything."] * 2,
        *["You are carrying: a apple 1."] * 2,
    ]

"""A game file is data from strangers: it is played, or refused with a GameFileError, and nothing else."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from houses import kitchen, random_house, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.world import Game, GameFileError, World
from old_games import as_before_0_4

PROBLEM = "pddl_problem"


@pytest.fixture
def kitchen_file() -> dict[str, Any]:
    return kitchen()


def refusal(data: bytes | str | dict[str, Any]) -> str:
    with pytest.raises(GameFileError) as caught:
        Game.parse(json.dumps(data) if isinstance(data, dict) else data, Path("some/game.tw-pddl"))
    assert isinstance(caught.value, AlfworldRLError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert str(caught.value).startswith("some/game.tw-pddl: ")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    return caught.value.problem


def tried(data: bytes) -> None:
    """Reads a file, and plays it if it can be read."""
    try:
        game = Game.parse(data, "mutant")
    except GameFileError:
        return
    world = World(game)
    rng = random.Random(0)
    for _ in range(5):
        world.step(rng.choice(world.view.admissible_commands))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(GameFileError, match="cannot be read: No such file"):
        Game.load(tmp_path / "game.tw-pddl")
    with pytest.raises(GameFileError, match="cannot be read"):
        Game.load(tmp_path)
    with pytest.raises(GameFileError, match="cannot be read"):
        Game.load("a\0b")


def test_truncated(kitchen_file: dict[str, Any], tmp_path: Path) -> None:
    whole = written(kitchen_file, tmp_path).read_bytes()
    assert Game.parse(whole, "whole").solvable
    for end in range(0, len(whole), 997):
        assert "not complete JSON" in refusal(whole[:end])


@pytest.mark.parametrize("key", ["pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"])
def test_missing_key(kitchen_file: dict[str, Any], key: str) -> None:
    del kitchen_file[key]
    assert refusal(kitchen_file) == f"the key {key!r} is missing."


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("pddl_domain", None, "'pddl_domain' is not a text."),
        ("grammar", ["a"], "'grammar' is not a text."),
        (PROBLEM, 7, "'pddl_problem' is not a text."),
        ("walkthrough", "look", "'walkthrough' is not a list of commands."),
        ("walkthrough", [1], "'walkthrough' is not a list of commands."),
    ],
)
def test_wrong_type(kitchen_file: dict[str, Any], key: str, value: object, problem: str) -> None:
    assert refusal(kitchen_file | {key: value}) == problem


def test_no_object() -> None:
    for data in (b"[]", b"3", b"null", b'"text"'):
        assert refusal(data) == "the file holds no JSON object."


def test_not_text() -> None:
    assert "UTF-8" in refusal(b'{"pddl_domain": "\xff\xfe"}')


def test_deep_nesting(kitchen_file: dict[str, Any]) -> None:
    assert refusal(b"[" * 300_000)
    assert refusal(b'{"a":' * 100_000)
    deep = "(" * 400_000
    refusal(kitchen_file | {PROBLEM: deep})
    refusal(kitchen_file | {PROBLEM: kitchen_file[PROBLEM].replace("(:init", f"(:init {deep}")})
    refusal(kitchen_file | {PROBLEM: kitchen_file[PROBLEM].replace("(:goal", f"(:goal {deep}")})
    refusal(kitchen_file | {"pddl_domain": "(" * 60_000 + ")" * 60_000})
    refusal(kitchen_file | {"pddl_domain": "(" * 30_000 + ")" * 30_000})
    grammar = kitchen_file["grammar"]
    refusal(kitchen_file | {"grammar": grammar + 'grammar :: """' + "[" * 40_000 + '""";'})
    refusal(kitchen_file | {"grammar": grammar.replace('"notImplemented": [', '"notImplemented": ' + "[" * 40_000)})


def test_what_would_make_a_careless_scan_quadratic(kitchen_file: dict[str, Any]) -> None:
    problem, grammar = kitchen_file[PROBLEM], kitchen_file["grammar"]
    for flood in (" " * 1_000_000, ")" * 1_000_000, ") " * 500_000, "(a" * 500_000, "x" * 1_000_000, "(x y" * 300_000):
        for place in ("(:init", "(:goal", "(:objects", "(define"):
            tried(json.dumps(kitchen_file | {PROBLEM: problem.replace(place, place + " " + flood)}).encode())
            tried(json.dumps(kitchen_file | {PROBLEM: problem.replace(place, flood + place)}).encode())
    for flood in ('grammar :: """{}""";' * 50_000, '"' * 60_000, " " * 60_000, 'action a {template::"";' * 2_000):
        refusal(kitchen_file | {"grammar": flood + grammar})
        refusal(kitchen_file | {"grammar": grammar + "x" + flood})


def test_huge(kitchen_file: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    with open(path, "wb") as file:
        file.truncate(10 * 2**30)  # sparse: reading all of it would take the memory of the machine
    with pytest.raises(GameFileError, match="larger than"):
        Game.load(path)
    many = "".join(f" Cup_bar_{i} - object" for i in range(20_000))
    facts = "".join(f" (pickupable Cup_bar_{i})" for i in range(20_000))
    problem = kitchen_file[PROBLEM].replace("(:objects", f"(:objects {many}").replace("(:init", f"(:init {facts}")
    assert "more than" in refusal(kitchen_file | {PROBLEM: problem})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(not (holds ?a ?o))", ""),
        ("(isHot ?o)", "(isCool ?o)"),
        ("SinkBasinType", "BathtubBasinType"),
        ("(:action help", "(:action gohelp"),
        ("(define (domain alfred)", "(define (domain alfredo)"),
        ("(:action help", "(:action win :parameters (?a - agent) :precondition () :effect (checked ?a)) (:action help"),
        ("(:types", "(:constants x - object) (:types"),
    ],
)
def test_another_domain(kitchen_file: dict[str, Any], old: str, new: str) -> None:
    changed = kitchen_file["pddl_domain"].replace(old, new)
    assert changed != kitchen_file["pddl_domain"]
    assert "domain" in refusal(kitchen_file | {"pddl_domain": changed})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("You open the {r.name}.", "You open {r.name}."),
        ("{o.indefinite + ' ' + o.name | inreceptacle", "{__import__('os').system('true') | inreceptacle"),
        ("Your task is to: put it there.", "Your task is to: {__import__('os').system('true')}"),
        ("Your task is to: put it there.", "Your task is to: #look.feedback#"),
        ("Your task is to: put it there.", "Your task is to: a\\u007bb"),
        ("Your task is to: ", "Your job is: "),
        ('"list_empty"', '"list_full"'),
        ('template :: "open {r}"', 'template :: "push {r}"'),
        ('"rhs": ", and "', '"rhs": ", & "'),
    ],
)
def test_another_grammar(kitchen_file: dict[str, Any], old: str, new: str) -> None:
    changed = kitchen_file["grammar"].replace(old, new)
    assert changed != kitchen_file["grammar"]
    assert "the grammar is none of ALFWorld's" in refusal(kitchen_file | {"grammar": changed})


def test_rules_of_different_releases_together(kitchen_file: dict[str, Any]) -> None:
    """As the official stack has it: help that nobody can ask for is no matter, help that nothing answers is."""
    old = as_before_0_4(kitchen_file)
    new_words = kitchen_file | {"pddl_domain": old["pddl_domain"]}
    view = World(Game.parse(json.dumps(new_words), "new words")).step("go to countertop 1")
    assert view.observation.startswith("You arrive at countertop 1.")
    assert "help" not in view.admissible_commands
    problem = refusal(kitchen_file | {"grammar": old["grammar"]})
    assert problem.startswith("the grammar is none of ALFWorld's")
    assert "alfworld-download" in problem


def test_comments_spacing_and_what_no_action_says_are_free(kitchen_file: dict[str, Any]) -> None:
    plain = World(Game.parse(json.dumps(kitchen_file), "plain"))
    domain = kitchen_file["pddl_domain"].replace("\n(:action", "\n( :Action ; (not this\n")
    kitchen_file["pddl_domain"] = "; ours\n" + domain.replace("(checked ?r - receptacle)", "(seen ?r - receptacle)")
    kitchen_file["grammar"] = kitchen_file["grammar"].replace('"rhs": "TODO"', '"rhs":   "to do"').replace("\n\n", "\n")
    kitchen_file[PROBLEM] = kitchen_file[PROBLEM].replace("(:init", "; facts (follow)\n( :init\n ").upper()
    assert World(Game.parse(json.dumps(kitchen_file), "spaced")).view == plain.view


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("(:init", "(:init (pickupable Ghost_bar_1)", "which is no"),
        ("(:init", "(:init (inReceptacle Apple_bar_1 loc_bar_1)", "which is no"),
        ("(:init", "(:init (pickupable Apple_bar_1 Apple_bar_2)", "which is no"),
        ("(:init", "(:init (inReceptacle Apple_bar_1)", "which is no"),
        ("(:init", "(:init (flies Apple_bar_1)", "none of ALFWorld's"),
        ("(:init", "(:init (not (pickupable Apple_bar_1))", "no fact of"),
        ("(:init", "(:init pickupable", "no fact of"),
        ("(:init", "(:init (atLocation agent1 loc_bar_3)", "exactly one place"),
        ("(:init", "(:init (receptacleAtLocation Fridge_bar_1 loc_bar_1)", "more than one place or type"),
        ("(receptacleAtLocation Fridge_bar_1 loc_bar_2)", "", "no place or no type"),
        ("(:objects", "(:objects Apple_bar_1 - object", "declared twice"),
        (")\n(:init", " Apple_bar_3)\n(:init", "without a type"),
        ("AppleType) (receptacleType ?r", "GhostType) (receptacleType ?r", "unknown type"),
        ("(inReceptacle ?o ?r) (objectType", "(holds ?a ?o) (objectType", "six tasks"),
        ("(:domain alfred)", "(:domain blocks)", "PDDL of an ALFWorld game"),
        ("(define", "(redefine", "PDDL of an ALFWorld game"),
        ("Apple_bar_1", "Äpple_bar_1", "characters"),
        ("Apple_bar_1", "Apple?_bar_1", "characters"),
        ("Apple_bar_1", "App_dot_le_bar_1", "none of ALFWorld's"),
    ],
)
def test_another_problem(kitchen_file: dict[str, Any], old: str, new: str, problem: str) -> None:
    changed = kitchen_file[PROBLEM].replace(old, new)
    assert changed != kitchen_file[PROBLEM]
    assert problem in refusal(kitchen_file | {PROBLEM: changed})


FUZZ = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    tried(data)


@FUZZ
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=6)), max_size=4))
def test_mutated_houses(seed: int, cuts: list[tuple[int, bytes]]) -> None:
    # The problem alone is mutated, so that what is behind the domain's and the grammar's check is reached.
    game = random_house(random.Random(seed))
    problem = game[PROBLEM].encode()
    for at, patch in cuts:
        at %= len(problem)
        problem = problem[:at] + patch + problem[at + max(1, len(patch)) :]
    tried(json.dumps(game | {PROBLEM: problem.decode("latin-1")}).encode())


@FUZZ
@given(
    key=st.sampled_from(["pddl_domain", "grammar", PROBLEM, "solvable", "walkthrough"]),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_any_value_for_a_key(key: str, value: object) -> None:
    tried(json.dumps(kitchen() | {key: value}).encode())


def test_mutated_bytes_of_real_games(real_games: Path) -> None:
    rng = random.Random(20)
    paths = rng.sample(sorted((real_games / "json_2.1.1").rglob("game.tw-pddl")), 40)
    for path in paths:
        whole = path.read_bytes()
        facts_at = whole.index(b"pddl_problem")
        for _ in range(12):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 3))):
                at = rng.randrange(facts_at if rng.random() < 0.8 else 0, len(data))
                match rng.randrange(4):
                    case 0:
                        data[at] = rng.randrange(256)
                    case 1:
                        del data[at : at + rng.randrange(1, 60)]
                    case 2:
                        data[at:at] = data[at - rng.randrange(60) : at]
                    case 3:
                        data[at:at] = rng.choice(
                            (b"(", b")", b"?", b" - ", b";", b"\\n", b"\\u0000", b"(:goal", b"_bar_")
                        )
            tried(bytes(data))

"""Small houses in ALFWorld's file format, as odd as the format allows, for tests that need no real game."""

import json
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

OTYPES = ("Apple", "Knife", "ButterKnife", "Pan", "DeskLamp", "Book", "Cup")
RTYPES = ("Fridge", "Microwave", "SinkBasin", "BathtubBasin", "CounterTop", "Drawer", "Desk")
GOALS = {
    "pick_and_place_simple": "(exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) "
    "(objectType ?o {o}Type) (receptacleType ?r {r}Type))))",
    "pick_clean_then_place_in_recep": "(exists (?r - receptacle) (exists (?o - object) (and (cleanable ?o) "
    "(objectType ?o {o}Type) (receptacleType ?r {r}Type) (isClean ?o) (inReceptacle ?o ?r))))",
    "pick_heat_then_place_in_recep": "(exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) "
    "(objectType ?o {o}Type) (receptacleType ?r {r}Type) (isHot ?o) (inReceptacle ?o ?r))))",
    "pick_cool_then_place_in_recep": "(exists (?r - receptacle) (exists (?o - object) (and (coolable ?o) "
    "(objectType ?o {o}Type) (receptacleType ?r {r}Type) (isCool ?o) (inReceptacle ?o ?r))))",
    "pick_two_obj_and_place": "(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {o}Type) "
    "(receptacleType ?r {r}Type) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) "
    "(objectType ?o2 {o}Type) (receptacleType ?r {r}Type) (inReceptacle ?o2 ?r))))))",
    "look_at_obj_in_light": "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
    "(objectType ?ot {l}Type) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) "
    "(inReceptacle ?ot ?r))) (exists (?o - object ?a - agent) (and (objectType ?o {o}Type) (holds ?a ?o)))",
}


def rules() -> tuple[str, str]:
    """ALFWorld's domain and its grammar without a task, from the installed alfworld; skips where there is none."""
    spec = find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("alfworld is not installed (extra alfworld): no domain and grammar to make houses with")
    data = Path(spec.submodule_search_locations[0]) / "data"
    return (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()


def house(declared: list[str], facts: list[str], goal: str, task: str = "put it there") -> dict[str, Any]:
    """A game's JSON from "id - kind" lines, facts without parentheses, and the goal."""
    domain, grammar = rules()
    types = [f"{name}Type - otype" for name in OTYPES] + [f"{name}Type - rtype" for name in RTYPES]
    problem = (
        "(define (problem plan_test)\n(:domain alfred)\n(:objects\nagent1 - agent\n"
        + "\n".join(types + declared)
        + ")\n(:init\n"
        + "\n".join(f"({fact})" for fact in facts)
        + f")\n(:goal (and {goal})))"
    )
    return {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL", task),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": [],
    }


def kitchen(goal: str = "") -> dict[str, Any]:
    """Three places: a counter with two apples, a knife and a lamp; a fridge and a drawer; a sink."""
    goal = goal or GOALS["pick_and_place_simple"].format(o="Apple", r="Drawer")
    objects = {"Apple_bar_1": "Apple", "Apple_bar_2": "Apple", "Knife_bar_1": "Knife", "DeskLamp_bar_1": "DeskLamp"}
    receptacles = {"CounterTop_bar_1": 1, "Fridge_bar_1": 2, "Drawer_bar_1": 2, "Sink_bar_1_bar_SinkBasin": 3}
    facts = ["atLocation agent1 loc_bar_0"]
    for name, otype in objects.items():
        facts += [f"objectType {name} {otype}Type", f"inReceptacle {name} CounterTop_bar_1"]
        facts += [f"objectAtLocation {name} loc_bar_1"]
        facts += ["toggleable DeskLamp_bar_1"] if otype == "DeskLamp" else [f"pickupable {name}"]
    for name, place in receptacles.items():
        rtype = "SinkBasin" if "Basin" in name else name.partition("_")[0]
        facts += [f"receptacleType {name} {rtype}Type", f"receptacleAtLocation {name} loc_bar_{place}"]
        facts += [f"canContain {rtype}Type {otype}Type" for otype in ("Apple", "Knife")]
    for able in ("cleanable", "heatable", "coolable", "sliceable"):
        facts += [f"{able} Apple_bar_1", f"{able} Apple_bar_2"]
    facts += ["openable Fridge_bar_1", "openable Drawer_bar_1"]
    declared = [f"{name} - object" for name in objects] + [f"{name} - receptacle" for name in receptacles]
    return house(declared + [f"loc_bar_{i} - location" for i in range(4)], facts, goal)


def random_house(rng: random.Random) -> dict[str, Any]:
    """A house in which everything that the format allows and ALFWorld's own houses do not have may happen."""
    places = [f"loc_bar_{i}" for i in range(rng.randint(2, 5))]
    objects = {}
    for i in range(rng.randint(3, 9)):
        otype = rng.choice(OTYPES)
        objects[f"{otype}_bar_{rng.choice(('plus', 'minus'))}_0{i}_dot_5" + "_bar_basin" * (rng.random() < 0.1)] = otype
    if rng.random() < 0.3:
        objects["Book"] = "Book"  # a name without a number
    receptacles = {}
    for i in range(rng.randint(3, 12)):
        rtype = rng.choice(RTYPES)
        receptacles[f"{rtype.removesuffix('Basin')}_bar_{i}" + "_bar_Basin" * ("Basin" in rtype)] = rtype
    facts = [f"atLocation agent1 {rng.choice(places)}"]
    for name, rtype in receptacles.items():
        facts += [f"receptacleType {name} {rtype}Type", f"receptacleAtLocation {name} {rng.choice(places)}"]
        facts += [f"openable {name}"] * (rng.random() < 0.5)
        facts += [f"opened {name}"] * (rng.random() < 0.2)
        facts += [f"canContain {rtype}Type {otype}Type" for otype in OTYPES if rng.random() < 0.7]
    flags = ("cleanable", "heatable", "coolable", "sliceable", "pickupable", "pickupable")
    rare = ("isClean", "isHot", "isCool", "isSliced", "toggleable", "isToggled", "isReceptacleObject")
    for name, otype in objects.items():
        facts += [f"objectType {name} {otype}Type"] * (rng.random() < 0.95)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2))):
            facts.append(f"inReceptacle {name} {rng.choice(list(receptacles))}")
        for _ in range(rng.choice((0, 1, 1, 2))):
            facts.append(f"objectAtLocation {name} {rng.choice(places)}")
        facts += [f"{flag} {name}" for flag in flags if rng.random() < 0.7]
        facts += [f"{flag} {name}" for flag in rare if rng.random() < 0.2]
        facts += [f"inReceptacleObject {name} {rng.choice(list(objects))}"] * (rng.random() < 0.3)
    # The goal can be reached: the official stack breaks down over houses where it cannot.
    otype, rtype = rng.choice(list(objects.values())), rng.choice(list(receptacles.values()))
    targets = [name for name in objects if objects[name] == otype]
    for able, machine in (("cleanable", "SinkBasin"), ("heatable", "Microwave"), ("coolable", "Fridge")):
        receptacles[f"{machine}_bar_Basin_goal" if "Basin" in machine else f"{machine}_bar_goal"] = machine
        facts += [f"{able} {name}" for name in targets]
    for name, machine in list(receptacles.items())[-3:]:
        facts += [f"receptacleType {name} {machine}Type", f"receptacleAtLocation {name} {rng.choice(places)}"]
    for number in range(2):
        objects[f"DeskLamp_bar_goal{number}"] = "DeskLamp"
        objects[f"{otype}_bar_goal{number}"] = otype
        facts += [f"objectType {otype}_bar_goal{number} {otype}Type", f"canContain {rtype}Type {otype}Type"]
        facts += [f"pickupable {otype}_bar_goal{number}"]
        facts += [f"{able} {otype}_bar_goal{number}" for able in ("cleanable", "heatable", "coolable")]
        facts += [f"inReceptacle {otype}_bar_goal{number} {rng.choice(list(receptacles))}"]
        facts += [f"inReceptacle DeskLamp_bar_goal{number} {rng.choice(list(receptacles))}"]
        facts += [f"objectType DeskLamp_bar_goal{number} DeskLampType", f"toggleable DeskLamp_bar_goal{number}"]
    facts += rng.sample(facts[1:], len(facts) // 3)
    rng.shuffle(facts)
    goal = GOALS[rng.choice(list(GOALS))].format(o=otype, r=rtype, l="DeskLamp")
    declared = [f"{name} - object" for name in objects] + ["Unseen_bar_1 - object"]
    declared += [f"{name} - receptacle" for name in receptacles] + [f"{name} - location" for name in places]
    return house(declared, facts, goal)


def written(game: dict[str, Any], folder: Path) -> Path:
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(game))
    return path

"""The problem of a game file: a house and a goal in PDDL, read into tables of numbers by a few linear scans."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from alfworld_rl.games.task_types import TASKS

MAX_GOAL = 4000
MAX_THINGS = 1000
"""Objects, receptacles and places of one house; ALFWorld's largest has 173."""


class ProblemError(Exception):
    """What is wrong with a problem; becomes a GameFileError, which knows the file."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What has to hold at once for the game to be won. Sets of objects and receptacles are bit masks.

    `kind` is the task type. An object of `targets` has to be `state` ("clean", "hot", "cool" or "" for any state)
    and lie in one of `receptacles`; for `pick_two_obj_and_place` two of them in the same one; for
    `look_at_obj_in_light` an object of `targets` has to be held at a receptacle that holds a used one of `lamps`.
    """

    kind: str
    targets: int
    state: str = ""
    receptacles: tuple[int, ...] = ()
    lamps: int = 0


_PROBLEM = re.compile(
    r"\s*\(\s*define\s*\(\s*problem\s+[^\s()]+\s*\)\s*\(\s*:domain\s+alfred\s*\)"
    r"\s*\(\s*:objects\s([^()]*)\)\s*\(\s*:init\s"
)
_GOAL = re.compile(r"\)\s*\(\s*:goal\b")

_SIGNATURES = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "openable": ("receptacle",),
    "opened": ("receptacle",),
    "inreceptacle": ("object", "receptacle"),
    "isreceptacleobject": ("object",),
    "inreceptacleobject": ("object", "object"),
    "receptacletype": ("receptacle", "rtype"),
    "cancontain": ("rtype", "otype"),
    "objecttype": ("object", "otype"),
    "isclean": ("object",),
    "cleanable": ("object",),
    "ishot": ("object",),
    "heatable": ("object",),
    "iscool": ("object",),
    "coolable": ("object",),
    "pickupable": ("object",),
    "toggleable": ("object",),
    "istoggled": ("object",),
    "sliceable": ("object",),
    "issliced": ("object",),
}


def tables(problem: str, sinks: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a `Game` that are about its house and goal. Raises ProblemError."""
    if not problem.isascii():
        raise ProblemError("the problem holds characters that PDDL does not know.")
    if ";" in problem:
        problem = re.sub(r";[^\n]*", "", problem)
    problem = problem.lower()
    head = _PROBLEM.match(problem)
    goal_at = _GOAL.search(problem, head.end()) if head else None
    if head is None or goal_at is None:
        raise ProblemError("the problem is not the PDDL of an ALFWorld game (domain, objects, facts, goal).")
    kinds = _kinds(head[1])
    facts = _facts(problem[head.end() : goal_at.start()], kinds)
    kind, goal_types = _goal(problem[goal_at.end() :], kinds)

    ids: dict[str, set[str]] = {"object": set(), "receptacle": set(), "location": set()}
    for predicate, rows in facts.items():
        for column, kind_of_column in enumerate(_SIGNATURES[predicate]):
            if kind_of_column in ids:
                ids[kind_of_column].update([row[column] for row in rows])
    if sum(map(len, ids.values())) > MAX_THINGS:
        raise ProblemError(
            f"there are more than {MAX_THINGS} objects, receptacles and locations, more than in any house."
        )
    objects, receptacles, places = (sorted(ids[kind]) for kind in ("object", "receptacle", "location"))
    names = _names(objects + receptacles + places)
    object_of = {word: i for i, word in enumerate(objects)}
    receptacle_of = {word: i for i, word in enumerate(receptacles)}
    place_of = {word: i for i, word in enumerate(places)}

    def objects_that(predicate: str) -> int:
        return _mask([object_of[row[0]] for row in facts[predicate]])

    def receptacles_that(predicate: str) -> int:
        return _mask([receptacle_of[row[0]] for row in facts[predicate]])

    def receptacles_of(*rtypes: str) -> int:
        return _mask([i for i, word in enumerate(receptacles) if sort[word] in rtypes])

    starts = [place for _, place in facts["atlocation"]]
    if len(starts) != 1:
        raise ProblemError("the player does not begin at exactly one place.")
    where, sort = dict(facts["receptacleatlocation"]), dict(facts["receptacletype"])
    if len(where) < len(facts["receptacleatlocation"]) or len(sort) < len(facts["receptacletype"]):
        raise ProblemError("a receptacle has more than one place or type.")
    if missing := [word for word in receptacles if word not in where or word not in sort]:
        raise ProblemError(f"the receptacle {missing[0]} has no place or no type.")

    of_type: defaultdict[str, int] = defaultdict(int)
    for word, otype in facts["objecttype"]:
        of_type[otype] |= 1 << object_of[word]
    holds: defaultdict[str, int] = defaultdict(int)
    for rtype, otype in facts["cancontain"]:
        if otype in of_type:
            holds[rtype] |= of_type[otype]
    inside = [0] * len(receptacles)
    for word, receptacle in facts["inreceptacle"]:
        inside[receptacle_of[receptacle]] |= 1 << object_of[word]
    lying = [0] * len(places)
    for word, place in facts["objectatlocation"]:
        lying[place_of[place]] |= 1 << object_of[word]
    receptacles_at: list[list[int]] = [[] for _ in places]
    for number, word in enumerate(receptacles):
        receptacles_at[place_of[where[word]]].append(number)
    contents: dict[int, list[int]] = {object_of[word]: [] for word, _ in facts["isreceptacleobject"]}
    for inner, outer in sorted(facts["inreceptacleobject"]):
        if inner != outer and object_of[outer] in contents:
            contents[object_of[outer]].append(object_of[inner])
    openable = receptacles_that("openable")
    ability, state = TASKS[kind].ability, TASKS[kind].state
    return {
        "task_type": kind,
        "objects": tuple([names[word] for word in objects]),
        "receptacles": tuple([names[word] for word in receptacles]),
        "places": tuple([names[word] for word in places]),
        "place_of": tuple([place_of[where[word]] for word in receptacles]),
        "receptacles_at": tuple(map(tuple, receptacles_at)),
        "openable_at": tuple([_mask(here) & openable for here in receptacles_at]),
        "start": place_of[starts[0]],
        "inside": tuple(inside),
        "lying": tuple(lying),
        "holds": tuple([holds[sort[word]] for word in receptacles]),
        "openable": openable,
        "pickupable": objects_that("pickupable"),
        "cleanable": objects_that("cleanable"),
        "heatable": objects_that("heatable"),
        "coolable": objects_that("coolable"),
        "sliceable": objects_that("sliceable"),
        "toggleable": objects_that("toggleable"),
        "knives": of_type["knifetype"] | of_type["butterknifetype"],
        "sinks": receptacles_of(*sinks),
        "microwaves": receptacles_of("microwavetype"),
        "fridges": receptacles_of("fridgetype"),
        "opened": receptacles_that("opened"),
        "clean": objects_that("isclean"),
        "hot": objects_that("ishot"),
        "cool": objects_that("iscool"),
        "sliced": objects_that("issliced"),
        "toggled": objects_that("istoggled"),
        "contents": {outer: tuple(inner) for outer, inner in contents.items()},
        "goal": Goal(
            kind=kind,
            targets=of_type[goal_types["o"]] & (objects_that(ability) if ability else -1),
            state=state,
            receptacles=tuple([i for i, word in enumerate(receptacles) if sort[word] == goal_types.get("r")]),
            lamps=of_type[goal_types.get("l", "")] & objects_that("toggleable"),
        ),
    }


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _kinds(declared: str) -> dict[str, str]:
    """The kind (object, receptacle, location, ...) of every declared id."""
    words = declared.split()
    ids, dashes, types = words[0::3], words[1::3], words[2::3]
    if len(ids) != len(types) or set(dashes) - {"-"}:  # not one id a type, the form of ALFWorld's own files
        ids, types = _ids_and_types(words)
    kinds = dict(zip(ids, types, strict=True))
    if len(kinds) < len(ids):
        raise ProblemError(f"{Counter(ids).most_common(1)[0][0]} is declared twice.")
    return kinds


def _ids_and_types(words: list[str]) -> tuple[list[str], list[str]]:
    """The ids and their types where several share one: a b - object."""
    ids: list[str] = []
    types: list[str] = []
    following = iter(words)
    for word in following:
        if word == "-":
            types += [next(following, "")] * (len(ids) - len(types))
        else:
            ids.append(word)
    if len(types) < len(ids):
        raise ProblemError(f"{ids[-1]} is declared without a type.")
    return ids, types


def _facts(text: str, kinds: Mapping[str, str]) -> defaultdict[str, set[tuple[str, str]]]:
    """The facts that hold at the start by predicate, each once: files repeat them. The second of one is ""."""
    *pieces, rest = text.split(")")
    if rest.strip() or text.count("(") != len(pieces):
        raise ProblemError("the facts are not a list of (predicate id) and (predicate id id).")
    facts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for piece in set(pieces):
        words = piece.split()
        if words and words[0] == "(":
            words[:2] = ["".join(words[:2])]
        if not 2 <= len(words) <= 3 or words[0][0] != "(":
            raise ProblemError(f"{piece.strip()[:80]!r} is no fact of ALFWorld's.")
        facts[words[0][1:]].add((words[1], words[2] if len(words) == 3 else ""))
    for predicate, rows in facts.items():
        if predicate not in _SIGNATURES:
            raise ProblemError(f"the fact {predicate[:80]!r} is none of ALFWorld's.")
        for column, kind in zip(zip(*rows, strict=True), (*_SIGNATURES[predicate], None), strict=False):
            if set(map(kinds.get, column)) != {kind}:  # no id has the kind None, and none is needed for ""
                strange = next(word for word in column if kinds.get(word) != kind)
                raise ProblemError(
                    f"the fact {predicate} names {strange[:80]!r}, which is no {kind or 'second id'} here."
                )
    return facts


def _goal(text: str, kinds: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The task type and the types that the goal speaks of: o(bject), r(eceptacle), l(amp)."""
    goal = re.sub(r" ?([()]) ?", r"\1", " ".join(text.split())) if len(text) <= MAX_GOAL else ""
    for kind, task in TASKS.items():
        if match := task.goal_pattern.fullmatch(goal):
            found = match.groupdict()
            for name, word in found.items():
                if kinds.get(word) != ("rtype" if name == "r" else "otype"):
                    raise ProblemError(f"the goal names the unknown type {word}.")
            return kind, found
    raise ProblemError("the goal is not that of one of the six tasks.")


def _names(ids: list[str]) -> dict[str, str]:
    """The names that the player reads: within the ids of one base the first gets the highest number."""
    bases: dict[str, str] = {}
    names: dict[str, str] = {}
    for word in sorted(ids):
        if not word.isidentifier():
            raise ProblemError(f"the id {word[:80]!r} holds other characters than letters, digits and _.")
        base, separator, _ = word.partition("_bar_")
        if separator:
            bases[word] = base + "basin" if "basin" in word else base
        else:
            names[word] = _decoded(word) + " "  # the place of the number stays, and the space before it
    left = Counter(bases.values())
    for word, base in bases.items():
        if "_" in base and base != _decoded(base):
            raise ProblemError(
                f"the name of {word} is none of ALFWorld's."
            )  # the official stack finds no number for it
        names[word] = f"{base} {left[base]}"
        left[base] -= 1
    return names


def _decoded(word: str) -> str:
    return word.replace("_minus_", "-").replace("_plus_", "+").replace("_dot_", ".").replace("_comma_", ",")

"""A game file of ALFWorld (`game.tw-pddl`), read once into small immutable tables.

A game file is data from strangers. It is read with `json` and a few linear scans: nothing in it is evaluated,
nothing recurses over it, and what is not exactly ALFWorld's is refused with a `GameFileError`.
"""

import hashlib
import json
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from alfworld_rl.errors import AlfworldRLError

MAX_FILE_BYTES = 2 * 1024 * 1024
"""ALFWorld's largest game file has 138 kB."""
MAX_TEXT = 64 * 1024
"""Of a domain or a grammar; ALFWorld's have 17 kB."""
MAX_GOAL = 4000
MAX_THINGS = 1000
"""Objects, receptacles and places of one house; ALFWorld's largest has 173."""


class GameFileError(AlfworldRLError):
    """A game file cannot be played; the message names the file and what is wrong with it."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(path, problem)  # both, so that the error can be sent to another process
        self.path = Path(path)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Game:
    """One game, parsed: immutable, and shared by every `World` that plays it.

    Objects, receptacles and places are numbered in the order of their raw ids, the order of every list that the
    player reads; a set of objects is an int whose bit i stands for object i.
    """

    path: Path
    task: str
    """The sentence after "Your task is to: "."""
    task_type: str
    walkthrough: tuple[str, ...]
    """Commands that win, as the file gives them; empty where it gives none."""
    solvable: bool

    objects: tuple[str, ...]
    """Names as the player reads them, "egg 2"."""
    receptacles: tuple[str, ...]
    place_of: tuple[int, ...]
    """The place of each receptacle."""
    receptacles_at: tuple[tuple[int, ...], ...]
    """The receptacles of each place."""
    openable_at: tuple[int, ...]
    """The set of those that open and close."""
    start: int
    """The place where the player begins."""
    inside: tuple[int, ...]
    """The objects in each receptacle at the start."""
    lying: tuple[int, ...]
    """The objects at each place at the start: a relation of its own, not always that of `inside`."""
    holds: tuple[int, ...]
    """The objects that may be moved to each receptacle."""
    openable: int
    pickupable: int
    cleanable: int
    heatable: int
    coolable: int
    sliceable: int
    toggleable: int
    knives: int
    sinks: int
    microwaves: int
    fridges: int
    opened: int
    clean: int
    hot: int
    cool: int
    sliced: int
    toggled: int
    contents: Mapping[int, tuple[int, ...]]
    """The objects in each object that is a container; they never change."""
    goal: Goal

    kept: dict[Hashable, Any] = field(default_factory=dict)
    """Texts and command lists that worlds of this game have worked out already; they see to its size."""
    commands: dict[str, Any] = field(default_factory=dict)
    """The commands that worlds of this game have understood already."""

    def __repr__(self) -> str:
        return f"Game({str(self.path)!r}, task={self.task!r})"

    @classmethod
    def load(cls, path: Path | str) -> "Game":
        """Reads the game file at `path`. Raises GameFileError."""
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # reading a named pipe would wait for ever
                raise ValueError("it is no file")
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:  # ValueError: a path that no file can have
            problem = error.strerror if isinstance(error, OSError) else error
            raise GameFileError(path, f"the game file cannot be read: {problem}.") from None
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: bytes | str, path: Path | str) -> "Game":
        """The game in `data`, the content of a game file; `path` is only remembered. Raises GameFileError."""
        return _parse(data, Path(path))


# --- the file ---------------------------------------------------------------------------------------------------


def _parse(data: bytes | str, path: Path) -> Game:
    def refuse(problem: str) -> NoReturn:
        raise GameFileError(path, problem) from None

    if len(data) > MAX_FILE_BYTES:
        refuse(f"the file is larger than {MAX_FILE_BYTES // 2**20} MiB, no game of ALFWorld is.")
    try:
        game = json.loads(data)
    except UnicodeDecodeError:
        refuse("the file is not UTF-8 text.")
    except RecursionError:
        refuse("the JSON is nested too deeply.")
    except ValueError as error:
        refuse(f"the file is not complete JSON ({error}); download it again.")
    if not isinstance(game, dict):
        refuse("the file holds no JSON object.")
    for key in ("pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"):
        if key not in game:
            refuse(f"the key {key!r} is missing.")
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game[key], str):
            refuse(f"{key!r} is not a text.")
    walkthrough = game["walkthrough"] or ()
    if not isinstance(walkthrough, list | tuple) or not all(isinstance(command, str) for command in walkthrough):
        refuse("'walkthrough' is not a list of commands.")
    sinks = _sinks(game["pddl_domain"])
    if sinks is None:
        refuse("the PDDL domain is not ALFWorld's.")
    task = _task(game["grammar"])
    if task is None:
        refuse("the grammar is not ALFWorld's.")
    try:
        return Game(
            path=path,
            task=task,
            walkthrough=tuple(walkthrough),
            solvable=game["solvable"] is True,
            **_tables(game["pddl_problem"], sinks),
        )
    except _Refused as error:
        refuse(str(error))


class _Refused(Exception):
    """What is wrong with a problem; becomes a GameFileError, which knows the file."""


# --- domain and grammar: the same in every game, so known by their fingerprints ------------------------------------
# What counts is what the official stack makes of them: comments, spacing, the order of actions and rules that no
# action of the domain reaches are free, so that games of other makers with ALFWorld's rules are welcome.

_SINKS_BY_DOMAIN = {
    # The domain in the dataset's files, and that of alfworld 0.4.2's own generator.
    "5fe3a14633e48bb3b62daedfd9665c1fe1801b9f8cff99707fce169ad9ff871f": ("sinktype", "sinkbasintype"),
    "793ddbe2231f92cf25ccaef8774a3d54d4bd57c3f6872dce93e8e17f7dd3bd91": ("sinkbasintype",),
}
_GRAMMARS = {
    # The same two; they differ in how the help text is written down.
    "d4c4a2a71c93c18c36c7cdc0aeaee108a42103c380541624295542c1f8c3baca",
    "0ae7d15878cb90c02dec11c17d8dd2df64193b624ba9c6638e80e0b2e9472c85",
}
_TASK = "Your task is to: "
_SENTENCE = re.compile(r"[A-Za-z0-9 ,.'!?()/-]+")
_ACTION = re.compile(
    r'\s*action\s+([\w/-]+)\s*\{\s*template\s*::\s*"([^"]*)"\s*;\s*feedback\s*::\s*"([^"]*)"\s*;'
    r'(?:\s*grammar\s*::\s*"""([^"]*(?:"{1,2}[^"]+)*+)"""\s*;)?\s*\}'
)
_RULES = re.compile(r'\s*grammar\s*::\s*"""([^"]*(?:"{1,2}[^"]+)*+)"""\s*;')
_REACHED_BY_LISTS = ("list_empty", "list_separator", "list_last_separator")


@lru_cache(maxsize=4)
def _sinks(domain: str) -> tuple[str, ...] | None:
    """The types of receptacles that clean, if a domain has exactly ALFWorld's types and actions; else None."""
    if len(domain) > MAX_TEXT:
        return None
    words = re.sub(r";[^\n]*", "", domain).lower().replace("(", " ( ").replace(")", " ) ").replace("?", " ?").split()
    forms, depth, begin = [], 0, 0
    for i, word in enumerate(words):
        if word == "(":
            depth += 1
            if depth == 2:
                begin = i
        elif word == ")":
            depth -= 1
            if depth == 1:
                forms.append(" ".join(words[begin : i + 1]))
            if depth <= 0 and i + 1 < len(words):
                return None
    if depth or words[:2] != ["(", "define"] or not forms or forms[0] != "( domain alfred )":
        return None
    kept = [form for form in forms[1:] if not form.startswith(("( :requirements ", "( :predicates ", "( :functions "))]
    return _SINKS_BY_DOMAIN.get(_fingerprint(sorted(kept)))


def _task(grammar: str) -> str | None:
    """The task sentence of a grammar that is ALFWorld's but for this sentence; else None."""
    before, marker, rest = grammar.partition(_TASK)
    task, quote, after = rest.partition('"')
    if marker and quote and _SENTENCE.fullmatch(task) and _is_grammar(before, after):
        return task
    return None


@lru_cache(maxsize=4)
def _is_grammar(before: str, after: str) -> bool:
    """Whether a grammar, given without its task sentence, says what ALFWorld's says for the actions of the domain."""
    text = f'{before}{_TASK}"{after}'.rstrip()
    if len(text) > MAX_TEXT:
        return False
    actions: dict[str, tuple[str, str]] = {}
    rules: dict[str, Any] = {}
    position = 0
    try:
        while position < len(text):
            if match := _RULES.match(text, position):
                rules |= json.loads(match[1])
            elif match := _ACTION.match(text, position):
                actions[match[1].lower()] = (match[2], match[3])
                rules |= json.loads(match[4] or "{}")
            else:
                return False
            position = match.end()
        said = {name: actions.get(name) for name in _ACTIONS}
        reached: dict[str, Any] = {}
        ahead = ["intro", *_REACHED_BY_LISTS, *re.findall("#([^#]+)#", json.dumps(said))]
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached[name] = rules.get(name)
                ahead += re.findall("#([^#]+)#", json.dumps(reached[name]))
        return _fingerprint([said, reached]) in _GRAMMARS
    except (ValueError, TypeError, RecursionError):
        return False


_ACTIONS = (
    "cleanobject",
    "closeobject",
    "coolobject",
    "examineobject",
    "examinereceptacle",
    "gotolocation",
    "heatobject",
    "help",
    "inventory",
    "look",
    "openobject",
    "pickupobject",
    "putobject",
    "sliceobject",
    "toggleobject",
)


def _fingerprint(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# --- problem ----------------------------------------------------------------------------------------------------

_PROBLEM = re.compile(
    r"\s*\(\s*define\s*\(\s*problem\s+[^\s()]+\s*\)\s*\(\s*:domain\s+alfred\s*\)"
    r"\s*\(\s*:objects\s([^()]*)\)\s*\(\s*:init\s"
)
_GOAL = re.compile(r"\)\s*\(\s*:goal\b")
_GOAL_SHAPES = {
    "pick_and_place_simple": "(exists(?r - receptacle)(exists(?o - object)(and(inreceptacle ?o ?r)"
    "(objecttype ?o OTYPE)(receptacletype ?r RTYPE))))",
    "pick_clean_then_place_in_recep": "(exists(?r - receptacle)(exists(?o - object)(and(cleanable ?o)"
    "(objecttype ?o OTYPE)(receptacletype ?r RTYPE)(isclean ?o)(inreceptacle ?o ?r))))",
    "pick_heat_then_place_in_recep": "(exists(?r - receptacle)(exists(?o - object)(and(heatable ?o)"
    "(objecttype ?o OTYPE)(receptacletype ?r RTYPE)(ishot ?o)(inreceptacle ?o ?r))))",
    "pick_cool_then_place_in_recep": "(exists(?r - receptacle)(exists(?o - object)(and(coolable ?o)"
    "(objecttype ?o OTYPE)(receptacletype ?r RTYPE)(iscool ?o)(inreceptacle ?o ?r))))",
    "pick_two_obj_and_place": "(exists(?r - receptacle)(exists(?o1 - object)(and(objecttype ?o1 OTYPE)"
    "(receptacletype ?r RTYPE)(inreceptacle ?o1 ?r)(exists(?o2 - object)(and(not(= ?o1 ?o2))"
    "(objecttype ?o2 OTYPE)(receptacletype ?r RTYPE)(inreceptacle ?o2 ?r))))))",
    "look_at_obj_in_light": "(exists(?ot - object ?r - receptacle ?a - agent ?l - location)"
    "(and(objecttype ?ot LTYPE)(toggleable ?ot)(istoggled ?ot)(receptacleatlocation ?r ?l)(atlocation ?a ?l)"
    "(inreceptacle ?ot ?r)))(exists(?o - object ?a - agent)(and(objecttype ?o OTYPE)(holds ?a ?o)))",
}


def _goal_pattern(shape: str) -> re.Pattern[str]:
    pattern = re.escape(f"(and{shape})))")  # and the ends of :goal and of the problem
    for name in ("OTYPE", "RTYPE", "LTYPE"):
        # The first mention names the type, the others have to name it again.
        pattern = pattern.replace(name, f"(?P<{name[0].lower()}>[^\\s()]+)", 1).replace(name, f"(?P={name[0].lower()})")
    return re.compile(pattern)


_GOALS = {kind: _goal_pattern(shape) for kind, shape in _GOAL_SHAPES.items()}
_GOAL_STATE = {
    "pick_clean_then_place_in_recep": ("cleanable", "clean"),
    "pick_heat_then_place_in_recep": ("heatable", "hot"),
    "pick_cool_then_place_in_recep": ("coolable", "cool"),
}

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


def _tables(problem: str, sinks: tuple[str, ...]) -> dict[str, Any]:
    """Everything that a game knows about its house and goal."""
    if not problem.isascii():
        raise _Refused("the problem holds characters that PDDL does not know.")
    if ";" in problem:
        problem = re.sub(r";[^\n]*", "", problem)
    problem = problem.lower()
    head = _PROBLEM.match(problem)
    goal_at = _GOAL.search(problem, head.end()) if head else None
    if head is None or goal_at is None:
        raise _Refused("the problem is not the PDDL of an ALFWorld game (domain, objects, facts, goal).")
    kinds = _kinds(head[1])
    facts = _facts(problem[head.end() : goal_at.start()], kinds)
    kind, goal_types = _goal(problem[goal_at.end() :], kinds)

    ids: dict[str, set[str]] = {"object": set(), "receptacle": set(), "location": set()}
    for predicate, rows in facts.items():
        for column, kind_of_column in enumerate(_SIGNATURES[predicate]):
            if kind_of_column in ids:
                ids[kind_of_column].update([row[column] for row in rows])
    if sum(map(len, ids.values())) > MAX_THINGS:
        raise _Refused(f"there are more than {MAX_THINGS} objects, receptacles and locations, more than in any house.")
    objects, receptacles, places = (sorted(ids[kind]) for kind in ("object", "receptacle", "location"))
    names = _names(objects + receptacles)
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
        raise _Refused("the player does not begin at exactly one place.")
    where, sort = dict(facts["receptacleatlocation"]), dict(facts["receptacletype"])
    if len(where) < len(facts["receptacleatlocation"]) or len(sort) < len(facts["receptacletype"]):
        raise _Refused("a receptacle has more than one place or type.")
    if missing := [word for word in receptacles if word not in where or word not in sort]:
        raise _Refused(f"the receptacle {missing[0]} has no place or no type.")

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
    ability, state = _GOAL_STATE.get(kind, ("", ""))
    return {
        "task_type": kind,
        "objects": tuple([names[word] for word in objects]),
        "receptacles": tuple([names[word] for word in receptacles]),
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
        raise _Refused(f"{Counter(ids).most_common(1)[0][0]} is declared twice.")
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
        raise _Refused(f"{ids[-1]} is declared without a type.")
    return ids, types


def _facts(text: str, kinds: Mapping[str, str]) -> defaultdict[str, set[tuple[str, str]]]:
    """The facts that hold at the start by predicate, each once: files repeat them. The second of one is ""."""
    *pieces, rest = text.split(")")
    if rest.strip() or text.count("(") != len(pieces):
        raise _Refused("the facts are not a list of (predicate id) and (predicate id id).")
    facts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for piece in set(pieces):
        words = piece.split()
        if words and words[0] == "(":
            words[:2] = ["".join(words[:2])]
        if not 2 <= len(words) <= 3 or words[0][0] != "(":
            raise _Refused(f"{piece.strip()[:80]!r} is no fact of ALFWorld's.")
        facts[words[0][1:]].add((words[1], words[2] if len(words) == 3 else ""))
    for predicate, rows in facts.items():
        if predicate not in _SIGNATURES:
            raise _Refused(f"the fact {predicate[:80]!r} is none of ALFWorld's.")
        for column, kind in zip(zip(*rows, strict=True), (*_SIGNATURES[predicate], None), strict=False):
            if set(map(kinds.get, column)) != {kind}:  # no id has the kind None, and none is needed for ""
                strange = next(word for word in column if kinds.get(word) != kind)
                raise _Refused(f"the fact {predicate} names {strange[:80]!r}, which is no {kind or 'second id'} here.")
    return facts


def _goal(text: str, kinds: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The task type and the types that the goal speaks of: o(bject), r(eceptacle), l(amp)."""
    goal = re.sub(r" ?([()]) ?", r"\1", " ".join(text.split())) if len(text) <= MAX_GOAL else ""
    for kind, pattern in _GOALS.items():
        if match := pattern.fullmatch(goal):
            found = match.groupdict()
            for name, word in found.items():
                if kinds.get(word) != ("rtype" if name == "r" else "otype"):
                    raise _Refused(f"the goal names the unknown type {word}.")
            return kind, found
    raise _Refused("the goal is not that of one of the six tasks.")


def _names(ids: list[str]) -> dict[str, str]:
    """The names that the player reads: within the ids of one base the first gets the highest number."""
    bases: dict[str, str] = {}
    names: dict[str, str] = {}
    for word in sorted(ids):
        if not word.isidentifier():
            raise _Refused(f"the id {word[:80]!r} holds other characters than letters, digits and _.")
        base, separator, _ = word.partition("_bar_")
        if separator:
            bases[word] = base + "basin" if "basin" in word else base
        else:
            names[word] = _decoded(word) + " "  # the place of the number stays, and the space before it
    left = Counter(bases.values())
    for word, base in bases.items():
        if "_" in base and base != _decoded(base):
            raise _Refused(f"the name of {word} is none of ALFWorld's.")  # the official stack finds no number for it
        names[word] = f"{base} {left[base]}"
        left[base] -= 1
    return names


def _decoded(word: str) -> str:
    return word.replace("_minus_", "-").replace("_plus_", "+").replace("_dot_", ".").replace("_comma_", ",")


def bits(mask: int) -> Iterator[int]:
    """The numbers in a set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

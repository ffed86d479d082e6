"""New houses and tasks, drawn from how ALFWorld's train houses are furnished. Text and files are `generate.py`'s."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

ROOMS = {0: "kitchen", 2: "living room", 3: "bedroom", 4: "bathroom"}
"""What the hundreds of a floor plan's number stand for."""

PROPERTIES = ("cleanable", "coolable", "heatable", "isReceptacleObject", "pickupable", "sliceable", "toggleable")
"""What objects of a type can be, as PDDL names it."""

LAMP = "DeskLamp"
"""The lamp of every look task in ALFWorld's train split."""

TOOL = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}
"""What a task needs besides its object and its receptacle."""

_QUALITY = {
    "pick_clean_then_place_in_recep": "cleanable",
    "pick_heat_then_place_in_recep": "heatable",
    "pick_cool_then_place_in_recep": "coolable",
}
"""What a task needs its object to be."""

_NOISE = 0.016  # real games: share of (object, receptacle) pairs whose objectAtLocation is not the receptacle's
_PRE_COOLED = 0.04  # real games: share of things in a fridge that begin cool
_NESTED = 0.17  # real games: share of games that have something in a bowl, pot, ...
_NOVEL = 0.2  # share of tasks whose object and receptacle need not be a pair that a train game has
_REMIXED = 0.35  # how often a type's count is drawn anew instead of taken from the floor plan
_HEIGHT = {"Cabinet": (0.4, 2.1), "Drawer": (0.1, 1.0), "Shelf": (0.3, 1.8), "CounterTop": (0.9, 1.0)}


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A piece of furniture at the place where the player stands to use it."""

    id: str
    type: str
    location: str


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, in how many receptacles it lies (mostly one), and the place from which it is in view."""

    id: str
    type: str
    inside: tuple[Receptacle, ...]
    location: str


@dataclass(frozen=True, slots=True)
class House:
    """A floor plan: what stays the same in all games that are played there."""

    room: str
    scene: int
    receptacles: tuple[Receptacle, ...]
    fixtures: tuple[Thing, ...]

    def of_type(self, kind: str) -> list[Receptacle]:
        return [receptacle for receptacle in self.receptacles if receptacle.type == kind]


@dataclass(frozen=True, slots=True)
class Task:
    """`target` and `destination` are types; a look task's destination is its lamp."""

    type: str
    target: str
    destination: str

    @property
    def needed(self) -> int:
        return 2 if self.type == "pick_two_obj_and_place" else 1


@dataclass(frozen=True, slots=True)
class Setting:
    """A house with a task and everything where it lies when the game begins."""

    house: House
    task: Task
    things: tuple[Thing, ...]
    start: str
    cool: tuple[Thing, ...] = ()
    nested: tuple[tuple[Thing, Thing], ...] = ()
    spare_locations: tuple[str, ...] = ()

    def candidates(self) -> list[Thing]:
        """The things of the task's type that can be taken."""
        return [thing for thing in self.things if thing.type == self.task.target and thing.inside]


@cache
def facts() -> Mapping[str, Any]:
    """`data/houses.json`; see `survey.survey` for its fields."""
    content: Mapping[str, Any] = json.loads((files(__package__) / "data" / "houses.json").read_text("utf-8"))
    return content


def has(kind: str, name: str) -> bool:
    """Whether objects of a type have a property ("pickupable", "cleanable", ...)."""
    return name in facts()["objects"][kind]


def rooms_for(task_type: str) -> dict[str, int]:
    """The rooms that have tasks of a type, weighted."""
    weights = {room: sum(table["tasks"].get(task_type, {}).values()) for room, table in facts()["rooms"].items()}
    return {room: weight for room, weight in weights.items() if weight}


@dataclass(slots=True)
class _Ground:
    """Coordinates and standing places not yet used in a house, so that every id is its own."""

    random: Random
    width: float
    depth: float
    used: set[str] = field(default_factory=set)

    def place(self, kind: str, near: str | None = None) -> str:
        while True:
            if near is None:
                low, high = _HEIGHT.get(kind, (0.0, 1.0))
                x, z = self.random.uniform(-self.width, self.width), self.random.uniform(-self.depth, self.depth)
                y = self.random.uniform(low, high)
            else:
                x, y, z = (float(part) for part in near.split("|")[1:4])
                x, z = x + self.random.uniform(-0.4, 0.4), z + self.random.uniform(-0.3, 0.3)
                y += self.random.uniform(0.0, 0.1)
            base = kind.removesuffix("Basin")
            name = f"{base}|{x:+06.2f}|{y:+06.2f}|{z:+06.2f}" + (f"|{kind}" if base != kind else "")
            if name not in self.used:
                self.used.add(name)
                return name

    def location(self) -> str:
        while True:
            x = self.random.randint(round(-4 * self.width), round(4 * self.width))
            z = self.random.randint(round(-4 * self.depth), round(4 * self.depth))
            turn, tilt = self.random.randrange(4), self.random.choice((-30, 15, 30, 45, 45, 60, 60, 60))
            name = f"loc|{x}|{z}|{turn}|{tilt}"
            if name not in self.used:
                self.used.add(name)
                return name


def new_house(room: str, scene: int, random: Random) -> House:
    """A floor plan of a kind of room that no real one need be: counts, sharing and fixtures are drawn."""
    table = facts()["rooms"][room]
    ground = _Ground(random, random.uniform(1.5, 4.0), random.uniform(1.5, 4.0))
    profiles: Sequence[Mapping[str, int]] = table["receptacles"]
    counts = dict(random.choice(profiles))
    for kind in sorted({kind for profile in profiles for kind in profile}):
        if random.random() < _REMIXED:
            counts[kind] = random.choice(profiles).get(kind, 0)
        if counts.get(kind, 0) > 4:
            counts[kind] += random.randint(-2, 2)
    receptacles: list[Receptacle] = []
    for kind in sorted(counts):
        for _ in range(counts[kind]):
            shared = _draw(random, table["shares"][kind])
            beside = [receptacle for receptacle in receptacles if receptacle.type == shared]
            if beside:
                neighbour = random.choice(beside)
                place, location = ground.place(kind, near=neighbour.id), neighbour.location
            else:
                place, location = ground.place(kind), ground.location()
            receptacles.append(Receptacle(place, kind, location))
    house = House(room, scene, tuple(receptacles), ())
    fixtures: list[Thing] = []
    for kind, histogram in table["objects"].items():
        if has(kind, "pickupable"):
            continue
        count = _count(random, histogram)
        # Houses where people sleep or sit have a lamp to look at things in, or they would have no such task.
        if kind == LAMP and "look_at_obj_in_light" in table["tasks"]:
            count = max(count, 1)
        for _ in range(count):
            fixtures += _placed(random, ground, house, kind, hidden=kind != LAMP) or []
    return House(room, scene, house.receptacles, tuple(fixtures))


def new_task(house: House, task_type: str, random: Random) -> Task | None:
    """A task that ALFWorld has in this kind of room and that the house's furniture allows, or None."""
    present = {receptacle.type for receptacle in house.receptacles}
    present |= {thing.type for thing in house.fixtures if thing.inside}
    if TOOL.get(task_type, LAMP if task_type == "look_at_obj_in_light" else None) not in {None, *present}:
        return None
    pairs = list(facts()["rooms"][house.room]["tasks"].get(task_type, {}))
    if pairs and random.random() < _NOVEL:
        pairs = _conceivable(house, task_type)
    pairs = [pair for pair in pairs if pair.partition(">")[2] in present]
    if not pairs:
        return None
    target, _, destination = random.choice(pairs).partition(">")
    return Task(task_type, target, destination)


def _conceivable(house: House, task_type: str) -> list[str]:
    """All pairs of an object that is usual in the room and a receptacle of the house that can hold it, or the lamp."""
    needed = _QUALITY.get(task_type, "pickupable")
    targets = [
        kind for kind in facts()["rooms"][house.room]["objects"] if has(kind, "pickupable") and has(kind, needed)
    ]
    if task_type == "look_at_obj_in_light":
        return [f"{target}>{LAMP}" for target in targets]
    kinds = sorted({receptacle.type for receptacle in house.receptacles})
    return [f"{o}>{r}" for o in targets for r in kinds if o in facts()["can_contain"].get(r, ())]


def new_setting(house: House, task: Task, random: Random) -> Setting | None:
    """Furnish a house with movable things so that the task is open and can be done, or None if it cannot."""
    table = facts()["rooms"][house.room]
    used = {name for receptacle in house.receptacles for name in (receptacle.id, receptacle.location)}
    used |= {name for thing in house.fixtures for name in (thing.id, thing.location)}
    ground = _Ground(random, 4.0, 4.0, used)
    things = list(house.fixtures)
    for kind, histogram in table["objects"].items():
        if not has(kind, "pickupable"):
            continue
        count = _count(random, histogram)
        if kind != task.target:
            for _ in range(count):
                things += _placed(random, ground, house, kind) or []
            continue
        # Nothing of the task may be done when it begins, as in the real games.
        avoid = task.destination if task.type in ("pick_and_place_simple", "pick_two_obj_and_place") else ""
        # ... which have more of what is looked for than other games do.
        more = random.choices((0, 1, 2, 3), (4, 3, 2, 1))[0] // task.needed
        for n in range(max(count, task.needed + more)):
            placed = _placed(random, ground, house, kind, hidden=n >= task.needed, avoid=avoid)
            if placed is None:
                return None
            things += placed
    cool = tuple(
        thing
        for thing in things
        if has(thing.type, "coolable")
        and any(receptacle.type == "Fridge" for receptacle in thing.inside)
        and random.random() < _PRE_COOLED
        and not (task.type == "pick_cool_then_place_in_recep" and thing.type == task.target)
    )
    nested = _nested(random, things) if random.random() < _NESTED else ()
    spare = tuple(ground.location() for _ in range(2))
    return Setting(house, task, tuple(things), spare[0], cool, nested, spare)


def _placed(
    random: Random, ground: _Ground, house: House, kind: str, *, hidden: bool = True, avoid: str = ""
) -> list[Thing] | None:
    """One object of a type where such objects usually are; None where the house has no such place.

    `hidden`: it may be in no receptacle, out of the player's reach, as some are. `avoid`: a type not to put it in.
    """
    amount: dict[str, int] = {}
    for receptacle in house.receptacles:
        amount[receptacle.type] = amount.get(receptacle.type, 0) + 1
    allowed = {}
    for place, weight in facts()["rooms"][house.room]["places"].get(kind, {}).items():
        wanted = place.split("+") if place else []
        if (wanted or hidden) and avoid not in wanted and all(amount.get(r, 0) >= wanted.count(r) for r in wanted):
            allowed[place] = weight
    if not allowed:
        return None
    place = _draw(random, allowed)
    inside: list[Receptacle] = []
    for receptacle_type in place.split("+") if place else ():
        inside.append(random.choice([r for r in house.of_type(receptacle_type) if r not in inside]))
    as_usual = inside and random.random() >= _NOISE
    location = inside[0].location if as_usual else ground.location()
    return [Thing(ground.place(kind, near=inside[0].id if inside else None), kind, tuple(inside), location)]


def _nested(random: Random, things: Sequence[Thing]) -> tuple[tuple[Thing, Thing], ...]:
    """Something lying in a bowl, pot, ... that stands in the same receptacle; it can be taken from there as well."""
    pairs = [
        (inner, outer)
        for outer in things
        for inner in things
        if inner is not outer
        and outer.inside
        and inner.inside == outer.inside
        and has(outer.type, "isReceptacleObject")
        and has(inner.type, "pickupable")
    ]
    return (random.choice(pairs),) if pairs else ()


def _count(random: Random, histogram: Sequence[int]) -> int:
    return random.choices(range(len(histogram)), histogram)[0]


def _draw(random: Random, weights: Mapping[str, int]) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


def pddl_name(name: str) -> str:
    """ALFRED's id ("Egg|+00.10|-01.20|+02.00") as the game files spell it."""
    return name.replace("|", "_bar_").replace("+", "_plus_").replace("-", "_minus_").replace(".", "_dot_")


def player_names(names: Iterable[str]) -> dict[str, str]:
    """What the player reads ("egg 2") for each id: within a base name, numbers run against the ids' order."""
    bases: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: pddl_name(name).lower()):
        raw = pddl_name(name).lower()
        bases.setdefault(raw.partition("_bar_")[0] + ("basin" if "basin" in raw else ""), []).append(name)
    return {name: f"{base} {len(same) - i}" for base, same in bases.items() for i, name in enumerate(same)}

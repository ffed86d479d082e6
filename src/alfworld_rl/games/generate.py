"""New games in ALFWorld's own file format: houses, tasks, and walkthroughs that win them."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from itertools import count, permutations
from pathlib import Path
from random import Random

from alfworld_rl.config.workspace import RELEASE
from alfworld_rl.errors import UsageError
from alfworld_rl.games.discovery import GAME_FILE, SPLITS, TRAJECTORY_FILE
from alfworld_rl.games.houses import (
    LAMP,
    PROPERTIES,
    ROOMS,
    TOOL,
    House,
    Receptacle,
    Setting,
    Thing,
    facts,
    has,
    new_house,
    new_setting,
    new_task,
    pddl_name,
    player_names,
    rooms_for,
)
from alfworld_rl.games.progress import with_progress
from alfworld_rl.games.task_types import TASK_TYPES, TASKS

VERSION = 1
"""Of what a seed makes; a change here keeps old folders from being mixed with new games."""

_GAMES_PER_BLOCK = 2 * len(TASK_TYPES)  # one house of each kind of room serves this many games
_UNSEEN = 50_000  # floor plans of valid_unseen are numbered from here, those of train from 1


@dataclass(frozen=True, slots=True)
class GameFiles:
    """A new game: `game_id` is the path of its folder under json_2.1.1, the rest the content of its two files."""

    game_id: str
    game: str
    trajectory: str


def generate(data_root: Path, *, train: int, valid_seen: int, valid_unseen: int, seed: int) -> dict[str, int]:
    """Write new games under `data_root`, in the layout and format of ALFWorld's release; returns the count by split.

    Games of valid_seen play in houses of train, those of valid_unseen in houses of their own. A seed always makes
    the same files, byte for byte, and the first games of train and valid_unseen are the same whatever their number.
    Asking again for the same games in the same folder is harmless, and completes them if it was interrupted.

    Raises UsageError if the counts make no sense, or if `data_root` holds other games or cannot be written.
    """
    counts = {"train": train, "valid_seen": valid_seen, "valid_unseen": valid_unseen}
    wrong = [f"--{split.replace('_', '-')} {count}" for split, count in counts.items() if not 0 <= count < 100_000]
    if wrong:
        raise UsageError(f"The number of games must be from 0 to 99,999, not {', '.join(wrong)}.")
    if not any(counts.values()):
        raise UsageError("Ask for at least one game, for example with --train 100.")
    if valid_seen and not train:
        raise UsageError("Games of valid_seen play in houses of train: ask for train games, too.")
    try:
        _claim(Path(data_root), {"version": VERSION, "seed": seed, **counts})
        games = new_games(train=train, valid_seen=valid_seen, valid_unseen=valid_unseen, seed=seed)
        for new in with_progress(games, sum(counts.values()), "Making games"):
            folder = Path(data_root) / RELEASE / new.game_id
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / TRAJECTORY_FILE, new.trajectory)
            _write(folder / GAME_FILE, new.game)
    except OSError as error:
        raise UsageError(f"Cannot write games to {error.filename or data_root}: {error.strerror}.") from error
    return counts


def new_games(*, train: int, valid_seen: int, valid_unseen: int, seed: int) -> Iterator[GameFiles]:
    """The games that `generate` writes, in order."""
    seen: dict[str, list[House]] = {}
    for i in range(train):
        setting = _new_game(seed, "train", i, _block(seed, i // _GAMES_PER_BLOCK))
        if setting.house not in seen.setdefault(setting.house.room, [])[-1:]:
            seen[setting.house.room].append(setting.house)
        yield _files(setting, seed, "train", i)
    for i in range(valid_seen):
        yield _files(_new_game(seed, "valid_seen", i, seen), seed, "valid_seen", i)
    for i in range(valid_unseen):
        setting = _new_game(seed, "valid_unseen", i, _block(seed, _UNSEEN + i // _GAMES_PER_BLOCK))
        yield _files(setting, seed, "valid_unseen", i)


@lru_cache(maxsize=2)
def _block(seed: int, number: int) -> dict[str, list[House]]:
    """One house of each kind of room."""
    return {
        room: [new_house(room, 100_000 * hundreds + 1_000 + number, Random(f"{seed}/house/{room}/{number}"))]
        for hundreds, room in ROOMS.items()
    }


def _new_game(seed: int, split: str, number: int, houses: Mapping[str, Sequence[House]]) -> Setting:
    """Draw the game's task, house and things; six games in a row have six task types."""
    turn, place = divmod(number, len(TASK_TYPES))
    types = list(TASK_TYPES)
    Random(f"{seed}/{split}/types/{turn}").shuffle(types)
    random = Random(f"{seed}/{split}/{number}")
    for attempt in count():
        # Few houses may have no room for a type (train has one game, in a kitchen: nowhere to look at things).
        task_type = types[place] if attempt < 50 else random.choice(TASK_TYPES)
        weights = {room: weight for room, weight in rooms_for(task_type).items() if room in houses}
        if not weights:
            continue
        house = random.choice(houses[random.choices(list(weights), list(weights.values()))[0]])
        task = new_task(house, task_type, random)
        setting = task and new_setting(house, task, random)
        if setting:
            return setting
    raise AssertionError  # count() has no end


# --- files ------------------------------------------------------------------------------------------------------


def _files(setting: Setting, seed: int, split: str, number: int) -> GameFiles:
    task, house = setting.task, setting.house
    random = Random(f"{seed}/{split}/{number}/text")
    trial = f"trial_T{seed % 10**8:08d}_{number:06d}_{random.randrange(10**6):06d}"
    sentence = random.choice(TASKS[task.type].sentences).format(
        target=task.target.lower(), destination=task.destination.lower()
    )
    game = {
        "pddl_domain": _text("domain.pddl"),
        "grammar": _text("grammar.twl2").replace("UNKNOWN GOAL.", sentence),
        "pddl_problem": _problem(setting, trial),
        "solvable": True,
        "walkthrough": walkthrough(setting),
    }
    look = task.type == "look_at_obj_in_light"
    trajectory = {
        "task_id": trial,
        "task_type": task.type,
        "pddl_params": {
            "object_target": task.target,
            "object_sliced": False,
            "mrecep_target": "",
            "parent_target": task.destination,
            "toggle_target": task.destination if look else "",
        },
        "scene": {"floor_plan": f"FloorPlan{house.scene}", "scene_num": house.scene},
    }
    folder = f"{task.type}-{task.target}-None-{task.destination}-{house.scene}"
    return GameFiles(f"{split}/{folder}/{trial}", json.dumps(game), json.dumps(trajectory))


@cache
def _text(name: str) -> str:
    return (files(__package__) / "data" / name).read_text("utf-8")


def _problem(setting: Setting, trial: str) -> str:
    """The house as PDDL: what ALFWorld's problems have in common, then ids, facts and the goal."""
    house, things, task = setting.house, setting.things, setting.task
    can_contain = facts()["can_contain"]
    present = sorted({thing.type for thing in things})
    locations = {r.location for r in house.receptacles} | {t.location for t in things} | set(setting.spare_locations)
    declared = [(thing.id, "object") for thing in sorted(things, key=lambda thing: thing.id)]
    declared += [(receptacle.id, "receptacle") for receptacle in house.receptacles]
    declared += [(location, "location") for location in sorted(locations)]

    init: list[tuple[str, ...]] = [("receptacleType", r.id, f"{r.type}Type") for r in house.receptacles]
    init += [("objectType", thing.id, f"{thing.type}Type") for thing in things]
    init += [
        ("canContain", f"{kind}Type", f"{content}Type")
        for kind in sorted({receptacle.type for receptacle in house.receptacles})
        for content in can_contain.get(kind, ())
        if content in present
    ]
    init += [(name, thing.id) for name in PROPERTIES for thing in things if has(thing.type, name)]
    init += [("openable", r.id) for r in house.receptacles if r.type in facts()["openable"]]
    init += [("atLocation", "agent1", setting.start)]
    init += [("isCool", thing.id) for thing in setting.cool]
    init += [("inReceptacle", thing.id, r.id) for thing in things for r in thing.inside]
    init += [("inReceptacleObject", inner.id, outer.id) for inner, outer in setting.nested]
    init += [("receptacleAtLocation", r.id, r.location) for r in house.receptacles]
    init += [("objectAtLocation", thing.id, thing.location) for thing in things]

    indent = "\n        "
    objects = indent.join(f"{pddl_name(name)} - {kind}" for name, kind in declared)
    initial = indent.join(f"({' '.join((fact[0], *map(pddl_name, fact[1:])))})" for fact in init)
    goal = TASKS[task.type].goal.format(target=task.target, destination=task.destination)
    return (
        f"{_text('problem-head.pddl').replace('plan_TRIAL', f'plan_{trial}')}        {objects}{indent})\n"
        f"\n(:init\n        {initial}{indent})\n\n(:goal{indent}(and {goal})){indent})\n"
    )


# --- walkthroughs -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Walk:
    """A player who knows the house, and the commands so far."""

    names: Mapping[str, str]
    location: str
    opened: set[Receptacle] = field(default_factory=set)
    commands: list[str] = field(default_factory=list)

    def go(self, receptacle: Receptacle, *, and_open: bool = True) -> None:
        if self.location != receptacle.location:
            self.location = receptacle.location
            self.commands.append(f"go to {self.names[receptacle.id]}")
        if and_open and receptacle.type in facts()["openable"] and receptacle not in self.opened:
            self.opened.add(receptacle)
            self.commands.append(f"open {self.names[receptacle.id]}")

    def take(self, thing: Thing) -> None:
        source = thing.inside[0]
        self.go(source)
        self.commands.append(f"take {self.names[thing.id]} from {self.names[source.id]}")

    def use_tool(self, verb: str, thing: Thing, tool: Receptacle) -> None:
        self.go(tool, and_open=False)  # a closed fridge cools as well
        self.commands.append(f"{verb} {self.names[thing.id]} with {self.names[tool.id]}")

    def put(self, thing: Thing, receptacle: Receptacle) -> None:
        self.go(receptacle)
        self.commands.append(f"move {self.names[thing.id]} to {self.names[receptacle.id]}")


def walkthrough(setting: Setting) -> list[str]:
    """The shortest way to do the task, its objects taken and brought one after the other."""
    names = player_names([*(r.id for r in setting.house.receptacles), *(thing.id for thing in setting.things)])
    ways = (
        _walk(setting, _Walk(names, setting.start), chosen, place)
        for chosen in permutations(setting.candidates(), setting.task.needed)
        for place in _destinations(setting)
    )
    return min(ways, key=len)


def _destinations(setting: Setting) -> list[Receptacle]:
    """Where the task can end: receptacles of its type, or those with a lamp."""
    if setting.task.type == "look_at_obj_in_light":
        return [r for thing in setting.house.fixtures if thing.type == LAMP for r in thing.inside]
    return setting.house.of_type(setting.task.destination)


def _walk(setting: Setting, walk: _Walk, chosen: Sequence[Thing], place: Receptacle) -> list[str]:
    task = setting.task
    for thing in chosen:
        walk.take(thing)
        if task.type == "look_at_obj_in_light":
            walk.go(place, and_open=False)
            lamp = next(thing for thing in setting.house.fixtures if thing.type == LAMP and place in thing.inside)
            walk.commands.append(f"use {walk.names[lamp.id]}")
            break
        if task.type in TOOL:
            verb = task.type.split("_")[1]  # clean, heat, cool
            walk.use_tool(verb, thing, setting.house.of_type(TOOL[task.type])[0])
            if any(other.type == task.destination for other in thing.inside[1:]):
                break  # what lies in two receptacles stays listed in the second one
        walk.put(thing, place)
    return walk.commands


# --- the folder -------------------------------------------------------------------------------------------------


def _claim(data_root: Path, settings: Mapping[str, int]) -> None:
    """Write down what the data root is for, or refuse it if it is for something else."""
    note = data_root / RELEASE / "generated.json"
    if note.exists():
        try:
            earlier = json.loads(note.read_text(encoding="utf-8"))
        except ValueError:
            earlier = None
        if earlier != settings:
            raise UsageError(
                f"{data_root} holds games generated with other settings ({earlier}): "
                "choose another --data-root, or remove that folder first."
            )
        return
    for split in SPLITS:
        folder = data_root / RELEASE / split
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} holds games that were not generated: choose another --data-root.")
    note.parent.mkdir(parents=True, exist_ok=True)
    _write(note, json.dumps(settings) + "\n")


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and not again what is there already."""
    data = text.encode()
    if path.exists() and path.read_bytes() == data:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    os.replace(draft, path)

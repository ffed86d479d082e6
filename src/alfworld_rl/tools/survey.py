"""How ALFWorld's houses are furnished: counts taken from the train split, for the generator to draw from.

`python -m alfworld_rl.tools.survey DATA_ROOT` rewrites `data/houses.json`. It reads train games only, so that
nothing of the games that measure a policy reaches the games that teach it.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from alfworld_rl.games.discovery import discover
from alfworld_rl.games.houses import PROPERTIES, ROOMS

_FACT = re.compile(r"\(([A-Za-z]+)((?: [^()\s]+)*)\)")


def survey(data_root: Path) -> dict[str, Any]:
    """The facts that `generate` draws from. Types are written without the suffix "Type".

    openable: receptacle types that open.  can_contain: receptacle type -> object types that may be put there.
    objects: object type -> its properties.  rooms: for each kind of room
      receptacles: a house's receptacle types and counts, one entry a floor plan;
      shares: receptacle type -> how often it has a location of its own ("") or that of an earlier receptacle's type;
      objects: object type -> histogram of its count in a house (index 0: none);
      places: object type -> how often in which receptacles ("": none; "A+B": in both at once);
      tasks: task type -> "object>receptacle" -> count.
    """
    openable: Counter[tuple[str, bool]] = Counter()
    can_contain: defaultdict[str, set[str]] = defaultdict(set)
    properties: defaultdict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    profiles: dict[str, dict[int, dict[str, int]]] = {room: {} for room in ROOMS.values()}
    shares: dict[str, Any] = {room: defaultdict(Counter) for room in ROOMS.values()}
    counts: dict[str, list[Counter[str]]] = {room: [] for room in ROOMS.values()}
    places: dict[str, Any] = {room: defaultdict(Counter) for room in ROOMS.values()}
    tasks: dict[str, Any] = {room: defaultdict(Counter) for room in ROOMS.values()}

    for game in discover(data_root, "train").games:
        task_type, target, _, destination, scene = game.path.parent.parent.name.split("-")
        room = ROOMS[int(scene) // 100]
        facts = dict(_facts(json.loads(game.path.read_bytes())["pddl_problem"]))
        kinds = {thing: kind.removesuffix("Type") for thing, kind in facts["objectType"] | facts["receptacleType"]}
        objects = sorted(thing for thing, _ in facts["objectType"])
        receptacles = sorted(thing for thing, _ in facts["receptacleType"])

        tasks[room][task_type][f"{target}>{destination}"] += 1
        counts[room].append(Counter(kinds[thing] for thing in objects))
        for thing in objects:
            total[kinds[thing]] += 1
            properties[kinds[thing]].update(name for name in PROPERTIES if (thing,) in facts.get(name, ()))
            inside = sorted(kinds[r] for o, r in facts["inReceptacle"] if o == thing)
            places[room][kinds[thing]]["+".join(inside)] += 1
        for receptacle, content in facts["canContain"]:
            can_contain[receptacle.removesuffix("Type")].add(content.removesuffix("Type"))
        openable.update((kinds[r], (r,) in facts.get("openable", ())) for r in receptacles)
        if int(scene) not in profiles[room]:  # the furniture of a floor plan is the same in all its games
            profiles[room][int(scene)] = dict(sorted(Counter(kinds[r] for r in receptacles).items()))
            first_at: dict[str, str] = {}
            for receptacle, location in sorted(facts["receptacleAtLocation"]):
                shares[room][kinds[receptacle]][first_at.get(location, "")] += 1
                first_at.setdefault(location, kinds[receptacle])

    return {
        "openable": sorted(kind for kind, yes in openable if yes and openable[kind, True] > openable[kind, False]),
        "can_contain": {kind: sorted(content) for kind, content in sorted(can_contain.items())},
        "objects": {
            kind: [name for name in PROPERTIES if properties[kind][name] > total[kind] / 2] for kind in sorted(total)
        },
        "rooms": {
            room: {
                "receptacles": [profiles[room][scene] for scene in sorted(profiles[room])],
                "shares": _plain(shares[room]),
                "objects": {
                    kind: _histogram(counts[room], kind) for kind in sorted({k for c in counts[room] for k in c})
                },
                "places": _plain(places[room]),
                "tasks": _plain(tasks[room]),
            }
            for room in ROOMS.values()
        },
    }


def _facts(problem: str) -> Iterator[tuple[str, set[Any]]]:
    found: defaultdict[str, set[Any]] = defaultdict(set)
    for match in _FACT.finditer(problem, problem.index("(:init"), problem.index("(:goal")):
        found[match[1]].add(tuple(match[2].split()))
    yield from found.items()


def _histogram(houses: list[Counter[str]], kind: str) -> list[int]:
    count = Counter(house[kind] for house in houses)
    return [count[n] for n in range(max(count) + 1)]


def _plain(table: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {kind: dict(sorted(counter.items())) for kind, counter in sorted(table.items())}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = json.dumps(survey(Path(sys.argv[1])), indent=1)
    text = re.sub(r"\n {4,}|\n {3}(?=[\]}])", " ", text)  # a line an entry, so that a change can be read
    Path(str(files("alfworld_rl.games") / "data" / "houses.json")).write_text(text + "\n", encoding="utf-8")

"""Where ALFWorld's houses keep things, learned from the games of the train split only.

The table beside this file gives, for an object type and a receptacle type, the worth of looking there: the share of
such receptacles that held such an object, among games whose house had one, divided by the commands it takes to look
(two where it has to be opened). It is made again with

    python -m alfworld_rl.imitation.expert_places DATA_ROOT
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

_TABLE = "expert_places.json"

# An object type that the table does not know is looked for where things are found in general.
_ANYTHING = "*"


@cache
def _table() -> Mapping[str, Mapping[str, float]]:
    table: dict[str, dict[str, float]] = json.loads(files("alfworld_rl.imitation").joinpath(_TABLE).read_text("utf-8"))
    return table


def worth(object_type: str, receptacle_type: str) -> float:
    """How much a look into a receptacle of this type promises, per command; above 0, never above 1."""
    table = _table()
    general = table[_ANYTHING].get(receptacle_type, 0.0)
    # The general share only breaks ties among places where the object was never seen.
    return table.get(object_type, table[_ANYTHING]).get(receptacle_type, 0.0) + 1e-4 * general + 1e-6


_FACT = re.compile(r"\((\w+) (\w+)(?: (\w+))?\s*\)")


def _type(raw: str) -> str:
    return raw.partition("_bar_")[0] + ("basin" if "basin" in raw else "")


def learn(game_files: Iterable[Path]) -> dict[str, dict[str, float]]:
    """Count the table from game files; for each object type, receptacle types by falling worth."""
    held: dict[tuple[str, str], int] = defaultdict(int)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    openable: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path in game_files:
        problem = json.loads(path.read_text("utf-8"))["pddl_problem"].lower()
        facts = set(_FACT.findall(problem[problem.index("(:init") : problem.index("(:goal")]))
        receptacles = {subject for relation, subject, _ in facts if relation == "receptacletype"}
        to_open = {subject for relation, subject, _ in facts if relation == "openable"}
        # What can be taken or switched on is what a player ever looks for.
        things = {subject for relation, subject, _ in facts if relation in ("pickupable", "toggleable")}
        contents: dict[str, set[str]] = {receptacle: set() for receptacle in receptacles}
        for relation, subject, place in facts:
            if relation == "inreceptacle" and subject in things and place in contents:
                contents[place].add(_type(subject))
        present = set().union(*contents.values()) if contents else set()
        for receptacle, kinds in contents.items():
            place = _type(receptacle)
            openable[place][0] += receptacle in to_open
            openable[place][1] += 1
            seen[_ANYTHING, place] += len(present)
            held[_ANYTHING, place] += len(kinds)
            for kind in present:
                seen[kind, place] += 1
                held[kind, place] += kind in kinds
    table: dict[str, dict[str, float]] = defaultdict(dict)
    for (kind, place), count in held.items():
        opened, total = openable[place]
        share = round(count / seen[kind, place] / (1 + opened / total), 4)
        if share > 0:
            table[kind][place] = share
    return {
        kind: dict(sorted(places.items(), key=lambda entry: (-entry[1], entry[0])))
        for kind, places in sorted(table.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn where things usually are from the games of the train split.")
    parser.add_argument("data_root", type=Path)
    arguments = parser.parse_args()
    games = sorted((arguments.data_root / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    table = learn(games)
    lines = ",\n".join(f" {json.dumps(kind)}: {json.dumps(places)}" for kind, places in table.items())
    (Path(__file__).parent / _TABLE).write_text("{\n" + lines + "\n}\n", "utf-8")
    print(f"Learned the places of {len(table) - 1} object types from {len(games)} train games.")


if __name__ == "__main__":
    main()

"""The six kinds of task of ALFWorld's text games: everything that is said of them, said once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_PLACE = "(exists (?r - receptacle) (exists (?o - object) (and {conditions})))"
_TYPES = "(objectType ?o {target}Type) (receptacleType ?r {destination}Type)"


@dataclass(frozen=True)
class TaskType:
    """One kind of task.

    - sentences: how ALFWorld's grammar words it, with places for the target's and the destination's type.
    - goal: its PDDL, with the same places. The destination of looking is a lamp.
    - ability, state: what the object has to be able to become, and to be, as `Game` names it; empty where nothing.
    """

    name: str
    sentences: tuple[str, ...]
    goal: str
    ability: str = ""
    state: str = ""

    @cached_property
    def goal_pattern(self) -> re.Pattern[str]:
        """Matches the goal in lower case and without spaces beside parentheses, to the end of the problem.

        Groups: `o` the object's type, and `r` the receptacle's or `l` the lamp's; each is named again where it recurs.
        """
        pattern = re.escape(re.sub(r" ?([()]) ?", r"\1", f"(and {self.goal})))").lower())
        other = "l" if self.name == "look_at_obj_in_light" else "r"
        for place, group in (("target", "o"), ("destination", other)):
            written = re.escape(f"{{{place}}}type")
            pattern = pattern.replace(written, f"(?P<{group}>[^\\s()]+)", 1).replace(written, f"(?P={group})")
        return re.compile(pattern)


def _changed(name: str, ability: str, state: str, sentences: tuple[str, ...], adjective: str) -> TaskType:
    conditions = f"({ability} ?o) {_TYPES} ({adjective} ?o) (inReceptacle ?o ?r)"
    return TaskType(name, sentences, _PLACE.format(conditions=conditions), ability, state)


TASKS: Mapping[str, TaskType] = {
    task.name: task
    for task in (
        TaskType(
            "pick_and_place_simple",
            ("put a {target} in {destination}.", "put some {target} on {destination}."),
            _PLACE.format(conditions=f"(inReceptacle ?o ?r) {_TYPES}"),
        ),
        TaskType(
            "look_at_obj_in_light",
            ("look at {target} under the {destination}.", "examine the {target} with the {destination}."),
            "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) "
            "(and (objectType ?ot {destination}Type) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) "
            "(atLocation ?a ?l) (inReceptacle ?ot ?r))) "
            "(exists (?o - object ?a - agent) (and (objectType ?o {target}Type) (holds ?a ?o)))",
        ),
        _changed(
            "pick_clean_then_place_in_recep",
            "cleanable",
            "clean",
            ("put a clean {target} in {destination}.", "clean some {target} and put it in {destination}."),
            "isClean",
        ),
        _changed(
            "pick_heat_then_place_in_recep",
            "heatable",
            "hot",
            ("put a hot {target} in {destination}.", "heat some {target} and put it in {destination}."),
            "isHot",
        ),
        _changed(
            "pick_cool_then_place_in_recep",
            "coolable",
            "cool",
            ("put a cool {target} in {destination}.", "cool some {target} and put it in {destination}."),
            "isCool",
        ),
        TaskType(
            "pick_two_obj_and_place",
            ("put two {target} in {destination}.", "find two {target} and put them in {destination}."),
            "(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {target}Type) "
            "(receptacleType ?r {destination}Type) (inReceptacle ?o1 ?r) (exists (?o2 - object) "
            "(and (not (= ?o1 ?o2)) (objectType ?o2 {target}Type) (receptacleType ?r {destination}Type) "
            "(inReceptacle ?o2 ?r))))))",
        ),
    )
}
"""By name, in the order of the paper (arXiv 2010.03768), which is that of ALFWorld's numbers 1 to 6."""

TASK_TYPES = tuple(TASKS)
"""Their names."""

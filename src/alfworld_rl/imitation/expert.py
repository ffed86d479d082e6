"""A player that wins ALFWorld's games from what any player sees, to learn from.

It knows the task sentence, the observations and the admissible commands; nothing of the hidden state, the
walkthrough or the file's task type. What it does next is a short function of what the transcript says, so that a
small model can learn it: it looks for the object in one fixed order of kinds of places (how often train-split games
keep such an object there, per command it costs to look; see `expert_places`), lowest number first, and does at
once what brings the task forward.

Acting and watching are separate. `act` says what the demonstrator would do now and changes nothing; `observe` tells
it what was done, by whomever, and what came of it. So it can label any state that a learner has reached (DAgger,
arXiv 1011.0686): an object carried off, a receptacle closed again, a command refused.
"""

import math
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.imitation.expert_places import worth
from alfworld_rl.types import Observation

__all__ = ["Demonstrator", "Goal", "TaskError", "parse_task"]

GoalKind = Literal["place", "two", "clean", "heat", "cool", "look"]


class TaskError(AlfworldRLError):
    """The task sentence follows none of ALFWorld's templates."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A task sentence understood: `object_type` goes to a `target_type`, or is looked at under that lamp."""

    kind: GoalKind
    object_type: str
    target_type: str


_TEMPLATES: tuple[tuple[GoalKind, str], ...] = (
    ("place", r"put (?:an?|some) (\w+) (?:in|on) (\w+)"),
    ("two", r"put two (\w+) (?:in|on) (\w+)"),
    ("two", r"find two (\w+) and put them (?:in|on) (\w+)"),
    ("clean", r"put a clean (\w+) (?:in|on) (\w+)"),
    ("clean", r"clean some (\w+) and put it (?:in|on) (\w+)"),
    ("heat", r"put a hot (\w+) (?:in|on) (\w+)"),
    ("heat", r"heat some (\w+) and put it (?:in|on) (\w+)"),
    ("cool", r"put a cool (\w+) (?:in|on) (\w+)"),
    ("cool", r"cool some (\w+) and put it (?:in|on) (\w+)"),
    ("look", r"look at (\w+) under the (\w+)"),
    ("look", r"examine the (\w+) with the (\w+)"),
)
_PARSERS = tuple((kind, re.compile(pattern)) for kind, pattern in _TEMPLATES)

_APPLIANCES: dict[GoalKind, tuple[str, ...]] = {
    # Some houses have a bathtub that the game itself types as a sink; it serves where there is no sink.
    "clean": ("sinkbasin", "bathtubbasin"),
    "heat": ("microwave",),
    "cool": ("fridge",),
}


def parse_task(task: str) -> Goal:
    """Read a task sentence such as "put two cd in safe."; raises TaskError for any other."""
    sentence = task.strip().lower().removeprefix("your task is to:").strip().rstrip(".").rstrip()
    for kind, pattern in _PARSERS:
        if match := pattern.fullmatch(sentence):
            return Goal(kind, match[1], match[2])
    raise TaskError(
        f"the demonstrator cannot read the task {task[:200]!r}; it knows the sentences that ALFWorld's own games use, "
        "such as 'put a clean mug in coffeemachine.'"
    )


_NAME = r"[^\s,.]+ \d+"
_SURROUNDINGS = re.compile(r"Looking quickly around you, you see (.*?)\.")
_CONTENTS = re.compile(rf"(?:On the ({_NAME})|The ({_NAME}) is open\. In it), you see (.*?)\.")
_TAKEN = re.compile(rf"You pick up the ({_NAME}) from the ({_NAME})\.")
_MOVED = re.compile(rf"You (?:move|put) the ({_NAME}) (?:to|in/on) the ({_NAME})\.")
_TREATED = re.compile(rf"You (clean|heat|cool) the ({_NAME}) using the {_NAME}\.")
_LISTED = re.compile(rf"\ba ({_NAME})")


def _type(name: str) -> str:
    return name.partition(" ")[0]


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.partition(" ")
    return kind, int(number)


class Demonstrator:
    """One player in one game.

    `task` is the sentence after "Your task is to: ", `first` what `reset` gave. With `exploration` e > 0
    the order of search varies from demonstration to demonstration: the logarithm of each receptacle's worth gets e
    times a Gumbel variable from `rng`, so that 1 draws the order in proportion to the worth and 0 always takes the
    best first. Raises TaskError when the sentence follows none of ALFWorld's templates.
    """

    def __init__(
        self, task: str, first: Observation, *, exploration: float = 0.0, rng: random.Random | None = None
    ) -> None:
        if exploration > 0 and rng is None:
            raise ValueError("exploration needs an rng, so that a demonstration can be repeated")
        self.goal = parse_task(task)
        surroundings = _SURROUNDINGS.search(first.text)
        named = _LISTED.findall(surroundings[1]) if surroundings else []
        offered = [c.removeprefix("go to ") for c in first.actions if c.startswith("go to ")]
        self._receptacles = sorted({*named, *offered}, key=_by_number)
        house = {_type(name) for name in self._receptacles}
        self._appliance = next((kind for kind in _APPLIANCES.get(self.goal.kind, ()) if kind in house), None)
        self._contents: dict[str, list[str]] = {}  # of receptacles, as last read and corrected by what was moved since
        self._seen: set[str] = set()  # receptacles whose whole contents have been read
        self._clean: set[str] = set()
        self._warmth: dict[str, str] = {}  # object -> "heat" or "cool", whichever came last
        self._origin: dict[str, str] = {}  # object -> the receptacle it was last taken from
        self._useless: set[str] = set()  # objects that cannot do what the task needs
        self._barred: set[tuple[str, str]] = set()  # (object type, receptacle type) that do not go together
        searched = (self.goal.object_type, *([self.goal.target_type] if self.goal.kind == "look" else []))
        self._orders = {wanted: self._order_of_search(wanted, exploration, rng) for wanted in searched}
        self._take_in(first)

    def observe(self, command: str, view: Observation) -> None:
        """Take in that `command` was sent, by whomever, and that the world answered with `view`.

        What happened is read off the answer alone; a refused command says "Nothing happens." and teaches nothing.
        """
        self._take_in(view)

    def act(self) -> str:
        """The command that the demonstrator would send now. Changes nothing.

        "look", which never helps, means that there is nothing left to do: the game is over, or cannot be won any more
        (the hand holds one of the few objects that ALFWorld's houses have no place for).
        """
        if self._done:
            return "look"
        held = self._held
        if held is None:
            return self._fetch()
        if _type(held) != self.goal.object_type or held in self._useless:
            return self._put_away(held)
        if self.goal.kind == "look":
            return self._light()
        if not self._treated(held):
            return self._treat(held)
        return self._deliver(held)

    # What the transcript says so far.

    def _take_in(self, view: Observation) -> None:
        self._read(view.text)
        self._done = view.done
        self._commands = frozenset(view.actions)
        self._here = [name for name in self._receptacles if f"go to {name}" not in self._commands]
        # Of objects, only the one in the hand can be examined.
        examined = (c.removeprefix("examine ") for c in view.actions if c.startswith("examine "))
        self._held = next((name for name in examined if name not in self._receptacles), None)
        self._judge()

    def _read(self, text: str) -> None:
        for surface, opened, listed in _CONTENTS.findall(text):
            self._contents[surface or opened] = _LISTED.findall(listed)
            self._seen.add(surface or opened)
        if match := _TAKEN.match(text):
            item, place = match.groups()
            # An object can lie in two receptacles at once; taking it clears only the one it was taken from.
            self._contents[place] = [other for other in self._contents.get(place, []) if other != item]
            self._origin[item] = place
        elif match := _MOVED.match(text):
            item, place = match.groups()
            self._contents[place] = [*(other for other in self._contents.get(place, []) if other != item), item]
        elif match := _TREATED.match(text):
            verb, item = match.groups()
            if verb == "clean":
                self._clean.add(item)
            else:
                self._warmth[item] = verb

    def _judge(self) -> None:
        """Conclude from what is not offered here which objects and kinds of places cannot do what is needed."""
        goal, held = self.goal, self._held
        for place in self._here:
            treats = held is not None and _type(held) == goal.object_type and _type(place) == self._appliance
            if held is not None and treats and f"{goal.kind} {held} with {place}" not in self._commands:
                self._useless.add(held)
            for item in self._contents.get(place, ()):
                if goal.kind == "look" and _type(item) == goal.target_type and f"use {item}" not in self._commands:
                    self._useless.add(item)
            if f"open {place}" in self._commands:
                continue
            if held is not None and self._moving(held, place) not in self._commands:
                self._barred.add((_type(held), _type(place)))
            for item in self._contents.get(place, ()) if held is None else ():
                if _type(item) == goal.object_type and f"take {item} from {place}" not in self._commands:
                    self._useless.add(item)

    # What to do about it. Each of these gives one command.

    def _fetch(self) -> str:
        """With empty hands: take the object where it is known to be, else search for it."""
        wanted, order = self.goal.object_type, self._orders[self.goal.object_type]
        # The same receptacle wherever the player stands, or two half-filled ones would have it walk to and fro.
        target = self._target(prefer=()) if self.goal.kind == "two" else None
        delivered = set(self._contents.get(target, ())) if target else set()
        known = [
            (item, place)
            for place in order
            for item in self._contents.get(place, ())
            if _type(item) == wanted and item not in self._useless and item not in delivered
        ]
        if not known:
            return self._search(order)
        item, place = min(known, key=lambda pair: (not self._treated(pair[0]), pair[1] not in self._here))
        return self._at(place, f"take {item} from {place}")

    def _treat(self, item: str) -> str:
        """Clean, heat or cool what is held; a closed microwave or fridge will do."""
        place = min(
            (name for name in self._receptacles if _type(name) == self._appliance),
            key=lambda name: (name not in self._here, _by_number(name)),
            default=None,
        )
        return self._at(place, f"{self.goal.kind} {item} with {place}")

    def _deliver(self, item: str) -> str:
        target = self._target(prefer=self._here)
        return self._at(target, self._moving(item, target))

    def _light(self) -> str:
        """Holding the object: switch on the lamp where it stands, else search for it."""
        order = self._orders[self.goal.target_type]
        for place in order:
            for item in self._contents.get(place, ()):
                if _type(item) == self.goal.target_type and item not in self._useless:
                    return self._at(place, f"use {item}")
        return self._search(order)

    def _put_away(self, item: str) -> str:
        """Free the hand of what is not needed: here if possible, else where it came from, else wherever it goes."""
        places = [name for name in self._receptacles if (_type(item), _type(name)) not in self._barred]
        origin = self._origin.get(item)
        place = min(
            places,
            key=lambda name: (self._moving(item, name) not in self._commands, name != origin, name not in self._here),
            default=None,
        )
        return self._at(place, self._moving(item, place))

    def _search(self, order: Iterable[str]) -> str:
        place = next((name for name in order if name not in self._seen), None)
        return self._at(place, f"examine {place}")

    def _at(self, place: str | None, command: str) -> str:
        """`command` as soon as `place` is here and open enough for it."""
        if place is None:
            return "look"
        if place not in self._here:
            return f"go to {place}"
        if command in self._commands and not (command.startswith("examine ") and f"open {place}" in self._commands):
            return command
        return f"open {place}" if f"open {place}" in self._commands else "look"

    def _moving(self, item: str, place: str | None) -> str:
        """The command that moves it there, in the words of the game: "put" in those of before alfworld 0.4."""
        put = f"put {item} in/on {place}"
        return put if put in self._commands else f"move {item} to {place}"

    def _treated(self, item: str) -> bool:
        match self.goal.kind:
            case "clean":
                return item in self._clean
            case "heat" | "cool":
                return self._warmth.get(item) == self.goal.kind
        return True

    def _target(self, prefer: Iterable[str]) -> str | None:
        """The receptacle to deliver to: for two objects the one that has the first, else a preferred, else number 1."""
        wanted = self.goal.object_type
        return min(
            (
                name
                for name in self._receptacles
                if _type(name) == self.goal.target_type and (wanted, _type(name)) not in self._barred
            ),
            key=lambda name: (
                -sum(_type(item) == wanted for item in self._contents.get(name, ())) if self.goal.kind == "two" else 0,
                name not in prefer,
                _by_number(name),
            ),
            default=None,
        )

    def _order_of_search(self, wanted: str, exploration: float, rng: random.Random | None) -> list[str]:
        def rank(name: str) -> tuple[bool, float, str, int]:
            # No game starts with the object where a plain delivery should bring it.
            last = self.goal.kind in ("place", "two") and _type(name) == self.goal.target_type
            value = math.log(worth(wanted, _type(name)))
            if exploration > 0 and rng is not None:
                value -= exploration * math.log(-math.log(rng.random() or 0.5))
            return last, -value, *_by_number(name)

        return sorted(self._receptacles, key=rank)

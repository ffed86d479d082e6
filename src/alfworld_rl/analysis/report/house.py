"""What the agent knows of the house, worked out from the texts that it read and from nothing else.

ALFWorld's answers are few fixed sentences; each says where the agent stands, what a receptacle holds, what is in
its hand, or what became of an object. `House` follows them and says after every answer what has changed, so that a
page can show the house as the agent knew it at any turn.
"""

import re
from collections.abc import Mapping
from typing import Any

_THING = r"[a-z]+ \d+"
#: What lies in the sentence "you see a mug 1, and a pen 2.", up to its end.
_SEEN = rf"you see ((?:an? {_THING}|nothing|,|and|\s)+)\."

_OPENING = re.compile(rf"(?:Looking quickly around you, |room\. ?){_SEEN}")
_FACING = re.compile(rf"You are facing the ((?:{_THING}|,|and|the|\s)+)\. Next to it, you see")
_CONTENTS = re.compile(rf"On the ({_THING}), {_SEEN}")
_OPEN = re.compile(rf"The ({_THING}) is open\. In it, {_SEEN}")
_CLOSED = re.compile(rf"The ({_THING}) is closed\.")
_ARRIVED = re.compile(rf"You arrive at (?:the )?({_THING})\.")
_OPENED = re.compile(rf"You open the ({_THING})\.")
_SHUT = re.compile(rf"You close the ({_THING})\.")
_TOOK = re.compile(rf"You pick up the ({_THING}) from the ({_THING})\.")
#: "You put the mug 1 in/on the desk 1." is how alfworld 0.3 said it.
_MOVED = re.compile(rf"You (?:move|put) the ({_THING}) (?:to|in/on|in|on) the ({_THING})\.")
_CHANGED = re.compile(rf"You (heat|cool|clean) the ({_THING}) using the {_THING}\.")
_SLICED = re.compile(rf"You sliced? the ({_THING}) with the {_THING}\.")
_LIT = re.compile(rf"You turn on the ({_THING})\.")
_CARRYING = re.compile(rf"You are carrying: (?:an? )?({_THING})\.")
_EMPTY_HANDED = re.compile(r"You are not carrying anything\.")
_EXAMINED = re.compile(rf"This is a ((?:(?:hot|cold|cool|clean|sliced|and) ?)+) ({_THING})\.")

#: The commands of ALFWorld, and "put X in/on Y", which is how version 0.3 writes "move X to Y".
_COMMAND = re.compile(
    rf"(?P<verb>go to|open|close|take|move|put|examine|use|heat|cool|clean|slice|look|inventory|help)"
    rf"(?: (?P<first>{_THING})(?: (?:from|to|in/on|in|on|with) (?P<second>{_THING}))?)?"
)

_STATE = {"heat": "hot", "cool": "cold", "clean": "clean"}
#: Heating undoes cooling and the other way round.
_UNDOES = {"hot": "cold", "cold": "hot"}


class House:
    """Follows one game. `start` and `answer` give what an answer changed, as plain values for JSON; absent: as before.

    - at: the receptacle where the agent stands; hand: the objects in it.
    - places: receptacle -> {"open": true, false or null where nobody knows, "items": the objects known to be there,
      "seen": whether these are all}.
    - states: object -> list of "hot", "cold", "clean", "sliced", "on".
    """

    def __init__(self) -> None:
        self._places: dict[str, dict[str, Any]] = {}
        self._states: dict[str, list[str]] = {}
        self._hand: list[str] = []
        self._at = ""
        self._change: dict[str, Any] = {}

    def start(self, text: str) -> dict[str, Any]:
        """The opening text, which names every receptacle."""
        self._change = {}
        for sentence in _OPENING.finditer(text):
            for name in _things(sentence[1]):
                self._place(name)
        for sentence in _FACING.finditer(text):
            for name in _things(sentence[1]):
                self._place(name)
        self._read(text)
        return self._change

    def answer(self, text: str) -> dict[str, Any]:
        """An answer of the game to one command."""
        self._change = {}
        self._read(text)
        return self._change

    def why_refused(self, action: str) -> str:
        """What the agent could have known to stand in the way of a refused command; empty where nothing is known."""
        found = _COMMAND.fullmatch(" ".join(action.lower().split()))
        if found is None:
            return "no such command"
        verb, first, second = found["verb"], found["first"] or "", found["second"] or ""
        if verb == "go to" and first:
            return "already there" if first == self._at else "" if first in self._places else "no such place"
        if not first and verb not in ("look", "inventory", "help"):
            return "no such command"
        if not second and verb in ("take", "move", "put", "heat", "cool", "clean", "slice"):
            return "no such command"
        where = first if verb in ("open", "close") else "" if verb == "slice" else second
        if where and where not in self._places:
            return "no such place"
        if where and where != self._at:
            return "not standing there"
        if verb in ("open", "close"):
            return f"already {verb if verb == 'open' else 'closed'}" if self._open(first) is (verb == "open") else ""
        if verb == "take":
            if self._hand:
                return "the hand is full"
            if self._open(second) is False:
                return "it is closed"
            place = self._places[second]
            return "not seen there" if place["seen"] and first not in place["items"] else ""
        if verb in ("move", "put", "heat", "cool", "clean"):
            if first not in self._hand:
                return "not in the hand"
            # A closed microwave heats and a closed fridge cools; nothing can be put into either.
            return "it is closed" if verb in ("move", "put") and self._open(second) is False else ""
        return ""

    def _open(self, place: str) -> bool | None:
        found: bool | None = self._places.get(place, {}).get("open")
        return found

    def _read(self, text: str) -> None:
        for found in _ARRIVED.finditer(text):
            self._change["at"] = self._at = found[1]
            self._place(found[1])
        for found in _OPENED.finditer(text):
            self._place(found[1], open=True)
        for found in _SHUT.finditer(text):
            self._place(found[1], open=False)
        for found in _CLOSED.finditer(text):
            self._place(found[1], open=False)
        for found in _CONTENTS.finditer(text):
            self._place(found[1], items=_things(found[2]), seen=True)
        for found in _OPEN.finditer(text):
            self._place(found[1], open=True, items=_things(found[2]), seen=True)
        for found in _TOOK.finditer(text):
            items = self._place(found[2])["items"]
            self._place(found[2], items=[name for name in items if name != found[1]])
            self._holds([found[1]])
        for found in _MOVED.finditer(text):
            items = self._place(found[2])["items"]
            self._place(found[2], items=[*(name for name in items if name != found[1]), found[1]])
            self._holds([])
        for found in _CARRYING.finditer(text):
            self._holds([found[1]])
        if _EMPTY_HANDED.search(text):
            self._holds([])
        for found in _CHANGED.finditer(text):
            self._becomes(found[2], _STATE[found[1]])
        for found in _SLICED.finditer(text):
            self._becomes(found[1], "sliced")
        for found in _LIT.finditer(text):
            self._becomes(found[1], "on")
        for found in _EXAMINED.finditer(text):
            for word in found[1].split():
                if word != "and":
                    self._becomes(found[2], "cold" if word == "cool" else word)

    def _place(self, name: str, **new: Any) -> Mapping[str, Any]:
        before = self._places.get(name)
        now = {"open": None, "items": [], "seen": False} | (before or {}) | new
        if now != before:
            self._places[name] = now
            self._change.setdefault("places", {})[name] = now
        return now

    def _holds(self, objects: list[str]) -> None:
        if objects != self._hand:
            self._hand = objects
            self._change["hand"] = objects

    def _becomes(self, name: str, state: str) -> None:
        before = self._states.get(name, [])
        now = [*(word for word in before if word not in (state, _UNDOES.get(state))), state]
        if now != before:
            self._states[name] = now
            self._change.setdefault("states", {})[name] = now


def _things(text: str) -> list[str]:
    return re.findall(_THING, text)


#: What ALFRED's game names say: the task's type, object and destination, and the number of the floor plan.
_GAME = re.compile(r"(?:^|/)([a-z_]+)-([A-Za-z]+)-([A-Za-z]+)-([A-Za-z]+)-(\d+)(?:/|$)")
#: A kind of receptacle that only one kind of room has.
_ROOMS = {"toilet": "Bathroom", "fridge": "Kitchen", "stoveburner": "Kitchen", "bed": "Bedroom", "sofa": "Living room"}


def goal_of(game_id: str) -> dict[str, str]:
    """What a game's name says of its goal: "object" and "place", kinds as the game writes them.

    Empty for names of another form; a page then marks nothing.
    """
    found = _GAME.search(game_id)
    return {"object": found[2].lower(), "place": found[4].lower()} if found else {}


def room_of(places: Mapping[str, Any]) -> str | None:
    """The kind of room that has these receptacles, None where they do not tell."""
    kinds = {name.split()[0] for name in places}
    return next((room for kind, room in _ROOMS.items() if kind in kinds), None)

"""A playable state of a game: exactly what alfworld 0.4.2 on TextWorld 1.7.0 says and does, without either."""

from collections.abc import Hashable, Iterable

from alfworld_rl.games.game import Game, bits
from alfworld_rl.world.view import View

_HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


class World:
    """One playable state of a game. Sets of objects and receptacles are bit masks (see `Game`)."""

    __slots__ = (
        "_clean",
        "_cool",
        "_hand",
        "_hot",
        "_inside",
        "_lying",
        "_opened",
        "_place",
        "_sliced",
        "_taken",
        "_toggled",
        "game",
        "view",
    )

    def __init__(self, game: Game) -> None:
        self.game = game
        self.reset()

    def reset(self) -> View:
        """Back to the start; the view's observation is the opening text with the task."""
        game = self.game
        self._place = game.start
        self._hand = -1
        self._opened = game.opened
        self._clean = game.clean
        self._hot = game.hot
        self._cool = game.cool
        self._sliced = game.sliced
        self._toggled = game.toggled
        self._inside = list(game.inside)
        self._lying = list(game.lying)
        self._taken = [0] * len(game.inside)
        around = self._look() if game.receptacles_at[game.start] else _surroundings(game)
        opening = f"-= Welcome to TextWorld, ALFRED! =-\n\n{around}\n\nYour task is to: {game.task}"
        return self._see(opening)

    def copy(self) -> "World":
        """An independent world in the same state."""
        twin = World.__new__(World)
        for slot in World.__slots__:
            setattr(twin, slot, getattr(self, slot))
        twin._inside = self._inside.copy()
        twin._lying = self._lying.copy()
        twin._taken = self._taken.copy()
        return twin

    @property
    def state_key(self) -> Hashable:
        """Equal for two worlds of one game exactly when their states are equal (position, holdings, everything)."""
        return (
            self._place,
            self._hand,
            self._opened,
            self._clean,
            self._hot,
            self._cool,
            self._sliced,
            self._toggled,
            tuple(self._inside),
            tuple(self._lying),
            tuple(self._taken),
        )

    @property
    def goals(self) -> dict[str, bool]:
        """The conditions of the goal by name, as ALFRED counts them; the game is won while all of them hold."""
        goal = self.game.goal
        if goal.kind == "look_at_obj_in_light":
            return {"object held": self._holds_target(), "lamp on": self._at_lamp()}
        there = [self._inside[r] & goal.targets for r in goal.receptacles]
        if goal.kind == "pick_two_obj_and_place":
            most = max((mask.bit_count() for mask in there), default=0)
            return {"first object placed": most > 0, "second object placed": most > 1}
        if not goal.state:
            return {"object placed": any(there)}
        done = self._in_state(goal.state)
        return {
            f"object {goal.state}": bool(goal.targets & done),
            "object placed": any(there),
            f"{goal.state} object placed": any(mask & done for mask in there),
        }

    def step(self, command: str) -> View:
        """Does `command` if it is admissible; anything else answers "Nothing happens." and changes nothing."""
        command = command.strip()
        if command not in self.view.admissible_commands:
            return self._see("Nothing happens.")
        return self._see(self._act(command))

    # --- what a command does

    def _act(self, command: str) -> str:
        game = self.game
        verb, _, rest = command.partition(" ")
        names = game.cache.get("numbers")
        if names is None:
            names = {name: i for i, name in enumerate(game.objects)}
            names |= {name: i for i, name in enumerate(game.receptacles)}
            game.cache["numbers"] = names
        if verb == "go":
            receptacle = names[rest[3:]]
            self._place = game.place_of[receptacle]
            return f"You arrive at {game.receptacles[receptacle]}. {self._on(receptacle)}"
        if verb == "look":
            return self._look()
        if verb == "inventory":
            if self._hand < 0:
                return "You are not carrying anything."
            return f"You are carrying: a {game.objects[self._hand]}."
        if verb == "help":
            return _HELP
        if verb == "open":
            receptacle = names[rest]
            self._opened |= 1 << receptacle
            return f"You open the {rest}. {self._on(receptacle)}"
        if verb == "close":
            self._opened &= ~(1 << names[rest])
            return f"You close the {rest}."
        if verb == "examine":
            if rest in game.receptacles:
                return self._on(names[rest])
            return self._object(names[rest])
        if verb == "take":
            object_name, _, receptacle_name = rest.partition(" from ")
            number, receptacle = names[object_name], names[receptacle_name]
            bit = 1 << number
            self._hand = number
            self._inside[receptacle] &= ~bit
            self._taken[receptacle] |= bit
            self._lying[self._place] &= ~bit
            return f"You pick up the {object_name} from the {receptacle_name}."
        if verb == "move":
            object_name, _, receptacle_name = rest.partition(" to ")
            receptacle = names[receptacle_name]
            bit = 1 << self._hand
            self._hand = -1
            self._inside[receptacle] |= bit
            self._taken[receptacle] &= ~bit
            self._lying[self._place] |= bit
            return f"You move the {object_name} to the {receptacle_name}."
        if verb == "use":
            self._toggled |= 1 << names[rest]
            return f"You turn on the {rest}."
        object_name, _, tool = rest.partition(" with ")
        bit = 1 << names[object_name]
        if verb == "clean":
            self._clean |= bit
        elif verb == "heat":
            self._hot |= bit
            self._cool &= ~bit
        elif verb == "cool":
            self._cool |= bit
            self._hot &= ~bit
        else:
            self._sliced |= bit
            return f"You sliced the {object_name} with the {tool}."
        return f"You {verb} the {object_name} using the {tool}."

    # --- what a player reads

    def _on(self, receptacle: int) -> str:
        game = self.game
        name, bit = game.receptacles[receptacle], 1 << receptacle
        if not game.openable & bit:
            return f"On the {name}, you see {self._listed(self._inside[receptacle])}."
        if self._opened & bit:
            return f"The {name} is open. In it, you see {self._listed(self._inside[receptacle])}."
        return f"The {name} is closed."

    def _object(self, number: int) -> str:
        game = self.game
        name, bit = game.objects[number], 1 << number
        if number in game.contents:
            inner = _list([f"a {game.objects[i]}" for i in game.contents[number]])
            return f"This is a normal {name}. In it, you see {inner}."
        clean, hot, cool, sliced = (bool(mask & bit) for mask in (self._clean, self._hot, self._cool, self._sliced))
        if clean and (hot or cool):
            state = "hot and clean" if hot else "cool and clean"
        elif sliced and clean:
            state = "clean"
        elif sliced:
            state = "hot" if hot else "cool" if cool else ""
        else:
            state = "hot" if hot else "clean" if clean else "cold" if cool else ""
        if state:
            return f"This is a {state} sliced {name}." if sliced else f"This is a {state} {name}."
        if game.toggleable & self._toggled & bit:
            return f"This {name} is on."
        if game.sliceable & bit and sliced:
            return f"This is a sliced {name}."
        return f"There's nothing special about {name}."

    def _look(self) -> str:
        game = self.game
        here = game.receptacles_at[self._place]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        facing = _list([game.receptacles[r] for r in here])
        lying = self._lying[self._place]
        beside = []
        for number in bits(lying):
            beside += [f"a {game.objects[number]}"] * sum(self._taken[r] >> number & 1 for r in here)
        return f"You are facing the {facing}. Next to it, you see {_list(beside)}."

    def _listed(self, objects: int) -> str:
        return _list([f"a {self.game.objects[i]}" for i in bits(objects)])

    # --- what a player may do

    def _admissible(self) -> Iterable[str]:
        game = self.game
        yield from ("help", "inventory", "look")
        for name, place in zip(game.receptacles, game.place_of, strict=True):
            if place != self._place:
                yield f"go to {name}"
        hand = self._hand
        held = 0 if hand < 0 else 1 << hand
        if held:
            yield f"examine {game.objects[hand]}"
            if game.knives & held:
                for i in bits(game.sliceable & self._lying[self._place]):
                    yield f"slice {game.objects[i]} with {game.objects[hand]}"
        for r in game.receptacles_at[self._place]:
            name, bit = game.receptacles[r], 1 << r
            yield f"examine {name}"
            if game.openable & bit:
                yield f"close {name}" if self._opened & bit else f"open {name}"
            for i in bits(self._inside[r] & game.toggleable):
                yield f"use {game.objects[i]}"
            reachable = not game.openable & bit or self._opened & bit
            if not held:
                if reachable:
                    for i in bits(self._inside[r] & game.pickupable):
                        yield f"take {game.objects[i]} from {name}"
                continue
            if reachable and game.holds[r] & held:
                yield f"move {game.objects[hand]} to {name}"
            if game.sinks & bit and game.cleanable & held:
                yield f"clean {game.objects[hand]} with {name}"
            if game.microwaves & bit and game.heatable & held:
                yield f"heat {game.objects[hand]} with {name}"
            if game.fridges & bit and game.coolable & held:
                yield f"cool {game.objects[hand]} with {name}"

    # --- the goal

    def _in_state(self, state: str) -> int:
        return {"clean": self._clean, "hot": self._hot, "cool": self._cool, "": -1}[state]

    def _holds_target(self) -> bool:
        return self._hand >= 0 and bool(self.game.goal.targets >> self._hand & 1)

    def _at_lamp(self) -> bool:
        on = self.game.goal.lamps & self._toggled
        return any(self._inside[r] & on for r in self.game.receptacles_at[self._place])

    def _won(self) -> bool:
        return all(self.goals.values())

    def _see(self, observation: str) -> View:
        won = self._won()
        admissible = tuple(sorted(set(self._admissible())))
        self.view = View(observation, self.game.task, admissible, int(won), won, won)
        return self.view


def _list(items: list[str]) -> str:
    if not items:
        return "nothing"
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def _surroundings(game: Game) -> str:
    seen = _list([f"a {name}" for name in game.receptacles])
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."

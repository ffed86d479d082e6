"""A playable state of a game: exactly what alfworld 0.4.2 on TextWorld 1.7.0 says and does, without either.

Sets of objects and of receptacles are bit masks (see `Game`). What is worked out for one state (a receptacle's text, a
place's admissible commands) is kept with the game, for every world that plays it.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable

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

_KEPT = 1024
"""How many texts and command lists a game keeps: about 0.5 MB at most."""


class World:
    """One state of a game, begun by the constructor; `view` is what the player saw last.

    As in the official stack a won game goes on: `done` is only whether the goal holds now, and a later command can
    undo it.
    """

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
        "_won",
        "game",
        "view",
    )

    view: View

    def __init__(self, game: Game) -> None:
        self.game = game
        self.reset()

    def reset(self) -> View:
        """Back to the start; the observation is the opening text with the task."""
        game = self.game
        self._place = game.start
        self._hand = -1
        self._opened = game.opened
        self._clean, self._hot, self._cool, self._sliced = game.clean, game.hot, game.cool, game.sliced
        self._toggled = game.toggled
        self._inside = list(game.inside)
        self._lying = list(game.lying)
        self._taken = [0] * len(game.inside)  # what was taken from each receptacle and not put back into it
        view: View | None = game.kept.get("opening")
        if view is None:
            around = self._look() if game.receptacles_at[game.start] else _middle_of_room(game.receptacles)
            opening = f"-= Welcome to TextWorld, ALFRED! =-\n\n{around}\n\nYour task is to: {game.task}"
            won = self._goal_holds()
            view = View(opening, game.task, self._admissible(), int(won), won, won)
            game.kept["opening"] = view
        self._won = view.won
        self.view = view
        return view

    def step(self, command: str) -> View:
        """Does `command` if it is admissible; anything else is answered "Nothing happens." and changes nothing.

        The command has to match to the letter but for space around it.
        """
        command = command.strip()
        admissible = self.view.admissible_commands
        index = bisect_left(admissible, command)
        if index < len(admissible) and admissible[index] == command:
            act, first, second = self.game.commands.get(command) or _understand(self.game, command)
            observation = act(self, first, second)
            admissible = self._admissible()
        else:
            observation = "Nothing happens."
        won = self._won
        self.view = View(observation, self.game.task, admissible, int(won), won, won)
        return self.view

    def copy(self) -> "World":
        """An independent world in the same state."""
        twin = World.__new__(World)
        twin.game, twin.view, twin._won = self.game, self.view, self._won
        twin._place, twin._hand, twin._opened = self._place, self._hand, self._opened
        twin._clean, twin._hot, twin._cool, twin._sliced = self._clean, self._hot, self._cool, self._sliced
        twin._toggled = self._toggled
        twin._inside, twin._lying, twin._taken = self._inside.copy(), self._lying.copy(), self._taken.copy()
        return twin

    def close(self) -> None:
        """Nothing to release; worlds of the official stack need it."""

    @property
    def state_key(self) -> Hashable:
        """Equal for two worlds of one game exactly when their states are equal: where the player stands, what is
        held, where everything is, open, clean, hot, cool, sliced, switched on, and what was taken from where."""
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
    def facts(self) -> list[tuple[str, ...]]:
        """What a game changes, as (relation, name, ...) with ALFWorld's names of relations: ("holds", object),
        ("inreceptacle" or "not_inreceptacle": taken from there and not put back, object, receptacle),
        ("opened", receptacle), and ("isclean", "ishot", "iscool", "issliced" or "istoggled", object)."""
        game = self.game
        facts: list[tuple[str, ...]] = [("holds", game.objects[self._hand])] if self._hand >= 0 else []
        for relation, places in (("inreceptacle", self._inside), ("not_inreceptacle", self._taken)):
            for receptacle, items in zip(game.receptacles, places, strict=True):
                facts += [(relation, game.objects[item], receptacle) for item in bits(items)]
        facts += [("opened", game.receptacles[r]) for r in bits(self._opened)]
        for relation, those in (
            ("isclean", self._clean),
            ("ishot", self._hot),
            ("iscool", self._cool),
            ("issliced", self._sliced),
            ("istoggled", self._toggled),
        ):
            facts += [(relation, game.objects[item]) for item in bits(those)]
        return facts

    @property
    def goals(self) -> dict[str, bool]:
        """The goal's conditions by name, as ALFRED counts them; the game is won while all of them hold."""
        goal = self.game.goal
        if goal.kind == "look_at_obj_in_light":
            return {"object held": self._target_held(), "lamp on": self._lamp_on()}
        placed = [self._inside[r] & goal.targets for r in goal.receptacles]
        if goal.kind == "pick_two_obj_and_place":
            most = max((objects.bit_count() for objects in placed), default=0)
            return {"first object placed": most > 0, "second object placed": most > 1}
        if not goal.state:
            return {"object placed": any(placed)}
        ready = goal.targets & self._in_goal_state()
        return {
            f"object {goal.state}": ready > 0,
            "object placed": any(placed),
            f"{goal.state} object placed": any(objects & ready for objects in placed),
        }

    # --- what the commands do; each answers with what the player reads

    def _go(self, receptacle: int, _: int) -> str:
        game = self.game
        self._place = game.place_of[receptacle]
        if game.goal.lamps:
            self._won = self._goal_holds()
        there = game.places[self._place] if game.wording.arrives_at_place else game.receptacles[receptacle]
        return f"You arrive at {there}. {self._examine_receptacle(receptacle)}"

    def _open(self, receptacle: int, _: int) -> str:
        self._opened |= 1 << receptacle
        return f"You open the {self.game.receptacles[receptacle]}. {self._examine_receptacle(receptacle)}"

    def _close(self, receptacle: int, _: int) -> str:
        self._opened &= ~(1 << receptacle)
        return f"You close the {self.game.receptacles[receptacle]}."

    def _take(self, item: int, receptacle: int) -> str:
        # It stays in any other receptacle that holds it too, and lies at any other place where it lies.
        bit = 1 << item
        self._hand = item
        self._inside[receptacle] &= ~bit
        self._taken[receptacle] |= bit
        self._lying[self._place] &= ~bit
        self._won = self._goal_holds()
        return f"You pick up the {self.game.objects[item]} from the {self.game.receptacles[receptacle]}."

    def _move(self, item: int, receptacle: int) -> str:
        bit = 1 << item
        self._hand = -1
        self._inside[receptacle] |= bit
        self._taken[receptacle] &= ~bit
        self._lying[self._place] |= bit
        self._won = self._goal_holds()
        wording = self.game.wording
        thing, place = self.game.objects[item], self.game.receptacles[receptacle]
        return f"You {wording.verb} the {thing} {wording.between} the {place}."

    def _clean_with(self, item: int, receptacle: int) -> str:
        self._clean |= 1 << item
        self._won = self._goal_holds()
        return f"You clean the {self.game.objects[item]} using the {self.game.receptacles[receptacle]}."

    def _heat_with(self, item: int, receptacle: int) -> str:
        self._hot |= 1 << item
        self._cool &= ~(1 << item)
        self._won = self._goal_holds()
        return f"You heat the {self.game.objects[item]} using the {self.game.receptacles[receptacle]}."

    def _cool_with(self, item: int, receptacle: int) -> str:
        self._cool |= 1 << item
        self._hot &= ~(1 << item)
        self._won = self._goal_holds()
        return f"You cool the {self.game.objects[item]} using the {self.game.receptacles[receptacle]}."

    def _slice(self, item: int, knife: int) -> str:
        self._sliced |= 1 << item
        return f"You sliced the {self.game.objects[item]} with the {self.game.objects[knife]}."

    def _use(self, item: int, _: int) -> str:
        self._toggled |= 1 << item  # never taken back, so the text is always "on"
        self._won = self._goal_holds()
        return f"You turn on the {self.game.objects[item]}."

    def _help(self, _first: int, _second: int) -> str:
        return _HELP

    def _inventory(self, _first: int, _second: int) -> str:
        if self._hand < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {self.game.objects[self._hand]}."

    def _look(self, _first: int = 0, _second: int = 0) -> str:
        game = self.game
        here = game.receptacles_at[self._place]
        if not here:
            return _middle_of_room(())
        beside: list[str] = []
        for item in bits(self._lying[self._place]):
            # Only what was taken from a receptacle here, once for each.
            beside += [f"a {game.objects[item]}"] * sum(self._taken[r] >> item & 1 for r in here)
        return (
            f"You are facing the {_listed([game.receptacles[r] for r in here])}. Next to it, you see {_listed(beside)}."
        )

    def _examine_receptacle(self, receptacle: int, _: int = 0) -> str:
        game = self.game
        bit = 1 << receptacle
        is_open = self._opened & bit
        key = (receptacle, is_open, self._inside[receptacle])
        text: str | None = game.kept.get(key)
        if text is None:
            name = game.receptacles[receptacle]
            inside = _listed([f"a {game.objects[item]}" for item in bits(self._inside[receptacle])])
            if not game.openable & bit:
                text = f"On the {name}, you see {inside}."
            elif is_open:
                text = f"The {name} is open. In it, you see {inside}."
            else:
                text = f"The {name} is closed."
            _keep(game, key, text)
        return text

    def _examine_object(self, item: int, _: int) -> str:
        game = self.game
        name = game.objects[item]
        if item in game.contents:
            inside = _listed([f"a {game.objects[inner]}" for inner in game.contents[item]])
            return f"This is a normal {name}. In it, you see {inside}."
        clean, hot, cool, sliced = (on >> item & 1 for on in (self._clean, self._hot, self._cool, self._sliced))
        if clean and (hot or cool):
            states = ["hot and clean" if hot else "cool and clean"]
        elif sliced:
            states = ["clean"] if clean else ["hot"] if hot else ["cool"] if cool else []
        else:
            states = ["hot"] if hot else ["clean"] if clean else ["cold"] if cool else []
        if sliced and (states or game.sliceable >> item & 1):
            states.append("sliced")
        if states and (states != ["sliced"] or not game.toggleable & self._toggled & 1 << item):
            return f"This is a {' '.join(states)} {name}."
        if game.toggleable & self._toggled & 1 << item:
            return f"This {name} is on."
        return f"There's nothing special about {name}."

    # --- what the player may do

    def _admissible(self) -> tuple[str, ...]:
        game, place, hand = self.game, self._place, self._hand
        here = game.receptacles_at[place]
        cut = self._lying[place] & game.sliceable if hand >= 0 and game.knives >> hand & 1 else 0
        key = (place, hand, cut, self._opened & game.openable_at[place], *[self._inside[r] for r in here])
        commands: tuple[str, ...] | None = game.kept.get(key)
        if commands is None:
            commands = self._admissible_anew(here, cut)
            _keep(game, key, commands)
        return commands

    def _admissible_anew(self, here: tuple[int, ...], cut: int) -> tuple[str, ...]:
        """The sorted commands. The many `go to` are sorted already, and no verb begins as another one does."""
        game, hand = self.game, self._hand
        held = game.objects[hand] if hand >= 0 else ""
        before_go: list[str] = [f"examine {held}"] if held else []
        heat: list[str] = []
        after_look: list[str] = [f"slice {game.objects[item]} with {held}" for item in bits(cut)]
        for r in here:
            name, inside = game.receptacles[r], self._inside[r]
            before_go.append(f"examine {name}")
            shut = game.openable >> r & ~self._opened >> r & 1
            if shut:
                after_look.append(f"open {name}")
            elif game.openable >> r & 1:
                before_go.append(f"close {name}")
            after_look += [f"use {game.objects[item]}" for item in bits(inside & game.toggleable)]
            if not held:
                if not shut:
                    after_look += [f"take {game.objects[item]} from {name}" for item in bits(inside & game.pickupable)]
                continue
            if not shut and game.holds[r] >> hand & 1:
                after_look.append(f"{game.wording.verb} {held} {game.wording.between} {name}")
            if game.sinks >> r & game.cleanable >> hand & 1:
                before_go.append(f"clean {held} with {name}")
            if game.microwaves >> r & game.heatable >> hand & 1:
                heat.append(f"heat {held} with {name}")
            if game.fridges >> r & game.coolable >> hand & 1:
                before_go.append(f"cool {held} with {name}")
        before_go.sort()
        heat.sort()
        after_look = sorted(set(after_look))  # a lamp that two receptacles here hold is used by one command
        every_way, where = _ways(game)
        ways = every_way.copy()
        for index in sorted([where[r] for r in here], reverse=True):
            del ways[index]
        return (*before_go, *ways, *heat, *(["help"] if game.has_help else []), "inventory", "look", *after_look)

    # --- the goal

    def _goal_holds(self) -> bool:
        goal = self.game.goal
        if goal.lamps:
            return self._target_held() and self._lamp_on()
        ready = goal.targets & self._in_goal_state()
        enough = 2 if goal.kind == "pick_two_obj_and_place" else 1
        inside = self._inside
        return ready > 0 and any((inside[r] & ready).bit_count() >= enough for r in goal.receptacles)

    def _in_goal_state(self) -> int:
        state = self.game.goal.state
        return self._clean if state == "clean" else self._hot if state == "hot" else self._cool if state else -1

    def _target_held(self) -> bool:
        return self._hand >= 0 and self.game.goal.targets >> self._hand & 1 == 1

    def _lamp_on(self) -> bool:
        lit = self.game.goal.lamps & self._toggled
        return lit > 0 and any(self._inside[r] & lit for r in self.game.receptacles_at[self._place])


_Act = Callable[[World, int, int], str]
_VERBS: dict[str, tuple[str, _Act]] = {
    # What stands between the two things that a command names, and what it does with them.
    "clean": (" with ", World._clean_with),
    "close": ("", World._close),
    "cool": (" with ", World._cool_with),
    "examine": ("", World._examine_object),
    "go": ("", World._go),
    "heat": (" with ", World._heat_with),
    "help": ("", World._help),
    "inventory": ("", World._inventory),
    "look": ("", World._look),
    "move": (" to ", World._move),
    "open": ("", World._open),
    "put": (" in/on ", World._move),  # move, in games of before alfworld 0.4
    "slice": (" with ", World._slice),
    "take": (" from ", World._take),
    "use": ("", World._use),
}


def _understand(game: Game, command: str) -> tuple[_Act, int, int]:
    """What an admissible command does, and the numbers of what it names; remembered with the game."""
    verb, _, named = command.partition(" ")
    between, act = _VERBS[verb]
    if verb == "go":
        named = named.removeprefix("to ")
    elif verb == "examine" and named in game.receptacles:
        act = World._examine_receptacle
    first, _, second = named.partition(between) if between else (named, "", "")
    understood = game.commands[command] = (act, _number(game, first), _number(game, second))
    return understood


def _number(game: Game, name: str) -> int:
    for names in (game.objects, game.receptacles):
        if name in names:
            return names.index(name)
    return 0


def _ways(game: Game) -> tuple[list[str], list[int]]:
    """Every `go to` command, sorted, and where in this list each receptacle's stands."""
    ways: tuple[list[str], list[int]] | None = game.kept.get("ways")
    if ways is None:
        commands = [f"go to {name}" for name in game.receptacles]
        every = sorted(commands)
        ways = every, [bisect_left(every, command) for command in commands]
        _keep(game, "ways", ways)
    return ways


def _keep(game: Game, key: Hashable, value: object) -> None:
    if len(game.kept) >= _KEPT:
        game.kept.clear()
    game.kept[key] = value


def _listed(items: list[str]) -> str:
    """a, b, and c"""
    if len(items) < 2:
        return items[0] if items else "nothing"
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def _middle_of_room(receptacles: tuple[str, ...]) -> str:
    seen = _listed([f"a {name}" for name in receptacles])
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."

"""Who says what to do next in `extra.expert_plan`."""

import warnings
from typing import Any, NamedTuple, Protocol

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.world import World
from alfworld_rl.world.textworld import process_kept

NO_PLAN = ("look",)
"""What the official class says where its expert has nothing to offer: it never hurts."""


class Expert(Protocol):
    def plan(self, command: str | None = None) -> list[str]:
        """What to do now that `command` has been sent; None: at the start. Never raises."""
        ...


def make_expert(name: str, gamefile: str, world: World) -> Expert:
    """The expert for a world that has just been reset. "handcoded" needs alfworld installed.

    One that cannot even begin with this game (its traj_data.json lacks what the hand-coded expert reads, or the
    demonstrator does not know its task sentence) is replaced, with a warning, by one that always says "look".
    """
    try:
        return _HandCoded(gamefile, world) if name == "handcoded" else _Demonstrating(world)
    except (AlfworldRLError, OSError, ValueError, LookupError, TypeError) as error:
        warnings.warn(f"No expert plan in {gamefile}: {error!r}", stacklevel=2)
        return _Silent()


class _Silent:
    def plan(self, command: str | None = None) -> list[str]:
        return list(NO_PLAN)


class _Demonstrating:
    def __init__(self, world: World) -> None:
        self._world = world
        self._demonstrator = Demonstrator(world.view.task, world.view)

    def plan(self, command: str | None = None) -> list[str]:
        if command is not None:
            self._demonstrator.observe(command, self._world.view)
        return [self._demonstrator.act()]


class _Fact(NamedTuple):
    name: str
    names: tuple[str, ...]


class _HandCoded:
    """alfworld's own expert, given the facts it asks about.

    It draws from Python's `random` where it has a choice, gives up after 200 steps, and says "look" at the start and
    whenever it has nothing better. Where the official class lets the expert's own errors end the game (it gave up; it
    ran out of receptacles to search, alfworld issues 121 and 128), the plan here is "look", too, and the game goes on.
    """

    def __init__(self, gamefile: str, world: World) -> None:
        with process_kept():
            from alfworld.agents.expert import HandCodedTWAgent

        self._world = world
        self._agent: Any = HandCodedTWAgent(max_steps=200)
        self._agent.reset(gamefile)

    def plan(self, command: str | None = None) -> list[str]:
        view = self._world.view
        if not command:
            self._agent.observe(view.observation)
            return list(NO_PLAN)
        state = {
            "feedback": view.observation,
            "admissible_commands": list(view.admissible_commands),
            "won": view.won,
            "facts": [
                _Fact(relation, ("agent1", *names) if relation == "holds" else tuple(names))
                for relation, *names in self._world.facts
            ],
        }
        try:
            action = self._agent.act(state, 0, view.won, command)
        except Exception:  # of any kind: it is code of others, and a game must not end for want of advice
            return list(NO_PLAN)
        return [action] if action in view.admissible_commands else list(NO_PLAN)

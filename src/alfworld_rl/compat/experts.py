"""Who says what to do next in `extra.expert_plan`."""

from typing import Any, NamedTuple, Protocol

from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.world import World


class Expert(Protocol):
    def plan(self, command: str | None = None) -> list[str]:
        """What to do now that `command` has been sent; None: at the start."""
        ...


def make_expert(name: str, gamefile: str, world: World) -> Expert:
    """The expert for a world that has just been reset. "handcoded" needs alfworld installed."""
    return _HandCoded(gamefile, world) if name == "handcoded" else _Demonstrating(world)


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
    whenever it has nothing better.
    """

    def __init__(self, gamefile: str, world: World) -> None:
        from alfworld.agents.expert import HandCodedTWAgent

        self._world = world
        self._agent: Any = HandCodedTWAgent(max_steps=200)
        self._agent.reset(gamefile)

    def plan(self, command: str | None = None) -> list[str]:
        view = self._world.view
        if not command:
            self._agent.observe(view.observation)
            return ["look"]
        state = {
            "feedback": view.observation,
            "admissible_commands": list(view.admissible_commands),
            "won": view.won,
            "facts": [
                _Fact(relation, ("agent1", *names) if relation == "holds" else tuple(names))
                for relation, *names in self._world.facts
            ],
        }
        action = self._agent.act(state, 0, view.won, command)
        return [action] if action in view.admissible_commands else ["look"]

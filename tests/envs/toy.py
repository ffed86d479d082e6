"""A corridor of four doors, to show that an environment need not be ALFWorld. A family and its pool in one."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple


class Corridor(NamedTuple):
    game_id: str
    split: str
    goal: int
    task_type: str = "corridor"


class Place(NamedTuple):
    text: str
    task: str
    actions: tuple[str, ...] = ("left", "right", "open")
    done: bool = False
    won: bool = False
    score: float = 0.0


class Walk:
    def __init__(self, goal: int) -> None:
        self.goal, self.at, self.task = goal, 0, f"open door {goal}"

    async def reset(self) -> Place:
        self.at = 0
        return Place(f"You stand at door 0 of 4. Your task is to: {self.task}", self.task)

    async def step(self, action: str) -> Place:
        won = action == "open" and self.at == self.goal
        self.at = min(max(self.at + {"left": -1, "right": 1, "open": 0}[action], 0), 3)
        return Place(f"You {action} at door {self.at}.", self.task, done=action == "open", won=won, score=float(won))

    def state_key(self) -> int:
        return self.at

    async def close(self) -> None: ...


class Corridors:
    def tasks(self, split: str) -> list[Corridor]:
        return [Corridor(f"{split} {number}", split, number % 4) for number in range(16)]

    def left_out(self, split: str) -> list[str]:
        return []

    def content_hash(self, task: Corridor) -> str:
        return f"{hash(task.goal):x}"

    def pool(self) -> AbstractContextManager["Corridors"]:
        return nullcontext(self)

    def make(self, task: Corridor) -> Walk:
        return Walk(task.goal)


def family(data_root: object, *, workers: bool = True) -> Corridors:
    return Corridors()

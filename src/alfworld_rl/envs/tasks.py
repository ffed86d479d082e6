"""Which tasks are played, and in what order."""

import hashlib
import random
from collections.abc import Collection, Sequence

from alfworld_rl.types import Task


def spread[T](tasks: Sequence[T], limit: int | None) -> Sequence[T]:
    """At most `limit` of the tasks, at even distances: a listing goes by task type."""
    if limit is None or limit >= len(tasks):
        return tasks
    return [tasks[number * len(tasks) // limit] for number in range(limit)]


def tasks_hash(tasks: Sequence[Task]) -> str:
    """Tells one list of tasks from another; 16 hex digits."""
    return hashlib.sha256("\n".join(task.game_id for task in tasks).encode()).hexdigest()[:16]


class TaskOrder[T]:
    """An endless sequence: all tasks, shuffled, then all of them shuffled anew, ... A position is a plain number."""

    def __init__(self, tasks: Sequence[T], seed: int) -> None:
        self._tasks = tasks
        self._seed = seed
        self._shuffled: tuple[int, list[T]] = (-1, [])

    def take(self, position: int, count: int, without: Collection[T] = ()) -> tuple[list[T], int]:
        """`count` different tasks from `position` on, none of them in `without`; and the position behind them.

        Fewer where there are not so many.
        """
        taken: list[T] = []
        end = position + 2 * len(self._tasks)  # every task occurs in any two epochs
        while len(taken) < count and position < end:
            task = self._at(position)
            position += 1
            if task not in taken and task not in without:
                taken.append(task)
        return taken, position

    def _at(self, position: int) -> T:
        epoch, place = divmod(position, len(self._tasks))
        if self._shuffled[0] != epoch:
            order = list(self._tasks)
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            self._shuffled = epoch, order
        return self._shuffled[1][place]

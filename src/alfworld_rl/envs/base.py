"""The contract of an environment: a family names tasks, its pool makes playable states of them."""

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from alfworld_rl.types import Observation, Task


class Environment(Protocol):
    """One playable state of a task, behind an await: a step may be computed elsewhere."""

    async def reset(self) -> Observation:
        """Start from the beginning, as often as wanted."""
        ...

    async def step(self, action: str) -> Observation:
        """Do one of the actions that the last observation offered."""
        ...

    def state_key(self) -> Hashable:
        """Equal for two environments of one task exactly when their states are equal.

        Where the state is hidden, what the player sees stands for it, as in GiGPO's paper (arXiv 2505.10978).
        """
        ...

    async def close(self) -> None:
        """Give back what it holds; it cannot be played any more."""
        ...


class Pool(Protocol):
    """Makes environments, and holds what they share, such as worker processes."""

    def make(self, task: Task) -> Environment:
        """A new environment of `task`. Raises AlfworldRLError where its data cannot be used."""
        ...


@runtime_checkable
class EnvironmentFamily(Protocol):
    """Where tasks and their environments come from."""

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, in an order that is the same everywhere. Raises UsageError where there are none."""
        ...

    def left_out(self, split: str) -> Sequence[str]:
        """What of the split's data cannot be played and why, a sentence each, for people."""
        ...

    def content_hash(self, task: Task) -> str:
        """A hash of all that the task is made of. Raises AlfworldRLError where it cannot be played."""
        ...

    def pool(self) -> AbstractContextManager[Pool]:
        """A pool for the time of the block."""
        ...

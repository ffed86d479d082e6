"""What agents act in: the contract of an environment, and ALFWorld as one of them."""

from collections.abc import Callable
from pathlib import Path

from alfworld_rl.envs.alfworld import AlfworldFamily
from alfworld_rl.envs.base import Environment, EnvironmentFamily, Pool
from alfworld_rl.registry import Registry

__all__ = ["ENVIRONMENTS", "AlfworldFamily", "Environment", "EnvironmentFamily", "Pool"]

FamilyOf = Callable[..., EnvironmentFamily]
"""(data_root, *, workers) -> the family of what lies there; `workers`: step slow worlds in processes of their own."""

ENVIRONMENTS: Registry[FamilyOf] = Registry("environment")


@ENVIRONMENTS.register("fast", "this project's engine")
def fast(data_root: Path, *, workers: bool = True) -> EnvironmentFamily:
    """ALFWorld's games by our engine, which needs no workers."""
    return AlfworldFamily(data_root)


@ENVIRONMENTS.register("textworld", "the official stack")
def textworld(data_root: Path, *, workers: bool = True) -> EnvironmentFamily:
    """ALFWorld's games by alfworld and TextWorld themselves."""
    return AlfworldFamily(data_root, official=True, workers=workers)

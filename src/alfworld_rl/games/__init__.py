"""Game files on disk: which there are, and new ones."""

from alfworld_rl.games.discovery import SPLITS, GameRef, Listing, discover
from alfworld_rl.games.generate import generate
from alfworld_rl.games.task_types import TASK_TYPES

__all__ = ["SPLITS", "TASK_TYPES", "GameRef", "Listing", "discover", "generate"]

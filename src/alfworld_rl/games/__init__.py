"""Game files on disk: which there are, and new ones."""

from alfworld_rl.games.discovery import SPLITS, TASK_TYPES, GameRef, Listing, discover
from alfworld_rl.games.generate import generate

__all__ = ["SPLITS", "TASK_TYPES", "GameRef", "Listing", "discover", "generate"]

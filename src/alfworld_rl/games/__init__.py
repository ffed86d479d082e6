"""Game files on disk: which there are, and new ones."""

from alfworld_rl.games.discovery import SPLITS, TASK_TYPES, GameRef, Listing, discover

__all__ = ["SPLITS", "TASK_TYPES", "GameRef", "Listing", "discover"]

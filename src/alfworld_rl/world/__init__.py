"""One playable state of a game, exactly as the official stack would play it."""

from alfworld_rl.games.game import Game, GameFileError
from alfworld_rl.world.view import View
from alfworld_rl.world.world import World

__all__ = ["Game", "GameFileError", "View", "World"]

"""Which games a command plays, and in what order."""

import hashlib
import random
from collections.abc import Collection, Sequence
from importlib.util import find_spec

from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games import GameRef, discover
from alfworld_rl.runs.settings import EpisodeSettings


def split_games(settings: EpisodeSettings, split: str) -> tuple[GameRef, ...]:
    """The split's games, in the order that is the same everywhere; what was left out is said.

    Raises UsageError where there are none, or where the official stack is asked for and not installed.
    """
    if settings.environment == "textworld" and not (find_spec("textworld") and find_spec("alfworld")):
        raise UsageError(
            f"--environment textworld needs the extra `alfworld`: `{installing('alfworld')}`; "
            "--environment fast plays the same games without it"
        )
    listing = discover(settings.games_folder, split)
    if listing.left_out:
        reasons = ", ".join(f"{count} {reason}" for reason, count in listing.left_out.items())
        print(f"{split}: {len(listing.games)} games; left out: {reasons}")
    for broken in listing.broken[:5]:
        print(f"  {broken}")
    return listing.games


def spread(games: Sequence[GameRef], limit: int | None) -> Sequence[GameRef]:
    """At most `limit` of the games, at even distances: a listing goes by task type."""
    if limit is None or limit >= len(games):
        return games
    return [games[number * len(games) // limit] for number in range(limit)]


def games_hash(games: Sequence[GameRef]) -> str:
    """Tells one list of games from another."""
    return hashlib.sha256("\n".join(game.game_id for game in games).encode()).hexdigest()[:16]


class GameOrder:
    """An endless sequence: all games, shuffled, then all of them shuffled anew, ... A position is a plain number."""

    def __init__(self, games: Sequence[GameRef], seed: int) -> None:
        self._games = games
        self._seed = seed
        self._shuffled: tuple[int, list[GameRef]] = (-1, [])

    def take(self, position: int, count: int, without: Collection[GameRef] = ()) -> tuple[list[GameRef], int]:
        """`count` different games from `position` on, none of them in `without`; and the position behind them.

        Fewer where there are not so many.
        """
        taken: list[GameRef] = []
        end = position + 2 * len(self._games)  # every game occurs in any two epochs
        while len(taken) < count and position < end:
            game = self._at(position)
            position += 1
            if game not in taken and game not in without:
                taken.append(game)
        return taken, position

    def _at(self, position: int) -> GameRef:
        epoch, place = divmod(position, len(self._games))
        if self._shuffled[0] != epoch:
            order = list(self._games)
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            self._shuffled = epoch, order
        return self._shuffled[1][place]

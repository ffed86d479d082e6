"""What changed from one result to another on the same games, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from alfworld_rl.evaluation.metrics import per_game, won_games
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.evaluation.statistics import compare_paired, mean, sign_flip_test


class HasRows(Protocol):
    """An `Evaluation`, or the `Results` of a file."""

    @property
    def rows(self) -> Sequence[ResultRow]: ...


@dataclass(frozen=True, slots=True)
class Change:
    """The mean change of `what` (success, steps or reward) a game, over `games` games.

    - p_value: two-sided; by McNemar's exact test where `gained` and `lost` (the games that only one of the two won)
      are known, which takes one trajectory a game, else by a randomization test on the games' means.
    """

    what: str
    games: int
    mean_change: float
    p_value: float
    gained: Sequence[str] | None = None
    lost: Sequence[str] | None = None

    @property
    def significant(self) -> bool:
        """At 5%."""
        return self.p_value < 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes of success, steps and reward, as far as both sides say them."""

    changes: Mapping[str, Change]

    def __getitem__(self, what: str) -> Change:
        return self.changes[what]

    def to_dataframe(self) -> "object":
        """A row a change; needs pandas."""
        import pandas

        return pandas.DataFrame(
            [
                {"what": one.what, "games": one.games, "mean_change": one.mean_change, "p_value": one.p_value}
                for one in self.changes.values()
            ]
        )

    def __repr__(self) -> str:
        lines = [f"{one.what} {one.mean_change:+.3g} (p = {one.p_value:.3g})" for one in self.changes.values()]
        return f"Comparison({', '.join(lines)})"


def compare(before: HasRows, after: HasRows) -> Comparison:
    """Compare two results game by game. Raises ValueError where they are not of the same games."""
    games = {row.game_id for row in before.rows}
    if not games or games != {row.game_id for row in after.rows}:
        raise ValueError("a paired comparison needs trajectories of the same games on both sides")
    changes: dict[str, Change] = {}
    won_before, won_after = won_games(before.rows), won_games(after.rows)
    if won_before and won_after:
        paired = compare_paired(won_before, won_after)
        changes["success"] = Change(
            "success", paired.games, paired.difference, paired.p_value, paired.gained, paired.lost
        )
    else:
        changes["success"] = _change("success", per_game(before.rows, "won"), per_game(after.rows, "won"))
    for what in ("steps", "reward"):
        means_before, means_after = per_game(before.rows, what), per_game(after.rows, what)
        if means_before and means_after:
            changes[what] = _change(what, means_before, means_after)
    return Comparison(changes)


def _change(what: str, before: Mapping[str, float], after: Mapping[str, float]) -> Change:
    changes_N = [after[game] - before[game] for game in before]
    return Change(what, len(changes_N), mean(changes_N), sign_flip_test(changes_N))

"""What rows of results say together, and how sure that is: what is independent is a game, not a step."""

import random

import pytest

from alfworld_rl.evaluation.metrics import intervals_of, metrics_of
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.evaluation.statistics import wilson_interval

RATES = ("valid_tool_call_rate", "admissible_action_rate")


def row(game: int, valid: int, steps: int = 20, split: str = "valid_seen", **more: bool) -> ResultRow:
    return ResultRow(
        game_id=f"{split}/{game}",
        split=split,
        evaluation_split=split,
        task_type="pick_and_place_simple",
        steps=steps,
        valid_tool_call_count=valid,
        admissible_action_count=valid,
        **{"won": valid > 10, **more},
    )


def width(interval: list[float]) -> float:
    return interval[1] - interval[0]


@pytest.mark.parametrize("rate", RATES)
def test_a_clustered_sample_gets_a_wider_interval(rate: str) -> None:
    """The same share of valid calls, 3/4: in every game alike by chance, or all in three games of four."""
    rng = random.Random(0)
    even = [row(game, sum(rng.random() < 0.75 for _ in range(20))) for game in range(60)]
    clustered = [row(game, 20 if game % 4 else 0) for game in range(60)]
    name = f"eval/all/{rate}"
    by_step = wilson_interval(900, 1200)
    assert width(intervals_of(even)[name]) == pytest.approx(by_step[1] - by_step[0], abs=0.015)
    assert metrics_of(clustered)[name] == 0.75
    assert width(intervals_of(clustered)[name]) > 3 * (by_step[1] - by_step[0])
    assert intervals_of(clustered)[name] == intervals_of(clustered)[f"eval/valid_seen/{rate}"]


def test_more_of_the_same_trajectories_make_no_interval_narrower_and_order_makes_none_another() -> None:
    rng = random.Random(1)
    rows = [row(game, rng.randint(0, 20), truncated=game % 3 == 0) for game in range(30)]
    once = intervals_of(rows)
    for others in (rows * 8, rng.sample(rows, len(rows))):
        again = intervals_of(others)
        assert again.keys() == once.keys()
        for name, interval in once.items():
            assert again[name] == pytest.approx(interval)


def test_every_interval_holds_its_rate_and_stays_within_0_and_1() -> None:
    rng = random.Random(2)
    rows = [row(game, rng.randint(0, 20), split=split) for split in ("valid_seen", "valid_unseen") for game in range(9)]
    rows += [row(99, 0, steps=0), row(98, 1, steps=1)]
    metrics, intervals = metrics_of(rows), intervals_of(rows)
    assert {f"eval/{split}/{rate}" for split in ("valid_seen", "valid_unseen", "all") for rate in RATES} < set(
        intervals
    )
    for name, (low, high) in intervals.items():
        assert 0 <= low <= metrics[name] <= high <= 1
    assert intervals_of([]) == {}
    assert intervals_of([row(1, 0, steps=0)])["eval/all/valid_tool_call_rate"] == [0, 1]

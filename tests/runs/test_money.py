"""Prices, costs and estimates, held against the public bill of the document's own run."""

from pathlib import Path

import pytest
from alfworld_rl.runs.money import GameTokens, Prices, affordable, cost, estimate

from alfworld_rl.errors import UsageError
from alfworld_rl.runs import money
from alfworld_rl.types import Usage

DOCUMENT_RUN = Usage(prefill=843_510_000, sampled=14_280_000, trained=62_240_000)
DOCUMENT_BILL = 1613.71


def test_the_shipped_prices_are_marked_as_an_estimate_and_give_the_documents_bill() -> None:
    prices = Prices.load()
    assert "estimate" in prices.source
    assert prices.date == "2026-08"
    assert cost(DOCUMENT_RUN, prices) == pytest.approx(DOCUMENT_BILL, rel=0.05)


def test_each_class_has_its_price_and_cached_tokens_are_not_paid_twice() -> None:
    prices = Prices(1.0, 0.25, 4.0, 8.0, "RMB", "today", "a test")
    assert (
        cost(Usage(prefill=3_000_000, cached=1_000_000, sampled=500_000, trained=250_000), prices) == 2 + 0.25 + 2 + 2
    )


def test_a_price_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(money.SHIPPED_PRICES.read_text().replace("prefill = 1.4", "prefill = 2"))
    assert Prices.load(path).prefill == 2


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("currency = [", "TOML"),
        ("", "prefill, cached, sampled, trained, currency, date, source"),
        ("per_million_tokens = 3", "prefill"),
        (
            'currency="RMB"\ndate="d"\nsource="s"\n'
            '[per_million_tokens]\nprefill=-1\ncached=nan\nsampled=true\ntrained="5"',
            "prefill, cached, sampled, trained;",
        ),
    ],
)
def test_a_price_file_that_is_wrong_is_named_with_what_is_wrong(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=named) as raised:
        Prices.load(path)
    assert str(path) in str(raised.value)


def test_a_price_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Prices.load(tmp_path / "none.toml")


def test_the_budget_ends_before_the_update_that_would_break_it() -> None:
    prices = Prices(1.0, 0.0, 0.0, 0.0, "RMB", "today", "a test")
    spent, update = Usage(prefill=8_000_000), Usage(prefill=2_000_000)
    assert affordable(spent, update, prices, None)
    assert affordable(spent, update, prices, 10.0)
    assert not affordable(spent, update, prices, 9.99)


def test_an_estimate_adds_up_turn_by_turn() -> None:
    tokens = GameTokens(opening=100, answer=20, message=10, steps_to_win=3)
    found = estimate(tokens, trajectories=2, max_episode_steps=5, max_trajectory_tokens=10_000)
    assert found.low == Usage(prefill=2 * (100 + 130 + 160), sampled=2 * 30, trained=2 * (100 + 3 * 10 + 2 * 20))
    assert found.high.sampled == 2 * 50
    # 100 + 3 x 10 + 2 x 20 = 170 tokens: the third turn is the last that fits.
    cut = estimate(tokens, trajectories=2, max_episode_steps=50, max_trajectory_tokens=170)
    assert cut.high == found.low


def test_the_estimate_of_the_documents_run_brackets_its_bill(real_games: Path) -> None:
    from alfworld_rl.games import discover
    from alfworld_rl.world import Game

    games = [Game.load(ref.path) for ref in discover(real_games, "train").games[::300]]
    found = estimate(
        money.measure(games, "full"), trajectories=80 * 64, max_episode_steps=50, max_trajectory_tokens=12_000
    )
    prices = Prices.load()
    assert cost(found.low, prices) < DOCUMENT_BILL < 1.5 * cost(found.high, prices)
    assert cost(found.high, prices) < 2 * DOCUMENT_BILL
    assert "estimate" in found.describe(prices)

"""Prices, costs and estimates, held against the public bill of the document's own run."""

from pathlib import Path

import pytest

from alfworld_rl.errors import UsageError
from alfworld_rl.runs import cost as room
from alfworld_rl.runs.cost import Cost, CostConfig, GameTokens, Prices, cost, estimate
from alfworld_rl.types import Capabilities, Usage

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
    path.write_text(room.SHIPPED_PRICES.read_text().replace("prefill = 1.4", "prefill = 2"))
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
    assert Cost(True, prices).affordable(spent, update)
    assert Cost(True, prices, 10.0).affordable(spent, update)
    assert not Cost(True, prices, 9.99).affordable(spent, update)


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
        room.measure(games, "full"), trajectories=80 * 64, max_episode_steps=50, max_trajectory_tokens=12_000
    )
    prices = Prices.load()
    assert cost(found.low, prices) < DOCUMENT_BILL < 1.5 * cost(found.high, prices)
    assert cost(found.high, prices) < 2 * DOCUMENT_BILL
    assert "estimate" in found.describe(Cost(True, prices))


PAID, FREE = Capabilities(default_model="m"), Capabilities(default_model="m", billed=False)
USED = Usage(prefill=1_000_000)


def test_a_model_whose_prices_nobody_knows_costs_unknown_and_has_no_ceiling(tmp_path: Path) -> None:
    shipped = Prices.load()
    (model,) = shipped.models
    assert Cost.of_model(CostConfig(), PAID, model).text(USED) == f"~{shipped.prefill:.2f} RMB"
    other = Cost.of_model(CostConfig(), PAID, "Qwen/Qwen3-32B")
    assert other.text(USED) == "cost unknown"
    assert other.metrics(USED, USED) == {}
    assert other.affordable(USED, USED)
    dry = estimate(GameTokens(100, 20, 10, 3), trajectories=2, max_episode_steps=5, max_trajectory_tokens=10_000)
    assert "RMB" not in dry.describe(other)
    assert "--prices FILE" in dry.describe(other)
    with pytest.raises(UsageError, match=r"--max-cost needs the prices of Qwen/Qwen3-32B.*--prices FILE"):
        Cost.of_model(CostConfig(max_cost=5.0), PAID, "Qwen/Qwen3-32B")
    # Prices of one's own are for whatever model one names.
    path = tmp_path / "prices.toml"
    path.write_text(room.SHIPPED_PRICES.read_text().replace(f'models = ["{model}"]\n', ""))
    own = Cost.of_model(CostConfig(prices=path, max_cost=5.0), PAID, "Qwen/Qwen3-32B")
    assert own.text(USED) == f"~{shipped.prefill:.2f} RMB"
    assert own.affordable(USED, USED)
    assert not own.affordable(Usage(prefill=3_000_000), USED)


def test_what_is_not_billed_is_free_unless_prices_are_given(tmp_path: Path) -> None:
    free = Cost.of_model(CostConfig(max_cost=0.01), FREE, "any")
    assert (free.text(USED), free.of(USED), free.affordable(USED, USED)) == ("free", 0, True)
    path = tmp_path / "prices.toml"
    path.write_text(
        'date="d"\nsource="s"\ncurrency="EUR"\n[per_million_tokens]\nprefill=2\ncached=0\nsampled=0\ntrained=0\n'
    )
    own = Cost.of_model(CostConfig(prices=path, max_cost=3.0), FREE, "any")
    assert own.text(USED) == "~2.00 EUR"
    assert not own.affordable(USED, USED)

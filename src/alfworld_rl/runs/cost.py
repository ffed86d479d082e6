"""What tokens cost: price files, the cost of what was used, and an estimate of what a run will use."""

import json
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alfworld_rl.agents import CommandsShown
from alfworld_rl.agents.calls import TOOL
from alfworld_rl.agents.texts import answer_text, opening_text
from alfworld_rl.agents.tool_call import system_text
from alfworld_rl.config import Config, option
from alfworld_rl.errors import UsageError
from alfworld_rl.types import Capabilities, Usage
from alfworld_rl.world import Game, World

SHIPPED_PRICES = Path(__file__).with_name("prices.toml")
CLASSES = ("prefill", "cached", "sampled", "trained")


class CostConfig(Config):
    """What it may cost."""

    prices: Path | None = option(None, "price file (default: the estimate shipped with the package)")
    max_cost: float | None = option(None, "end, everything saved, before it costs more than this", gt=0)


@dataclass(frozen=True, slots=True)
class Prices:
    """Per million tokens of each class. Prompt tokens served from a cache cost `cached`, the others `prefill`.

    `models` are the base models that the prices are of; empty: of any.
    """

    prefill: float
    cached: float
    sampled: float
    trained: float
    currency: str
    date: str
    source: str
    models: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path | None = None) -> "Prices":
        """Read a price file, or with None the one shipped. Raises UsageError that says what is wrong with it."""
        path = path or SHIPPED_PRICES
        if path.exists() and not path.is_file():
            raise UsageError(f"the price file {path} cannot be read (it is no file)")
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"the price file {path} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"the price file {path} is no TOML ({error}); start from a copy of {SHIPPED_PRICES}"
            ) from error
        given = content.get("per_million_tokens")
        numbers = given if isinstance(given, dict) else {}
        wrong = [name for name in CLASSES if not _is_price(numbers.get(name))]
        wrong += [name for name in ("currency", "date", "source") if not isinstance(content.get(name), str)]
        models = content.get("models", [])
        if not (isinstance(models, list) and all(isinstance(name, str) for name in models)):
            wrong.append("models")
        if wrong:
            raise UsageError(
                f"the price file {path} lacks, or has no valid value for, {', '.join(wrong)}; "
                f"start from a copy of {SHIPPED_PRICES}"
            )
        return cls(
            **{name: float(numbers[name]) for name in CLASSES},
            currency=content["currency"],
            date=content["date"],
            source=content["source"],
            models=tuple(models),
        )

    def format(self, amount: float) -> str:
        return f"{amount:,.2f} {self.currency}"


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def cost(usage: Usage, prices: Prices) -> float:
    """In the prices' currency."""
    tokens_times_price = (
        (usage.prefill - usage.cached) * prices.prefill
        + usage.cached * prices.cached
        + usage.sampled * prices.sampled
        + usage.trained * prices.trained
    )
    return tokens_times_price / 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """What the tokens of one model cost on one backend: nothing, `prices`, or nobody here knows (None)."""

    billed: bool
    prices: Prices | None
    ceiling: float | None = None

    @classmethod
    def of_model(cls, config: CostConfig, capabilities: Capabilities, base_model: str) -> "Cost":
        """Whoever gives a price file pays, whatever the backend.

        Raises UsageError for a price file that cannot be read, or a ceiling where prices are not known.
        """
        billed = capabilities.billed or config.prices is not None
        prices: Prices | None = Prices.load(config.prices)
        if prices and prices.models and base_model not in prices.models:
            if config.max_cost is not None and billed:
                raise UsageError(
                    f"--max-cost needs the prices of {base_model}, which are not known; give them with --prices FILE"
                )
            prices = None
        return cls(billed, prices, config.max_cost)

    def of(self, usage: Usage) -> float:
        """In the prices' currency; 0 where nothing is billed or prices are not known."""
        return cost(usage, self.prices) if self.billed and self.prices is not None else 0.0

    def affordable(self, spent: Usage, most_expensive_update: Usage) -> bool:
        """Whether one more update, as expensive as the most expensive so far, stays within the ceiling."""
        return self.ceiling is None or self.of(spent) + self.of(most_expensive_update) <= self.ceiling

    @property
    def ceiling_text(self) -> str:
        currency = f" {self.prices.currency}" if self.prices is not None else ""
        return f"{self.ceiling:g}{currency}" if self.ceiling is not None else "none"

    def text(self, usage: Usage) -> str:
        """For people."""
        if not self.billed:
            return "free"
        return "cost unknown" if self.prices is None else f"~{self.prices.format(self.of(usage))}"

    def metrics(self, used: Usage, total: Usage) -> dict[str, float]:
        """`trainer/cost` of an update and `trainer/total_cost` so far; neither where prices are not known."""
        if self.billed and self.prices is None:
            return {}
        return {"trainer/cost": self.of(used), "trainer/total_cost": self.of(total)}


@dataclass(frozen=True, slots=True)
class GameTokens:
    """Mean tokens of the parts of a conversation, and steps to win for who knows how."""

    opening: float
    answer: float
    message: float
    steps_to_win: float


# 14.28M tokens sampled in 5,120 trajectories that on average read 164,700 tokens of prompts and ended at the limit
# of 12,000: about 26 messages each, of 107 tokens.
MESSAGE_TOKENS = 107.0
TEMPLATE_TOKENS = 150  # what Qwen3.5's template says about tools, beside our own text


def measure(games: Sequence[Game], commands: CommandsShown) -> GameTokens:
    """Play `games` by their walkthroughs and count what an agent would have to read."""
    if not games:
        raise UsageError("there is no game to measure: see `alfworld-rl games` for how to get some")
    openings, answers = [], []
    for game in games:
        world = World(game)
        view = world.reset()
        openings.append(count_tokens(opening_text(view, commands)))
        for command in game.walkthrough:
            before, view = view.admissible_commands, world.step(command)
            answers.append(count_tokens(answer_text(before, view, commands)))
    fixed = count_tokens(system_text(commands)) + count_tokens(json.dumps(TOOL)) + TEMPLATE_TOKENS
    return GameTokens(
        opening=fixed + sum(openings) / len(openings),
        answer=sum(answers) / max(1, len(answers)),
        message=MESSAGE_TOKENS,
        steps_to_win=max(1.0, len(answers) / len(games)),
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Between every game won by the shortest way and every trajectory run to its limit of steps or tokens."""

    low: Usage
    high: Usage

    def describe(self, price: Cost) -> str:
        """A table for people, with the source of the prices where they are known."""
        lines = [f"{'':10}{'all won at once':>18}{'all to the limit':>18}"]
        for name in ("prefill", "sampled", "trained"):
            low, high = getattr(self.low, name), getattr(self.high, name)
            lines.append(f"{name:10}{low / 1e6:>17,.2f}M{high / 1e6:>17,.2f}M")
        prices = price.prices
        if not price.billed:
            lines.append("The tokens of this backend are free.")
        elif prices is None:
            lines.append("What a token of this model costs is not known here; --prices FILE tells it.")
        else:
            lines.append(f"{prices.currency:10}{price.of(self.low):>18,.2f}{price.of(self.high):>18,.2f}")
            lines.append(f"Prices of {prices.date}: {prices.source}. No token is counted as served from a cache.")
        return "\n".join(lines)


def estimate(
    tokens: GameTokens, *, trajectories: int, max_episode_steps: int, max_trajectory_tokens: int, epochs: int = 1
) -> Estimate:
    """What `trajectories` will use; every one is taken to be trained on, `epochs` times."""
    turn = tokens.answer + tokens.message
    most_steps = max(1, min(max_episode_steps, int((max_trajectory_tokens - tokens.opening + tokens.answer) // turn)))

    def usage(steps: float) -> Usage:
        # Turn k reads the opening and k whole turns, k = 0 .. steps - 1.
        prefill = steps * tokens.opening + turn * steps * (steps - 1) / 2
        trained = tokens.opening + steps * tokens.message + (steps - 1) * tokens.answer
        return Usage(
            prefill=round(trajectories * prefill),
            sampled=round(trajectories * steps * tokens.message),
            trained=round(trajectories * epochs * trained),
        )

    return Estimate(low=usage(min(tokens.steps_to_win, most_steps)), high=usage(most_steps))


# How byte-pair tokenizers of the Qwen and GPT kind cut text before they merge: words with the space before them,
# digits one by one, punctuation, runs of line ends, other space.
_PIECES = re.compile(r" ?[A-Za-z]+|[0-9]|\n+| ?[^\sA-Za-z0-9]+\n*|\s+")


def count_tokens(text: str) -> int:
    """About how many tokens a large model's tokenizer makes of ALFWorld text, without having one.

    Words of up to eight letters are one token; longer ones ("sinkbasin", "countertop") two.
    """
    return sum(2 if len(piece.strip()) > 8 and piece.strip().isalpha() else 1 for piece in _PIECES.findall(text))

"""alfworld-agent-rl: train a language-model agent by reinforcement learning on ALFWorld, and measure what it learned.

The public functions, imported when they are first used: see `alfworld_rl.api` and examples/.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alfworld_rl.api import (
        Games,
        advantages,
        compare,
        evaluate,
        load_games,
        make_agent,
        make_data,
        open_sampler,
        open_trainer,
        rewards,
        rollout,
        update,
    )
    from alfworld_rl.evaluation.evaluate import Evaluation
    from alfworld_rl.rollouts import Limits, Sampling
    from alfworld_rl.world import Game, World

__all__ = [
    "Evaluation",
    "Game",
    "Games",
    "Limits",
    "Sampling",
    "World",
    "advantages",
    "compare",
    "evaluate",
    "load_games",
    "make_agent",
    "make_data",
    "open_sampler",
    "open_trainer",
    "rewards",
    "rollout",
    "update",
]

_ROOMS = {
    "Evaluation": "evaluation.evaluate",
    "Game": "world",
    "World": "world",
    "Limits": "rollouts",
    "Sampling": "rollouts",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS.get(name, 'api')}"), name)

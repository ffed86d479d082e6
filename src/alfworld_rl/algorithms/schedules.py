"""Learning rates over a run, by name. All rise linearly to their peak in the first `warmup` updates."""

import math
from collections.abc import Callable

from alfworld_rl.registry import Registry

Schedule = Callable[[float], float]
"""Share of the run behind the warm-up that is over, in [0, 1] -> share of the peak."""

SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule")


@SCHEDULES.register("constant", "the peak, to the end")
def constant(done: float) -> float:
    return 1.0


@SCHEDULES.register("linear", "falls to zero in a straight line (arXiv 2502.15938)")
def linear(done: float) -> float:
    return 1 - done


@SCHEDULES.register("cosine", "falls to zero along half a cosine (arXiv 1608.03983)")
def cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


def learning_rate(update: int, *, peak: float, schedule: Schedule, warmup: int, updates: int) -> float:
    """The learning rate of `update`, counted from 0, of a run of `updates`."""
    warm = min(1.0, (update + 1) / (warmup + 1))
    done = min(1.0, max(0, update - warmup) / max(1, updates - warmup))
    return peak * min(warm, schedule(done))

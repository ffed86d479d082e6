"""A reward of your own: a function of a trajectory that gives one number for each of its steps.

    alfworld-rl train --backend local --reward examples.new_reward:quick --run-name quick

Its name goes into the run's settings and into results, so that scores under unlike rewards are never compared.
"""

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.rollouts import Trajectory


def quick(trajectory: Trajectory, *, step_cost: float = 0.02) -> dict[str, NDArray[np.float64]]:
    """1 for winning, less a little for every step, so that shorter plays are worth more; a lost one costs nothing."""
    steps = len(trajectory.steps)
    won = np.zeros(steps)
    won[-1:] = trajectory.won
    # Named parts stand apart in the metrics: reward/part/won and reward/part/haste.
    return {"won": won, "haste": np.full(steps, -step_cost * trajectory.won)}

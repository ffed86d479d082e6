"""From groups of trajectories to an update of the weights."""

from alfworld_rl.algorithms.advantages import ESTIMATORS, Estimator
from alfworld_rl.algorithms.data import GroupAdvantages, TrainingData, estimate, make_data, with_kl_penalty
from alfworld_rl.algorithms.optimize import Update, optimize
from alfworld_rl.algorithms.rewards import REWARDS, Reward, StepRewards, score, score_groups
from alfworld_rl.algorithms.schedules import SCHEDULES, learning_rate

__all__ = [
    "ESTIMATORS",
    "REWARDS",
    "SCHEDULES",
    "Estimator",
    "GroupAdvantages",
    "Reward",
    "StepRewards",
    "TrainingData",
    "Update",
    "estimate",
    "learning_rate",
    "make_data",
    "optimize",
    "score",
    "score_groups",
    "with_kl_penalty",
]

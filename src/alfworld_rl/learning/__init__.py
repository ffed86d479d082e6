"""From groups of trajectories to an update of the weights."""

from alfworld_rl.learning.advantages import AdvantageName, replacements, verdict
from alfworld_rl.learning.datums import TrainingData, training_data, with_kl_penalty
from alfworld_rl.learning.updates import LearningSettings, Update, update

__all__ = [
    "AdvantageName",
    "LearningSettings",
    "TrainingData",
    "Update",
    "replacements",
    "training_data",
    "update",
    "verdict",
    "with_kl_penalty",
]

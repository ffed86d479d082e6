"""From games and a sampler to trajectories."""

from alfworld_rl.rollout.environments import Environments
from alfworld_rl.rollout.scheduler import collect
from alfworld_rl.rollout.seeds import request_seed
from alfworld_rl.rollout.settings import RolloutSettings
from alfworld_rl.rollout.trajectory import Group, Trajectory

__all__ = ["Environments", "Group", "RolloutSettings", "Trajectory", "collect", "request_seed"]

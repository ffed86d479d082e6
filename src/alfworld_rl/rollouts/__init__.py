"""From tasks and a sampler to trajectories."""

from alfworld_rl.rollouts.collect import Sampling, rollout
from alfworld_rl.rollouts.trajectory import Group, Step, StopReason, Trajectory
from alfworld_rl.rollouts.turn import Episode, Limits

__all__ = ["Episode", "Group", "Limits", "Sampling", "Step", "StopReason", "Trajectory", "rollout"]

"""From tasks and a sampler to trajectories."""

from alfworld_rl.rollouts.collect import Sampling, rollout
from alfworld_rl.rollouts.trajectory import Group, Step, StopReason, Trajectory
from alfworld_rl.rollouts.turn import NOTHING_HAPPENS, Episode, Limits

__all__ = ["NOTHING_HAPPENS", "Episode", "Group", "Limits", "Sampling", "Step", "StopReason", "Trajectory", "rollout"]

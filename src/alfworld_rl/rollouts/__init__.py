"""From tasks and a sampler to trajectories."""

from alfworld_rl.rollouts.collect import DEFAULT_LIMITS, NEAR_GREEDY, Sampling, rollout
from alfworld_rl.rollouts.trajectory import Group, Step, StopReason, Trajectory
from alfworld_rl.rollouts.turn import Episode, Limits

__all__ = [
    "DEFAULT_LIMITS",
    "NEAR_GREEDY",
    "Episode",
    "Group",
    "Limits",
    "Sampling",
    "Step",
    "StopReason",
    "Trajectory",
    "rollout",
]

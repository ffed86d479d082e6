"""What trajectories say, by name."""

from collections.abc import Sequence
from typing import get_args

import numpy as np

from alfworld_rl.rollouts.trajectory import Group, StopReason
from alfworld_rl.types import Usage


def rollout_metrics(groups: Sequence[Group], used: Usage) -> dict[str, float]:
    """`rollout/` metrics of the groups, `reward/success_rate` of all and by task type, and the tokens `used`.

    Failed trajectories are counted and otherwise left out: what they would have come to nobody knows.
    """
    everyone = [trajectory for group in groups for trajectory in group.trajectories]
    finished = [trajectory for trajectory in everyone if not trajectory.failed]
    steps = sum(len(trajectory.steps) for trajectory in finished)
    # A request repeats all of its trajectory up to the last message; only the environment's newest answer is new.
    repeated = sum(trajectory.transcript.cacheable_count for trajectory in everyone)
    metrics = {"reward/success_rate": _mean([trajectory.won for trajectory in finished])}
    for task_type in sorted({trajectory.game.task_type for trajectory in finished}):
        won = [trajectory.won for trajectory in finished if trajectory.game.task_type == task_type]
        metrics[f"reward/success_rate/{task_type}"] = _mean(won)
    for reason in get_args(StopReason):
        metrics[f"rollout/stopped/{reason}"] = sum(trajectory.stop_reason == reason for trajectory in everyone)
    return metrics | {
        "rollout/groups": len(groups),
        "rollout/trajectories": len(everyone),
        "rollout/failed": len(everyone) - len(finished),
        "rollout/steps_mean": _mean([len(trajectory.steps) for trajectory in finished]),
        "rollout/invalid_actions_mean": _mean([trajectory.invalid_action_count for trajectory in finished]),
        "rollout/truncated_rate": _mean([trajectory.truncated for trajectory in finished]),
        "rollout/valid_tool_call_rate": _share(sum(one.valid_tool_call_count for one in finished), steps),
        "rollout/admissible_action_rate": _share(sum(one.admissible_action_count for one in finished), steps),
        "rollout/thought_tokens_per_step": _share(sum(one.thought_tokens for one in finished), steps),
        "rollout/trajectory_tokens_mean": _mean([trajectory.token_count for trajectory in finished]),
        "rollout/prefill_tokens": used.prefill,
        "rollout/cached_tokens": used.cached,
        "rollout/sampled_tokens": used.sampled,
        "rollout/cached_share": _share(used.cached, used.prefill),
        "rollout/cacheable_share": _share(repeated, used.prefill),
        "time/sampling_mean": _mean([trajectory.sampling_seconds for trajectory in finished]),
        "time/environment_mean": _mean([trajectory.environment_seconds for trajectory in finished]),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

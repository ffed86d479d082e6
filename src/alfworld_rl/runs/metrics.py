"""What the trajectories of an update say, by name."""

from collections.abc import Sequence

from alfworld_rl.backends.protocol import Usage
from alfworld_rl.evaluation.statistics import mean
from alfworld_rl.rollout import Group, Trajectory


def rollout_metrics(groups: Sequence[Group], used: Usage) -> dict[str, float]:
    """`reward/` and `rollout/` metrics of the groups, and the tokens `used` to play them.

    Failed trajectories are counted and otherwise left out: what they would have earned nobody knows.
    """
    everyone = [trajectory for group in groups for trajectory in group.trajectories]
    finished = [trajectory for trajectory in everyone if not trajectory.failed]
    steps = sum(trajectory.steps for trajectory in finished)
    repeated = sum(_repeated_tokens(group) for group in groups)
    rewards = [trajectory.reward for trajectory in finished]
    metrics: dict[str, float] = {
        "reward/mean": mean(rewards),
        "reward/min": min(rewards, default=0.0),
        "reward/max": max(rewards, default=0.0),
        "reward/success_rate": mean([trajectory.won for trajectory in finished]),
    }
    for task_type in sorted({trajectory.game.task_type for trajectory in finished}):
        won = [trajectory.won for trajectory in finished if trajectory.game.task_type == task_type]
        metrics[f"reward/success_rate/{task_type}"] = mean(won)
    for reason in ("won", "environment_done", "max_steps", "token_limit", "failed"):
        metrics[f"rollout/stopped/{reason}"] = sum(trajectory.stop_reason == reason for trajectory in everyone)
    return metrics | {
        "rollout/groups": len(groups),
        "rollout/trajectories": len(everyone),
        "rollout/failed": len(everyone) - len(finished),
        "rollout/steps_mean": mean([trajectory.steps for trajectory in finished]),
        "rollout/invalid_actions_mean": mean([trajectory.invalid_action_count for trajectory in finished]),
        "rollout/truncated_rate": mean([trajectory.truncated for trajectory in finished]),
        "rollout/valid_tool_call_rate": _share(sum(one.valid_tool_call_count for one in finished), steps),
        "rollout/admissible_action_rate": _share(sum(one.admissible_action_count for one in finished), steps),
        "rollout/trajectory_tokens_mean": mean([len(trajectory.transcript) for trajectory in finished]),
        "rollout/prefill_tokens": used.prefill,
        "rollout/cached_tokens": used.cached,
        "rollout/sampled_tokens": used.sampled,
        "rollout/cached_share": _share(used.cached, used.prefill),
        "rollout/cacheable_share": _share(repeated, used.prefill),
        "time/sampling_mean": mean([trajectory.sampling_seconds for trajectory in finished]),
        "time/environment_mean": mean([trajectory.environment_seconds for trajectory in finished]),
    }


def _repeated_tokens(group: Group) -> int:
    """Prompt tokens that the service had already read or written itself when they came again.

    A request repeats all of its trajectory up to the last message; only the environment's newest answer is new.
    """
    return sum(_repeated_tokens_of(trajectory) for trajectory in group.trajectories)


def _repeated_tokens_of(trajectory: Trajectory) -> int:
    # Each turn but the last was followed by a request whose prompt holds everything up to that turn's end.
    return sum(end for _, end in trajectory.transcript.turns[:-1])


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

"""Trajectories made by hand."""

from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.rollouts import Group, Step, Trajectory
from alfworld_rl.types import Completion


def trajectory(won=False, invalid=0, *, stop_reason="max_steps", turns=None, keys=None, written=2):
    """`turns` messages of `written` tokens, the first `invalid` of them not accepted, in the states `keys`."""
    turns = max(1, invalid) if turns is None else turns
    transcript = Transcript([1, 2, 3])
    steps = []
    for turn in range(turns):
        transcript.write(Completion((10 + turn,) * written, (-0.5 - turn,) * written, "stop"))
        transcript.show([4])
        key = keys[turn] if keys else turn
        steps.append(Step(transcript.turns[-1], "", "", "look", turn >= invalid, False, "", key))
    reason = "won" if won else stop_reason
    return Trajectory(game=None, transcript=transcript, steps=steps, won=won, stop_reason=reason)


def group(*trajectories):
    return Group(None, trajectories)

"""Worlds for rollouts, here and in worker processes."""

import asyncio
import importlib.util
import os
import signal

import pytest

from alfworld_rl.errors import UsageError
from alfworld_rl.rollout import Environments, RolloutSettings
from alfworld_rl.rollout.environments import WorldProcessError

OFFICIAL = RolloutSettings(environment="textworld")


@pytest.fixture
def game_path(real_games):
    return min((real_games / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"))


async def test_anchors_tell_states_apart_and_know_them_again(game_path):
    with Environments(RolloutSettings()) as environments:
        first, second = environments.make(game_path), environments.make(game_path)
        view = await first.reset()
        assert await second.reset() == view
        start = first.anchor
        assert second.anchor == start
        goals = [command for command in view.admissible_commands if command.startswith("go to")]
        await first.step(goals[0])
        await second.step(goals[-1])
        assert len({start, first.anchor, second.anchor}) == 3
        await second.step(goals[0])
        assert first.anchor == second.anchor
        await first.step("look")
        assert first.anchor == second.anchor


def test_the_official_stack_is_asked_for_only_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="uv sync --inexact --extra alfworld"):
        Environments(OFFICIAL)


async def test_worker_processes_say_what_is_wrong_and_are_replaced_when_they_die(tmp_path):
    pytest.importorskip("alfworld", reason="the official stack is not installed (extra alfworld)")
    missing = tmp_path / "missing.tw-pddl"
    with Environments(OFFICIAL) as environments:
        environment = environments.make(missing)
        with pytest.raises(WorldProcessError, match=r"missing\.tw-pddl"):
            await environment.reset()
        (worker,) = environments._workers
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(WorldProcessError, match="died"):
            await environment.reset()
        await environment.close()
        await asyncio.to_thread(worker._process.join)
        with pytest.raises(WorldProcessError, match=r"missing\.tw-pddl"):
            await environments.make(missing).reset()
        (replacement,) = environments._workers
        assert replacement is not worker
    assert not replacement.alive

"""ALFWorld as an environment family: our engine in this process, the official stack in worker processes."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
from dataclasses import dataclass

import pytest

from alfworld_rl.envs import ENVIRONMENTS, AlfworldFamily, alfworld
from alfworld_rl.envs.base import EnvironmentFamily
from alfworld_rl.envs.workers import WorldProcessError
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.games import GameRef


@pytest.fixture
def family(real_games):
    return AlfworldFamily(real_games)


@pytest.fixture
def game(family):
    return family.tasks("valid_seen")[0]


async def test_state_keys_tell_states_apart_and_know_them_again(family, game):
    with family.pool() as pool:
        first, second = pool.make(game), pool.make(game)
        view = await first.reset()
        assert await second.reset() == view
        start = first.state_key()
        assert second.state_key() == start
        # The state itself, which no collision of hashes can merge with another.
        assert not isinstance(start, int)
        goals = [command for command in view.actions if command.startswith("go to")]
        await first.step(goals[0])
        await second.step(goals[-1])
        assert len({start, first.state_key(), second.state_key()}) == 3
        await second.step(goals[0])
        assert first.state_key() == second.state_key()
        await first.step("look")
        assert first.state_key() == second.state_key()
        await first.reset()
        assert first.state_key() == start


def test_tasks_are_sorted_and_hashed_by_their_content(family, game):
    tasks = family.tasks("valid_seen")
    assert [task.game_id for task in tasks] == sorted(task.game_id for task in tasks)
    assert {task.split for task in tasks} == {"valid_seen"}
    assert family.content_hash(game) == hashlib.sha256(game.path.read_bytes()).hexdigest()
    with pytest.raises(UsageError):
        AlfworldFamily(family.data_root / "nowhere").tasks("train")


def test_a_game_that_cannot_be_played_has_no_hash(family, tmp_path):
    broken = tmp_path / "game.tw-pddl"
    for content in (None, json.dumps({"pddl_problem": ""})):
        if content is not None:
            broken.write_text(content)
        with pytest.raises(AlfworldRLError, match=r"game\.tw-pddl"):
            family.content_hash(GameRef(broken, "a/b", "train", "find"))


def test_a_task_of_another_family_is_refused(family):
    @dataclass(frozen=True)
    class Other:
        game_id: str = "other"
        split: str = "train"
        task_type: str = "find"

    with pytest.raises(TypeError, match="ALFWorld"), family.pool() as pool:
        pool.make(Other())


def test_what_was_left_out_is_said(game, tmp_path):
    release = tmp_path / "json_2.1.1"
    shutil.copytree(game.path.parent, release / game.game_id)
    assert list(AlfworldFamily(tmp_path).left_out("valid_seen")) == []
    broken = release / "valid_seen" / "pick_and_place_simple-Mug-None-Desk-301" / "trial_T20190101_000000_000000"
    broken.mkdir(parents=True)
    for name in ("traj_data.json", "game.tw-pddl"):
        (broken / name).write_text("{")
    counted, named = AlfworldFamily(tmp_path).left_out("valid_seen")
    assert counted.startswith("valid_seen: 1 games; left out: 1 ")
    assert str(broken) in named


def test_every_environment_of_the_registry_is_a_family(real_games):
    assert isinstance(ENVIRONMENTS["fast"](real_games), EnvironmentFamily)
    pytest.importorskip("alfworld", reason="the official stack is not installed (extra alfworld)")
    assert isinstance(ENVIRONMENTS["textworld"](real_games, workers=False), EnvironmentFamily)


def test_the_official_stack_is_asked_for_only_where_it_is_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(alfworld, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="uv sync --inexact --extra alfworld"):
        AlfworldFamily(tmp_path, official=True)


async def test_worker_processes_say_what_is_wrong_and_are_replaced_when_they_die(tmp_path):
    pytest.importorskip("alfworld", reason="the official stack is not installed (extra alfworld)")
    missing = GameRef(tmp_path / "missing.tw-pddl", "valid_seen/missing/trial", "valid_seen", "find")
    with AlfworldFamily(tmp_path, official=True).pool() as pool:
        environment = pool.make(missing)
        with pytest.raises(WorldProcessError, match=r"missing\.tw-pddl"):
            await environment.reset()
        (worker,) = pool._workers._workers
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(WorldProcessError, match="died"):
            await environment.reset()
        await environment.close()
        await asyncio.to_thread(worker._process.join)
        with pytest.raises(WorldProcessError, match=r"missing\.tw-pddl"):
            await pool.make(missing).reset()
        (replacement,) = pool._workers._workers
        assert replacement is not worker
    assert not replacement.alive

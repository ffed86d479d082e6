"""Reinforcement learning on the toy environment."""

import asyncio

import pytest

from alfworld_rl.agents import FORMATS
from alfworld_rl.algorithms.rl import ReinforcementLearning
from alfworld_rl.envs.tasks import TaskOrder
from alfworld_rl.rollouts import Limits, Sampling
from alfworld_rl.types import AdamParams
from envs.toy import Corridors
from scripted_backend import TOKENIZER


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def recipe(runner):
    def make(**changed):
        options = {
            "order": TaskOrder(Corridors().tasks("train"), 7),
            "agent": FORMATS["tool-call"](TOKENIZER),
            "pool": Corridors(),
            "runner": runner,
            "limits": Limits(max_episode_steps=8, max_assistant_tokens=400),
            "sampling": Sampling(),
            "adam": lambda update: AdamParams(learning_rate=update + 1),
            "games_per_batch": 3,
            "group_size": 4,
        }
        return ReinforcementLearning(**options | changed)

    return make

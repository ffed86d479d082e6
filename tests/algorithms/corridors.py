"""Policies that walk the toy environment's corridor."""

import random
import re

from agent_models import call
from alfworld_rl.types import TrainingStart
from scripted_backend import ScriptedBackend


def goal_of(prompt):
    return int(re.search(r"open door (\d)", prompt)[1])


def wanders(prompt, seed, weights):
    chance = random.Random(f"{seed}/{weights}")
    return call(chance.choice(["left", "right", "open"])) if chance.random() < 0.8 else "I give up."


def trainer(tmp_path, player=wanders, **options):
    backend = ScriptedBackend(tmp_path, "run", player=player, **options)
    return backend.trainer(TrainingStart(base_model="any"), lora_rank=0, seed=500)

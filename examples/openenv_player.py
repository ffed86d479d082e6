"""A player on another machine: it needs `pip install openenv` and nothing of ours.

alfworld-rl serve --data-root games                        # there
python examples/openenv_player.py http://127.0.0.1:8000    # here
"""

import random
import sys

from openenv import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as world:
    result = world.reset(split="train", seed=1)  # or index=0, or game_id="train/..."
    print(result.observation["text"])
    while not result.done:
        command = random.choice(result.observation["admissible_commands"])
        result = world.step({"command": command})
        print(f"\n> {command}\n{result.observation['text']}")
    print("\nwon" if result.observation["won"] else "\nnot won")

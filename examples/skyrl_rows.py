"""The rows that SkyRL trains on, and one play of the environment that it makes of a row.

    uv run --extra skyrl python examples/skyrl_rows.py OUT.parquet [DATA_ROOT]

SkyRL is then told `environment.env_class=alfworld`, in a process that has called `register`.
"""

import sys

import pandas
import skyrl_gym

from alfworld_rl.compat.skyrl_gym import ENV_ID, register, rows

games = rows(data_root=sys.argv[2] if len(sys.argv) > 2 else None, split="train", max_episode_steps=30)
pandas.DataFrame(games).to_parquet(sys.argv[1])
print(f"{len(games)} rows in {sys.argv[1]}")

register()
env = skyrl_gym.make(ENV_ID, extras=games[0])
prompt, _ = env.init(games[0]["prompt"])
print(prompt[-1]["content"])
print(
    env.step(
        "I look around: <tool_call>\n<function=alfworld_step>\n<parameter=action>\nlook\n</parameter>\n"
        "</function>\n</tool_call>"
    )
)

"""Reinforcement learning on ALFWorld, the whole loop: the functions here are those that `alfworld-rl train` calls.

    uv run --extra local python examples/rl_loop.py --data-root games --updates 5

makes some games first if there are none.
"""

import argparse
import asyncio
from pathlib import Path

import alfworld_rl as rl
from alfworld_rl.games import generate

LIMITS = rl.Limits(max_episode_steps=30, max_trajectory_tokens=8000, max_assistant_tokens=32)


async def main(data_root: Path, updates: int, games_per_update: int, group_size: int) -> rl.Evaluation:
    if not data_root.exists():
        generate(data_root, train=40, valid_seen=0, valid_unseen=10, seed=1)
    games = rl.load_games(data_root, "train")
    held_out = rl.load_games(data_root, "valid_unseen")

    trainer = rl.open_trainer("alfworld-tiny-start", lora_rank=0)  # 0: train all weights
    agent = rl.make_agent(trainer, commands="none")
    before = await rl.evaluate(held_out, trainer.sampler(), agent, limits=LIMITS)
    print("before:", before)

    for number in range(updates):
        start = number * games_per_update % len(games)
        batch = games[start : start + games_per_update]

        # Play every game of the batch several times, with the weights as they are now.
        groups = await rl.rollout(batch, trainer.sampler(), agent, group_size=group_size, limits=LIMITS, seed=number)
        # What was each trajectory worth, and how much better was it than the others of its game?
        rewards = rl.rewards.document(groups)
        advantages = rl.advantages.gigpo(groups, rewards)
        # One gradient on exactly the tokens that the model wrote, one step of Adam.
        data = rl.make_data(groups, advantages)
        done = rl.update(trainer, data, loss="ppo", learning_rate=1e-4)

        won = sum(group.success_rate for group in groups) / len(groups)
        print(f"update {number + 1}: {won:.0%} won, {data.informative_groups} groups teach something, {done}")

    after = await rl.evaluate(held_out, trainer.sampler(), agent, limits=LIMITS)
    print("after: ", after)
    print(rl.compare(before, after))
    return after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", type=Path, default=Path("games"))
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--games-per-update", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    options = parser.parse_args()
    asyncio.run(main(options.data_root, options.updates, options.games_per_update, options.group_size))

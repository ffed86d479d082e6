"""Results files and run folders for the tests of the report, made by really playing generated games."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from alfworld_rl.agents.calls import XML_CALL
from alfworld_rl.agents.texts import answer_text, opening_text
from alfworld_rl.games import discover
from alfworld_rl.games.generate import generate
from alfworld_rl.world import Game, World

Row = dict[str, Any]


def games(folder: Path, count: int) -> list[tuple[str, str, Game]]:
    """Id, task type and game of new games."""
    generate(folder, train=count, valid_seen=0, valid_unseen=0, seed=3)
    found = discover(folder, "train").games
    return [(one.game_id, one.task_type, Game.load(one.path)) for one in found]


def play(
    game_id: str, task_type: str, game: Game, random: Random, *, skill: float, shown: str = "full", sample: int = 0
) -> Row:
    """A row of results: the walkthrough, into which the player strays with chance 1 - skill, in 12 steps at most."""
    world = World(game)
    view = world.reset()
    messages = [{"role": "system", "content": "Rules."}, {"role": "user", "content": opening_text(view, shown)}]
    plan, steps, invalid, accepted = list(game.walkthrough), 0, 0, []
    while steps < 12 and not view.done:
        steps += 1
        action = plan.pop(0) if random.random() < skill and plan else random.choice(["go to nowhere 1", *view.actions])
        before = view.actions
        accepted.append(action in before)
        invalid += action not in before
        view = world.step(action)
        messages.append({"role": "assistant", "content": XML_CALL.format(action=action)})
        messages.append({"role": "tool", "content": answer_text(before, view, shown)})
    return {
        "type": "trajectory",
        "game_id": game_id,
        "split": "valid_seen",
        "evaluation_split": "valid_seen",
        "task_type": task_type,
        "task": view.task,
        "sample": sample,
        "won": view.won,
        "reward": float(view.won) - 0.1 * invalid,
        "steps": steps,
        "truncated": not view.won,
        "stop_reason": "won" if view.won else "max_steps",
        "invalid_action_count": invalid,
        "valid_tool_call_count": steps,
        "admissible_action_count": steps - invalid,
        "prefill_tokens": 100 * steps,
        "sampled_tokens": 10 * steps,
        "messages": messages,
        "accepted": accepted,
    }


def write_results(path: Path, rows: Sequence[Row], **summary: Any) -> Path:
    last = {"type": "summary", "base_model": "some-model", "model_path": None, "metrics": {}} | summary
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [*rows, last]), encoding="utf-8")
    return path


def write_run(folder: Path, rows: Sequence[Row], *, updates: int = 6) -> Path:
    """A run folder whose updates kept a best and a worst trajectory each."""
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps({"command": "train", "base_model": "m", "backend": "local"}))
    metrics = [
        {
            "update": number,
            "reward/mean": number / 10,
            "reward/success_rate": number / 10,
            "reward/success_rate/look_at_obj_in_light": number / 12,
            "rollout/stopped/won": number,
            "rollout/stopped/max_steps": 10 - number,
            "rollout/invalid_actions_mean": 5 - number / 2,
            "rollout/prefill_tokens": 10_000,
            "rollout/sampled_tokens": 900,
            "time/rollout": 3.0,
            "time/train": 2.0,
            "time/update": 5.0,
            "train/loss_mean": 1 / number,
            "made/up": -number,
        }
        for number in range(1, updates + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    kept = []
    for number, (good, bad) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        for branch, row in enumerate((bad, {**good, "game_id": bad["game_id"], "task": bad["task"]})):
            said = [one["content"].split(" ") for one in row["messages"] if one["role"] == "assistant"]
            kept.append(
                row
                | {
                    "update": number % updates + 1,
                    "group": row["game_id"],
                    "branch": branch,
                    "advantages": [0.5 * (2 * branch - 1)] * row["steps"],
                    "reward_parts": {"success": float(row["won"])},
                    "step_tokens": said,
                    "step_logprobs": [[-0.25] * len(tokens) for tokens in said],
                }
            )
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    return folder

"""Every recorded play of the official stack, replayed without one differing character."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.world import Game, View, World

RECORDINGS = ("train", "train2", "train_deep", "valid_seen", "valid_seen2", "valid_unseen")


def as_recorded(view: View) -> dict[str, Any]:
    return {
        "observation": view.observation,
        "score": view.score,
        "done": view.done,
        "won": view.won,
        "admissible": list(view.admissible_commands),
    }


def differences(play: dict[str, Any], root: Path) -> list[str]:
    """Where a line that record_traces.py wrote and our world part; empty if they never do."""
    world = World(Game.load(root / play["game"]))
    view = world.reset()
    if (view.observation, list(view.admissible_commands)) != (play["observation"], play["admissible"]):
        return [f"{play['game']}: the opening differs"]
    for number, step in enumerate(play["steps"], 1):
        view = world.step(step["command"])
        if as_recorded(view) != {key: step[key] for key in step if key != "command"}:
            return [f"{play['game']}: step {number}, {step['command']!r}"]
        if all(world.goals.values()) != view.won:
            return [f"{play['game']}: step {number}, the goal's conditions {world.goals} and won={view.won}"]
    return []


@pytest.mark.parametrize("recording", RECORDINGS)
def test_replays_what_the_official_stack_said(recording: str, recorded_plays: Path, real_games: Path) -> None:
    with lzma.open(recorded_plays / f"{recording}.jsonl.xz", "rt", encoding="utf-8") as lines:
        plays = [json.loads(line) for line in lines]
    assert len(plays) > 30
    assert [part for play in plays for part in differences(play, real_games / "json_2.1.1")] == []


def test_real_games_are_won_by_their_walkthroughs(real_games: Path) -> None:
    paths = sorted((real_games / "json_2.1.1").rglob("game.tw-pddl"))[::6]  # all of them take half a minute
    assert paths
    lost = []
    for path in paths:
        game = Game.load(path)
        world = World(game)
        views = [world.step(command) for command in game.walkthrough]
        assert game.solvable
        assert game.task_type == path.parent.parent.name.partition("-")[0]
        if not views or not views[-1].won or any(view.won for view in views[:-1]):
            lost.append(str(path))
    assert lost == []

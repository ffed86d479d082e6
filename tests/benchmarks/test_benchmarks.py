"""Every benchmark runs in its smallest settings, so that none breaks unseen. What it measures is not looked at."""

import importlib.util
import json
import lzma
import random
from pathlib import Path

import pytest

from alfworld_rl.games import discover, generate
from alfworld_rl.world import Game, World

pytest.importorskip("torch", reason="benchmarks need the extra local")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    root = tmp_path_factory.mktemp("games")
    generate(root, train=3, valid_seen=3, valid_unseen=3, seed=3)
    return root


def run(name, *arguments):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(["--short", *map(str, arguments)])


def test_every_benchmark_is_run_here():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in BENCHMARKS.glob("*.py")} <= tested | {
        "serve"
    }  # tests/compat/test_serve.py runs that one


def test_async_updates(capsys):
    assert run("async_updates") == 0
    assert "of the wall time" in capsys.readouterr().out


def test_gpu(capsys):
    assert run("gpu") == 0
    assert capsys.readouterr().out


def test_listing(games, capsys):
    pytest.importorskip("alfworld", reason="its rival is the official stack (extra alfworld)")
    assert run("listing", "--data-root", games) == 0
    assert "3 games, the same in both listings" in capsys.readouterr().out


def test_prefill(games, tmp_path, capsys):
    game = Game.load(discover(games, "train").games[0].path)
    world, chance = World(game), random.Random(0)
    view = world.reset()
    play = {"observation": view.observation, "admissible": list(view.admissible_commands), "steps": []}
    for _ in range(22):
        command = chance.choice([one for one in view.admissible_commands if one.startswith("go to")])
        view = world.step(command)
        step = {"command": command, "observation": view.observation, "admissible": list(view.admissible_commands)}
        play["steps"].append(step)
    with lzma.open(tmp_path / "plays.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(play) + "\n")
    assert run("prefill", "--traces", tmp_path) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {mode} " in told for mode in ("full", "changes", "none"))
    assert run("prefill", "--traces", games) == 1


def test_rollout(games, capsys):
    assert run("rollout", "--data-root", games) == 0
    assert "lock-step / ours" in capsys.readouterr().out


def test_sampler(games, capsys):
    assert run("sampler", "--data-root", games) == 0
    assert "ratio: " in capsys.readouterr().out


def test_training(capsys):
    assert run("training") == 0
    assert "gradients differ by at most" in capsys.readouterr().out


def test_world(games, capsys):
    pytest.importorskip("textworld", reason="its rival is the official stack (extra alfworld)")
    assert run("world", "--data-root", games) == 0
    assert "1 games, 2 commands; views agree" in capsys.readouterr().out

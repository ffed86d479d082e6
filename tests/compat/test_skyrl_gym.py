"""SkyRL's own `make` with our environment."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.agents.calls import XML_CALL
from alfworld_rl.errors import UsageError
from alfworld_rl.games import discover, generate
from alfworld_rl.world import Game, World

pytest.importorskip("skyrl_gym", reason="skyrl-gym is not installed (extra skyrl)")

import skyrl_gym

from alfworld_rl.compat.skyrl_gym import ENV_ID, register, rows

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "skyrl_rows.py"


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("skyrl")
    generate(root, train=2, valid_seen=0, valid_unseen=0, seed=3)
    return root


def test_plays(data_root: Path) -> None:
    register()
    register()  # a second time does nothing
    games = json.loads(json.dumps(rows(data_root=str(data_root), max_episode_steps=20)))  # what a file keeps of them
    assert [row["extra_info"]["game_id"] for row in games] == [
        game.game_id for game in discover(data_root, "train").games
    ]
    for row, game in zip(games, discover(data_root, "train").games, strict=True):
        loaded = Game.load(game.path)
        env = skyrl_gym.make(ENV_ID, extras=row)
        (system, user), _ = env.init(row["prompt"])
        assert XML_CALL.format(action="command") in system["content"]
        assert user["content"].startswith(World(loaded).view.observation)
        outputs = [env.step("I look."), *(env.step(XML_CALL.format(action=one)) for one in loaded.walkthrough)]
        assert [output["reward"] for output in outputs] == pytest.approx([-0.1] + [0] * (len(outputs) - 2) + [1])
        assert [output["done"] for output in outputs] == [False] * (len(outputs) - 1) + [True]
        assert outputs[0]["observations"][0]["content"].startswith("Nothing happens.")
        assert outputs[-1]["observations"] == []
        assert env.get_metrics() == {"won": 1, "steps": len(outputs), "invalid_actions": 1}


def test_a_row_that_is_not_ours() -> None:
    register()
    with pytest.raises(UsageError, match="train on the rows"):
        skyrl_gym.make(ENV_ID, extras={"extra_info": {}})


def test_the_example(data_root: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    out = tmp_path / "rows.parquet"
    done = subprocess.run([sys.executable, EXAMPLE, out, data_root], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(pandas.read_parquet(out)) == 2
    assert "Your task is to: " in done.stdout

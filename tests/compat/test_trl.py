"""TRL's trainer with our environment factory."""

import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.agents import FORMATS
from alfworld_rl.agents.calls import TOOL
from alfworld_rl.errors import UsageError
from alfworld_rl.games import generate
from alfworld_rl.world import Game, World

pytest.importorskip("trl", reason="TRL is not installed (extra trl)")

from alfworld_rl.compat.trl import GAME_OVER, alfworld

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "trl_grpo.py"


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trl")
    generate(root, train=2, valid_seen=0, valid_unseen=0, seed=3)
    return root


def test_a_play(data_root: Path) -> None:
    games = alfworld(data_root=data_root, reward="document", max_episode_steps=20)
    rows = list(games.dataset())
    assert [row["game_id"] for row in rows] == list(games.games)
    for row in rows:
        game = Game.load(games.games[row["game_id"]].path)
        env = games()
        assert env.reset(**row).startswith(World(game).view.observation)
        answers = [env.alfworld_step(action) for action in ("fly away", *game.walkthrough)]
        assert answers[0].startswith("Nothing happens.")
        assert answers[-1] != GAME_OVER
        assert env.alfworld_step("look") == GAME_OVER
        assert env.get_reward() == pytest.approx(0.9)
        env.reset(**row)
        assert env.get_reward() == 0
    assert games().get_reward() == 0


def test_the_steps_run_out(data_root: Path) -> None:
    games = alfworld(data_root=data_root, max_episode_steps=2)
    env = games()
    env.reset(next(iter(games.games)))
    assert [env.alfworld_step("look") == GAME_OVER for _ in range(3)] == [False, False, True]


def test_what_trl_shows_the_model_is_what_we_show_it(data_root: Path) -> None:
    from transformers import AutoTokenizer
    from transformers.utils import get_json_schema

    from alfworld_rl.backends.local.builtin import path

    tokenizer = AutoTokenizer.from_pretrained(path("alfworld-tiny"))
    for commands in ("full", "none"):
        games = alfworld(data_root=data_root, admissible_commands=commands)
        (row, *_), env = games.dataset(), games()
        assert get_json_schema(env.alfworld_step) == TOOL
        first = env.reset(**row)
        prompt = [*row["prompt"][:-1], {"role": "user", "content": row["prompt"][-1]["content"] + first}]
        theirs = tokenizer.apply_chat_template(
            prompt, tools=[env.alfworld_step], add_generation_prompt=True, return_dict=False
        )
        view = World(Game.load(games.games[row["game_id"]].path)).view
        assert tuple(theirs) == FORMATS["tool-call"](tokenizer, commands).opening(view).tokens


def test_mistakes_are_named(data_root: Path) -> None:
    with pytest.raises(UsageError, match="here is no split 'test'"):
        alfworld(data_root=data_root, split="test")
    with pytest.raises(UsageError, match="admissible_commands must be full, changes or none"):
        alfworld(data_root=data_root, admissible_commands="some")
    with pytest.raises(UsageError, match="max_episode_steps must be at least 1"):
        alfworld(data_root=data_root, max_episode_steps=0)
    with pytest.raises(UsageError, match="reward"):
        alfworld(data_root=data_root, reward="documnet")
    with pytest.raises(UsageError, match="there is no game 'x'"):
        alfworld(data_root=data_root)().reset("x")


def test_one_real_update(data_root: Path, tmp_path: Path) -> None:
    """The example: GRPOTrainer samples, calls the tool, scores and takes an optimizer step on the CPU."""
    pytest.importorskip("torch", reason="PyTorch is not installed (extra local)")
    command = [sys.executable, str(EXAMPLE), "--data-root", str(data_root), "--episode-steps", "3", "--group-size", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "'tools/call_frequency': '3'" in done.stdout
    assert "'tools/failure_frequency': '0'" in done.stdout
    assert "reward after update 1: " in done.stdout

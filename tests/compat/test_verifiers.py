"""verifiers' own evaluator plays our games by our rules. `verifiers` conflicts with the extra `serve`: .ci/run gives
this file an environment of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.compat.chat import ChatRules
from alfworld_rl.errors import UsageError
from alfworld_rl.games import generate

pytest.importorskip("verifiers", reason="verifiers is not installed (extra verifiers)")

from openai_stand_in import GIVES_UP, messages_of, openai_stand_in

STEPS = 9
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "verifiers_eval.toml"


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verified")
    generate(root, train=3, valid_seen=0, valid_unseen=0, seed=1)
    return root


def test_its_evaluator_scores_as_we_do(data_root: Path, tmp_path: Path) -> None:
    rules = ChatRules(data_root=data_root, split="train", max_episode_steps=STEPS)
    expected = {}
    for game in rules.games():
        play, messages = rules.begin(game), iter(messages_of(game))
        while not play.over:
            play.hear(next(messages, GIVES_UP))
        trajectory = play.trajectory
        counts = (len(trajectory.steps), trajectory.invalid_action_count, trajectory.stop_reason)
        expected[game.game_id] = (play.reward(), trajectory.won, *counts)
    assert {row[1] for row in expected.values()} == {True, False}

    with openai_stand_in(rules.games()) as url:
        command = [str(Path(sys.executable).with_name("vf-eval")), "@", str(EXAMPLE)]
        command += ["--env.taskset.data-root", str(data_root), "--env.taskset.split", "train"]
        command += ["--env.taskset.max-episode-steps", str(STEPS), "--model", "stand-in", "--client.base-url", url]
        command += ["--no-rich", "--output-dir", str(tmp_path)]
        environment = {**os.environ, "OPENAI_API_KEY": "none"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    found = {}
    for line in next(tmp_path.rglob("traces.jsonl")).read_text().splitlines():
        (trace,) = json.loads(line)["traces"]
        metrics = trace["metrics"]
        found[trace["task"]["data"]["id"]] = (
            trace["rewards"]["document"]["score"],
            bool(metrics["won"]),
            int(metrics["steps"]),
            int(metrics["invalid_actions"]),
            trace["info"]["stop_reason"],
        )
    assert found == expected


def test_load_environment(data_root: Path) -> None:
    from alfworld_rl.compat.verifiers import load_environment

    env = load_environment(data_root=str(data_root), split="train", limit=3, admissible_commands="none")
    tasks = list(env.taskset)
    rules = ChatRules(data_root=data_root, split="train", limit=3, admissible_commands="none", call_explained=True)
    assert [task.data.id for task in tasks] == [game.game_id for game in rules.games()]
    assert [task.data.prompt for task in tasks] == [rules.begin(game).opening for game in rules.games()]
    assert {task.data.system_prompt for task in tasks} == {rules.system["content"]}
    with pytest.raises(UsageError, match="there is no such folder"):
        list(load_environment(data_root=str(data_root / "none")).taskset)

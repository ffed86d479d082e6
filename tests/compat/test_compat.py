"""The compatible classes where the official ones are no yardstick."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.compat import AlfredTWEnv, get_environment
from alfworld_rl.errors import UsageError
from alfworld_rl.games import discover


def config(root: Path, **changes: Any) -> dict[str, Any]:
    return {
        "env": {
            "task_types": [1, 2, 3, 4, 5, 6],
            "domain_randomization": changes.get("domain_randomization", False),
            "expert_type": changes.get("expert_type", "demonstrator"),
        },
        "dataset": {
            "data_path": "$SOME_ROOT/json_2.1.1/valid_seen",
            "eval_id_data_path": str(root / "json_2.1.1" / "valid_seen"),
            "num_train_games": 3,
            "num_eval_games": 3,
        },
        "general": {"training_method": changes.get("method", "dagger")},
        "rl": {"training": {"max_nb_steps_per_episode": 50}},
        "dagger": {"training": {"max_nb_steps_per_episode": 50}},
    }


def test_the_demonstrator_as_expert_wins(real_games: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_ROOT", str(real_games))
    env = AlfredTWEnv(config(real_games), train_eval="train").init_env(batch_size=3)
    _, infos = env.reset()
    dones: tuple[bool, ...] = (False,)
    while not all(dones):
        _, scores, dones, infos = env.step([plan[0] for plan in infos["extra.expert_plan"]])
    assert scores == (1, 1, 1)


def test_domain_randomization_renumbers_and_stays_playable(real_games: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_ROOT", str(real_games))
    plain = AlfredTWEnv(config(real_games), train_eval="train").init_env(batch_size=1)
    mixed = AlfredTWEnv(config(real_games, domain_randomization=True), train_eval="train").init_env(batch_size=1)
    changed = False
    for _ in range(3):
        (told,), _ = plain.reset()
        (said,), infos = mixed.reset()
        changed |= said != told
        assert re.sub(r" \d+", "", said) == re.sub(r" \d+", "", told)
        assert sorted(re.findall(r"\w+ \d+", said)) == sorted(re.findall(r"\w+ \d+", told))
        done = False
        while not done:
            _, scores, (done,), infos = mixed.step([infos["extra.expert_plan"][0][0]])
        assert scores == (1,)
    assert changed


def test_a_yaml_config(real_games: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "base_config.yaml"
    path.write_text(yaml.safe_dump(config(real_games)))
    env = AlfredTWEnv(path, train_eval="eval_in_distribution")
    assert env.num_games == len(env.game_files) == 3
    path.write_text("]")
    with pytest.raises(UsageError, match=r"The config .* cannot be read"):
        AlfredTWEnv(path)


def test_mistakes_are_named(real_games: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_ROOT", "/nowhere")
    good = config(real_games)
    with pytest.raises(UsageError, match=r"dataset\.eval_ood_data_path"):
        AlfredTWEnv(good, train_eval="eval_out_of_distribution")
    with pytest.raises(UsageError, match="eval_in_distribution"):
        AlfredTWEnv(good, train_eval="test")
    with pytest.raises(UsageError, match="no folder /nowhere"):
        AlfredTWEnv(good)
    with pytest.raises(NotImplementedError, match="AI2-THOR"):
        get_environment("AlfredThorEnv")
    env = AlfredTWEnv(good, train_eval="eval_in_distribution").init_env(batch_size=2)
    with pytest.raises(UsageError, match="reset"):
        env.step(["look", "look"])
    env.reset()
    for commands in (["look"], "ab"):
        with pytest.raises(UsageError, match="list of 2 commands"):
            env.step(commands)


def test_importing_needs_neither_alfworld_nor_textworld(real_games: Path) -> None:
    code = (
        "import sys; import alfworld_rl.compat as compat; "
        "assert not {'alfworld', 'textworld', 'torch'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "ALFWORLD_DATA": str(real_games)})


def test_gymnasium_environment(real_games: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("alfworld_rl/ALFWorld-v0", data_root=real_games, split="valid_seen", render_mode="ansi")
    check_env(env.unwrapped)

    first, infos = env.reset(seed=4)
    assert first.startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert env.reset()[0] != first
    assert env.reset(seed=4)[0] == first
    assert set(infos) == {"admissible_commands", "won", "score", "task", "gamefile"}

    game = discover(real_games, "valid_seen").games[0].path
    env.reset(options={"game": game})
    from alfworld_rl.world import Game

    rewards = []
    for command in Game.load(game).walkthrough:
        observation, reward, terminated, truncated, infos = env.step(command)
        rewards.append(reward)
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert (terminated, truncated, infos["won"], infos["gamefile"]) == (True, False, True, str(game))
    assert env.render() == f"> {command}\n{observation}"

    env.reset()
    for _ in range(50):
        *_, terminated, truncated, _ = env.step("look")
    assert (terminated, truncated) == (False, True)
    env.close()


def test_gymnasium_plays_a_given_list_of_games_in_turn(real_games: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    games = [game.path for game in discover(real_games, "valid_seen").games[:3]]
    env = gymnasium.make("alfworld_rl/ALFWorld-v0", games=games)
    played = [env.reset()[1]["gamefile"] for _ in range(6)]
    assert sorted(played[:3]) == sorted(played[3:]) == sorted(map(str, games))
    with pytest.raises(UsageError, match="games is empty"):
        gymnasium.make("alfworld_rl/ALFWorld-v0", games=[])

"""The compatible classes where the official ones are no yardstick."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.compat import AlfredTWEnv, BatchEnv, get_environment
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


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        (
            "dataset",
            "eval_id_data_path",
            None,
            "dataset.eval_id_data_path of the config is null; it has to be",
        ),
        (
            "dataset",
            "num_eval_games",
            None,
            "dataset.num_eval_games of the config is null; it has to be a whole",
        ),
        ("dataset", "num_eval_games", "3", "dataset.num_eval_games of the config is '3'"),
        ("env", "task_types", None, "env.task_types of the config is null; it has to be a list of numbers"),
        ("env", "task_types", [], "env.task_types"),
        ("env", "task_types", [[1]], "env.task_types"),
        ("dagger", "training", None, "no dagger.training.max_nb_steps_per_episode"),
        ("dagger", "training", {"max_nb_steps_per_episode": "50"}, "max_nb_steps_per_episode of the config is '50'"),
        ("dagger", "training", {"max_nb_steps_per_episode": -1}, "max_nb_steps_per_episode of the config is -1"),
    ],
)
def test_nulls_and_other_types_are_named(real_games: Path, section: str, key: str, value: object, said: str) -> None:
    wrong = config(real_games)
    wrong[section][key] = value
    with pytest.raises(UsageError, match=re.escape(said)):
        AlfredTWEnv(wrong, train_eval="eval_in_distribution").init_env(batch_size=1)


@pytest.mark.parametrize("section", ["env", "dataset", "general", "dagger"])
def test_a_section_that_is_null(real_games: Path, section: str) -> None:
    wrong = config(real_games)
    wrong[section] = None
    with pytest.raises(UsageError, match=rf"The config has no {section}\."):
        AlfredTWEnv(wrong, train_eval="eval_in_distribution").init_env(batch_size=1)


def test_no_step_limit(real_games: Path) -> None:
    for none in (None, 0):
        endless = config(real_games)
        endless["dagger"]["training"]["max_nb_steps_per_episode"] = none
        env = AlfredTWEnv(endless, train_eval="eval_in_distribution").init_env(batch_size=1)
        env.reset()
        assert not any(env.step(["look"])[2] == (True,) for _ in range(60))


@pytest.mark.parametrize("nothing", [None, 7, ["train"]])
def test_what_is_no_config_and_no_split_is_said(real_games: Path, nothing: Any) -> None:
    with pytest.raises(UsageError, match="config is "):
        AlfredTWEnv(nothing)
    with pytest.raises(UsageError, match="train_eval is "):
        AlfredTWEnv(config(real_games), train_eval=nothing)


@pytest.mark.parametrize("batch_size", [0, -1, "2", True, 1.0])
def test_a_batch_has_at_least_one_game(real_games: Path, batch_size: Any) -> None:
    env = AlfredTWEnv(config(real_games), train_eval="eval_in_distribution")
    with pytest.raises(UsageError, match=f"batch_size is {batch_size!r}; it has to be a whole number from 1 on"):
        env.init_env(batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [None, 1, 2])
@pytest.mark.parametrize("mode", ["human", "text", "ansi"])
def test_there_is_nothing_to_render_before_reset(real_games: Path, batch_size: Any, mode: str) -> None:
    env = AlfredTWEnv(config(real_games), train_eval="eval_in_distribution").init_env(batch_size=batch_size)
    with pytest.raises(UsageError, match="Call reset before render"):
        env.render(mode)


def test_a_subclass_that_reads_the_game_logic(
    real_games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the environment servers of public agent benchmarks do: their own __init__, one game, and init_env."""

    class OneGame(AlfredTWEnv):
        def __init__(self, config: Any, gamefile: str) -> None:
            self.config = config
            self.train_eval = "eval_out_of_distribution"
            self.get_game_logic()
            self.game_files = [gamefile]
            self.num_games = 1

    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    (tmp_path / "logic").mkdir()
    (tmp_path / "logic" / "alfred.pddl").write_text("(define (domain alfred))")
    settings = config(real_games, method="dqn")
    settings["logic"] = {"domain": "$ALFWORLD_DATA/logic/alfred.pddl", "grammar": "${ALFWORLD_DATA}/logic/alfred.twl2"}
    gamefile = str(discover(real_games, "valid_seen").games[0].path)
    with pytest.warns(UserWarning, match=r"logic\.grammar .*alfred\.twl2, is not there"):
        env = OneGame(settings, gamefile)
    assert env.game_logic["pddl_domain"] == "(define (domain alfred))"
    assert "Your task is to: UNKNOWN GOAL." in env.game_logic["grammar"]
    assert env.init_env(batch_size=1).reset()[1]["extra.gamefile"] == [gamefile]
    settings["logic"]["domain"] = None
    with pytest.raises(UsageError, match=r"logic\.domain of the config is null"):
        OneGame(settings, gamefile)


def at_home(home: Path, real_games: Path, split: str) -> Path:
    """One game in `home`, where alfworld-download puts them."""
    trial = discover(real_games, "valid_seen").games[5].path.parent
    folder = home / ".cache" / "alfworld" / "json_2.1.1" / split / trial.parent.name / trial.name
    shutil.copytree(trial, folder)
    return folder / "game.tw-pddl"


def test_without_alfworld_data_the_downloaders_own_folder_is_played(
    real_games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gamefile = at_home(tmp_path, real_games, "valid_seen")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    for name in ("$ALFWORLD_DATA", "${ALFWORLD_DATA}"):
        settings = config(real_games)
        settings["dataset"]["eval_id_data_path"] = f"{name}/json_2.1.1/valid_seen"
        assert AlfredTWEnv(settings, train_eval="eval_in_distribution").game_files == [str(gamefile)]
    assert "ALFWORLD_DATA" not in os.environ
    if find_spec("gymnasium"):
        import gymnasium

        env = gymnasium.make("alfworld_rl/ALFWorld-v0", split="valid_seen")
        assert env.reset()[1]["gamefile"] == str(gamefile)


EXPERT_RUN = """
import os, random, sys
import numpy as np
from alfworld_rl.compat.batch import BatchEnv
random.seed(5), np.random.seed(5)
before = random.getstate(), repr(np.random.get_state()), dict(os.environ), list(sys.argv)
env = BatchEnv([sys.argv[1]], expert="handcoded")
assert env.reset()[1]["extra.expert_plan"] == [["look"]]
assert "alfworld.agents.expert" in sys.modules
assert (random.getstate(), repr(np.random.get_state()), dict(os.environ), list(sys.argv)) == before
"""


def test_the_first_reset_with_the_official_expert_leaves_the_process_as_it_was(
    real_games: Path, tmp_path: Path
) -> None:
    pytest.importorskip("alfworld", reason="the official expert needs the extra alfworld")
    game = discover(real_games, "valid_seen").games[0].path
    environment = {name: value for name, value in os.environ.items() if name != "ALFWORLD_DATA"}
    subprocess.run([sys.executable, "-c", EXPERT_RUN, str(game)], check=True, env=environment | {"HOME": str(tmp_path)})


@pytest.mark.parametrize("expert", ["handcoded", "demonstrator"])
def test_an_expert_that_cannot_begin_does_not_end_the_game(real_games: Path, tmp_path: Path, expert: Any) -> None:
    if expert == "handcoded":
        pytest.importorskip("alfworld", reason="the official expert needs the extra alfworld")
    path = discover(real_games, "valid_seen").games[0].path
    content = json.loads(path.read_text())
    content["grammar"] = re.sub('Your task is to: [^"]*', "Your task is to: make me a sandwich.", content["grammar"])
    (tmp_path / "game.tw-pddl").write_text(json.dumps(content))
    (tmp_path / "traj_data.json").write_text('{"task_type": "pick_and_place_simple"}')
    env = BatchEnv([str(tmp_path / "game.tw-pddl")], expert=expert)
    with pytest.warns(UserWarning, match="No expert plan in "):
        assert env.reset()[1]["extra.expert_plan"] == [["look"]]
    won = [env.step([command])[3] for command in content["walkthrough"]][-1]
    assert (won["won"], won["extra.expert_plan"]) == ([True], [["look"]])


def test_importing_needs_neither_alfworld_nor_textworld(real_games: Path) -> None:
    code = (
        "import sys; import alfworld_rl.compat as compat; "
        "assert not {'alfworld', 'textworld', 'torch', 'pydantic'} & set(sys.modules), sorted(sys.modules)"
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


def test_gymnasium_reset_options(real_games: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    games = [game.path for game in discover(real_games, "valid_seen").games[:4]]
    env = gymnasium.make("alfworld_rl/ALFWorld-v0", games=games[:1])
    for options in ({"gamefile": games[3]}, {"gamefile": str(games[3])}, {"game": games[3]}):
        assert env.reset(options=options)[1]["gamefile"] == str(games[3])
    for options in (None, {}, {"gamefile": None}):
        assert env.reset(options=options)[1]["gamefile"] == str(games[0])
    for options, said in (
        ({"game_file": games[3]}, "no option 'game_file'; the nearest that it knows is 'gamefile'"),
        ({"games": [games[3]]}, "no option 'games'; the nearest that it knows is 'game'"),
        ({"gamefile": 3}, "'gamefile' is 3; it has to be the path"),
        ({"gamefile": games[3], "game": games[2]}, "mean the same"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            env.reset(options=options)


def test_gymnasium_plays_a_given_list_of_games_in_turn(real_games: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    games = [game.path for game in discover(real_games, "valid_seen").games[:3]]
    env = gymnasium.make("alfworld_rl/ALFWorld-v0", games=games)
    played = [env.reset()[1]["gamefile"] for _ in range(6)]
    assert sorted(played[:3]) == sorted(played[3:]) == sorted(map(str, games))
    with pytest.raises(UsageError, match="games is empty"):
        gymnasium.make("alfworld_rl/ALFWorld-v0", games=[])

"""The same config, the same games, the same commands: the official classes and ours have to say the same."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from old_games import as_before_0_4

pytest.importorskip("alfworld", reason="the official classes need the extra alfworld")
pytest.importorskip("textworld", reason="the official classes need the extra alfworld")

from alfworld_rl import compat
from alfworld_rl.world import Game
from alfworld_rl.world import textworld as official_stack


@pytest.fixture(autouse=True)
def playable_official_stack() -> Iterator[None]:
    """TextWorld 1.7.0 with its repair for Python 3.13; fast-downward writes to sys.argv."""
    argv = sys.argv
    official_stack._official_env()
    yield
    sys.argv = argv


@pytest.fixture(scope="module")
def small_root(real_games: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four real games of different types, in folders as the full data set has them."""
    source = real_games / "json_2.1.1" / "valid_seen"
    root = tmp_path_factory.mktemp("small")
    for task_type in ("look_at", "pick_and_place", "pick_two", "pick_heat"):
        trial = sorted(source.glob(f"{task_type}*/*/game.tw-pddl"))[0].parent
        shutil.copytree(trial, root / "json_2.1.1" / "valid_seen" / trial.parent.name / trial.name)
    return root


def config(root: Path, method: str = "dqn", steps: int = 4, **changes: Any) -> dict[str, Any]:
    folder = str(root / "json_2.1.1")
    return {
        "env": {
            "goal_desc_human_anns_prob": 0,
            "task_types": changes.get("task_types", [1, 2, 3, 4, 5, 6]),
            "domain_randomization": changes.get("domain_randomization", False),
            "expert_type": changes.get("expert_type", "handcoded"),
        },
        "dataset": {
            "data_path": f"{folder}/{changes.get('train', 'valid_seen')}",
            "eval_id_data_path": f"{folder}/valid_seen",
            "eval_ood_data_path": f"{folder}/valid_unseen",
            "num_train_games": changes.get("games", -1),
            "num_eval_games": changes.get("games", -1),
        },
        "general": {"training_method": method},
        "rl": {"training": {"max_nb_steps_per_episode": steps}},
        "dagger": {"training": {"max_nb_steps_per_episode": steps}},
    }


def both(settings: dict[str, Any], train_eval: str) -> tuple[Any, Any]:
    from alfworld.agents.environment import get_environment

    official = get_environment("AlfredTWEnv")(settings, train_eval=train_eval)
    ours = compat.get_environment("AlfredTWEnv")(settings, train_eval=train_eval)
    return official, ours


def same(official: Any, ours: Any) -> None:
    """Equal to the last type; infos but for TextWorld's own `facts`."""
    *official_values, official_infos = official
    *our_values, our_infos = ours
    official_infos.pop("facts", None)
    assert our_infos == official_infos
    assert our_values == official_values
    assert repr((our_values, sorted(our_infos.items()))) == repr((official_values, sorted(official_infos.items())))


@pytest.mark.parametrize("train_eval", ["eval_in_distribution", "eval_out_of_distribution", "train"])
@pytest.mark.parametrize("changes", [{}, {"task_types": [2, 5, 99], "games": 7}])
def test_the_same_games_in_the_same_order(real_games: Path, train_eval: str, changes: dict[str, Any]) -> None:
    official, ours = both(config(real_games, **changes), train_eval)
    assert ours.game_files == official.game_files
    assert ours.num_games == official.num_games


def test_a_folder_laid_out_in_another_way(small_root: Path, tmp_path: Path) -> None:
    games = tmp_path / "mine"
    shutil.copytree(small_root / "json_2.1.1" / "valid_seen", games / "deeper")
    settings = config(small_root)
    settings["dataset"]["data_path"] = f"{games}/../mine/"
    official, ours = both(settings, "train")
    assert ours.game_files == official.game_files
    assert len(ours.game_files) == 4


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_same_order_of_play_for_every_seed(real_games: Path, batch_size: int) -> None:
    official, ours = both(config(real_games, games=5), "eval_in_distribution")
    theirs, mine = official.init_env(batch_size=1), ours.init_env(batch_size=batch_size)

    def played(count: int) -> list[str]:
        return [name for _ in range(count) for name in mine.reset()[1]["extra.gamefile"]]

    def listed(count: int) -> list[str]:
        return [next(theirs._gamefiles_iterator) for _ in range(count * batch_size)]

    assert played(5) == listed(5)
    for seed in (0, 7, 1234):
        assert mine.seed(seed) == theirs.seed(seed)
        mine.skip(3)
        theirs.skip(3)
        assert played(4) == listed(4)


def test_the_same_answers_one_game_at_a_time(small_root: Path) -> None:
    official, ours = both(config(small_root, steps=4), "eval_in_distribution")
    theirs, mine = official.init_env(batch_size=1), ours.init_env(batch_size=1)
    rng = random.Random(1)
    for _ in range(2):
        expected = theirs.reset()
        same(expected, mine.reset())
        infos = expected[1]
        for _ in range(6):  # two more than the step limit allows
            command = rng.choice((rng.choice(infos["admissible_commands"][0]), " look ", "fly to the moon"))
            expected = theirs.step([command])
            same(expected, mine.step([command]))
            infos = expected[3]
        assert mine.render("text") == theirs.render("text")
        assert expected[2] == (True,)


def test_the_same_answers_on_data_of_older_releases(small_root: Path, tmp_path: Path) -> None:
    shutil.copytree(small_root, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.rglob("game.tw-pddl"):
        path.write_text(json.dumps(as_before_0_4(json.loads(path.read_text()), sinks=True)))
    official, ours = both(config(tmp_path, method="dagger", steps=9), "train")
    assert ours.game_files == official.game_files
    theirs, mine = official.init_env(batch_size=1), ours.init_env(batch_size=1)
    answers = []
    for env in (theirs, mine):
        random.seed(2)
        told = [env.reset()]
        plan = Game.load(told[0][1]["extra.gamefile"][0]).walkthrough
        told += [env.step([command]) for command in ("help", *plan, "look")]
        answers.append(told)
    for expected, answer in zip(*answers, strict=True):
        same(expected, answer)


OFFICIAL_BATCH = """
import json, sys
from alfworld_rl.world import textworld
textworld._official_env()
from alfworld.agents.environment import get_environment
settings, commands = json.loads(sys.argv.pop()), json.loads(sys.argv.pop())
sys.stdout = sys.stderr
env = get_environment("AlfredTWEnv")(settings, train_eval="eval_in_distribution").init_env(batch_size=2)
answers = [env.reset(), *(env.step([command, "go to drawer 1"]) for command in commands)]
env.close()
print(repr([(*values, dict(sorted(infos.items()))) for *values, infos in answers]), file=sys.__stdout__)
"""


def test_the_same_answers_from_a_batch_one_of_which_is_won(small_root: Path) -> None:
    """The official batch forks, which is best done from a process of its own."""
    settings = config(small_root, steps=50)
    env = compat.AlfredTWEnv(settings, train_eval="eval_in_distribution").init_env(batch_size=2)
    answers: list[Any] = [env.reset()]
    commands = [*Game.load(answers[0][1]["extra.gamefile"][0]).walkthrough, "look", "look"]
    official = subprocess.run(
        [sys.executable, "-c", OFFICIAL_BATCH, json.dumps(commands), json.dumps(settings)],
        check=True,
        capture_output=True,
        text=True,
    )
    answers += [env.step([command, "go to drawer 1"]) for command in commands]
    assert answers[-1][2] == (True, False)
    assert answers[-1][3]["won"] == [True, False]
    assert repr([(*values, dict(sorted(infos.items()))) for *values, infos in answers]) == official.stdout.strip()


def test_the_same_expert_plan(small_root: Path) -> None:
    """The official expert draws from Python's `random`; both start from the same state of it."""
    settings = config(small_root, method="dagger", steps=30, expert_type="planner")
    official, ours = both(settings, "train")
    theirs, mine = official.init_env(batch_size=1), ours.init_env(batch_size=1)
    records = []
    for env in (theirs, mine):
        random.seed(1)
        record = [env.reset()]
        for step in range(12):
            plan = record[-1][-1]["extra.expert_plan"][0]
            record.append(env.step(["go to drawer 1" if step == 3 else plan[0]]))
        records.append(record)
    for expected, answer in zip(*records, strict=True):
        same(expected, answer)


def test_an_expert_that_fails_does_not_end_the_game(real_games: Path) -> None:
    """Two legal commands after which the official expert chooses from nothing, and ends the official step with it."""
    trial = "look_at_obj_in_light-KeyChain-None-DeskLamp-327/trial_T20190906_202601_548273"
    folder = real_games / "json_2.1.1" / "valid_seen" / trial
    if not folder.is_dir():
        pytest.skip(f"the game {trial} is not among these")
    settings = config(real_games, method="dagger", steps=30)
    settings["dataset"]["data_path"] = str(folder)
    official, ours = both(settings, "train")
    theirs, mine = official.init_env(batch_size=1), ours.init_env(batch_size=1)
    same(theirs.reset(), mine.reset())
    same(theirs.step(["go to drawer 7"]), mine.step(["go to drawer 7"]))
    with pytest.raises(IndexError):
        theirs.step(["take keychain 4 from drawer 7"])
    (observation,), _, dones, infos = mine.step(["take keychain 4 from drawer 7"])
    assert observation == "You pick up the keychain 4 from the drawer 7."
    assert (dones, infos["extra.expert_plan"]) == ((False,), [["look"]])
    for command in Game.load(ours.game_files[0]).walkthrough[-2:]:  # the lamp stands here
        (observation,), scores, dones, infos = mine.step([command])
    assert (scores, dones, infos["won"]) == ((1,), (True,), [True])


def test_the_expert_may_give_up_and_the_game_goes_on(small_root: Path) -> None:
    ours = compat.AlfredTWEnv(config(small_root, method="dagger", steps=0, games=1), train_eval="train")
    env = ours.init_env(batch_size=1)
    env.reset()
    plans = [env.step(["look"])[3]["extra.expert_plan"] for _ in range(210)]
    assert plans[200:] == [[["look"]]] * 10


def test_the_same_game_logic(small_root: Path) -> None:
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    settings = config(small_root)
    settings["logic"] = {"domain": ALFRED_PDDL_PATH, "grammar": ALFRED_TWL2_PATH}
    official, ours = both(settings, "eval_in_distribution")
    assert official.get_game_logic() is ours.get_game_logic() is None
    assert ours.game_logic == official.game_logic


def test_without_batch_size_one_game_is_bare(small_root: Path) -> None:
    official, ours = both(config(small_root, games=1), "eval_in_distribution")
    theirs, mine = official.init_env(batch_size=None), ours.init_env(batch_size=None)
    same(theirs.reset(), mine.reset())
    same(theirs.step("look"), mine.step("look"))

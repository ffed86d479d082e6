"""The command: it learns, saves ordinary checkpoints, and goes on where it was."""

import json
from dataclasses import replace

import pytest
from alfworld_rl.runs.settings import TrainSettings
from alfworld_rl.runs.sft import SftSettings, held_out, scene_of, sft
from alfworld_rl.runs.train import train

from alfworld_rl.backends.local import LocalBackend
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.games import discover
from alfworld_rl.runs import sft as room
from alfworld_rl.runs.folder import RunFolder

# Times and memory differ from run to run, and nothing else may.
NOT_LEARNED = ("time/", "train/peak_memory_mb")


@pytest.fixture
def settings(tmp_path, monkeypatch, games, policy):
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    return SftSettings(
        backend="local",
        base_model=str(policy),
        data_root=(games,),
        max_steps=6,
        batch_tokens=600,
        lora_rank=0,
        learning_rate=2e-3,
        warmup_steps=1,
        admissible_commands=("none",),
        max_episode_steps=8,
        max_assistant_tokens=12,
        save_every=2,
    )


def metrics_of(folder):
    lines = [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith(NOT_LEARNED)} for line in lines]


def test_the_loss_falls_and_the_checkpoints_are_ordinary_ones(settings, policy, capsys):
    folder = sft(replace(settings, max_steps=12, save_every=0))
    losses = [line["train/loss_mean"] for line in metrics_of(folder)]
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    printed = capsys.readouterr().out
    [state] = [line.removeprefix("Saved state: ") for line in printed.splitlines() if line.startswith("Saved state")]
    [weights] = [line.split(": ")[1] for line in printed.splitlines() if line.startswith("Saved sampler weights")]
    backend = LocalBackend(folder.path.parent)
    assert backend.sampler(str(policy), weights).tokenizer.eos_token_id is not None
    assert backend.trainer_from(weights, seed=0).sampler() is not None
    assert backend.resume_trainer(state) is not None


@pytest.mark.parametrize("crash_at", [3, 4])
def test_a_run_that_dies_goes_on_to_the_same_end(settings, monkeypatch, crash_at):
    settings = replace(settings, dagger_rounds=2, dagger_games=2, perturbation=0.3, exploration=1.0)
    whole = sft(replace(settings, run_name="whole"))

    recorded = RunFolder.add_metrics

    def dies(folder, metrics):
        if metrics["update"] == crash_at:
            raise AlfworldRLError("the disk is full")
        recorded(folder, metrics)

    monkeypatch.setattr(RunFolder, "add_metrics", dies)
    with pytest.raises(AlfworldRLError, match="disk is full"):
        sft(replace(settings, run_name="torn"))
    monkeypatch.setattr(RunFolder, "add_metrics", recorded)
    torn = sft(SftSettings(resume="torn"), given=frozenset(["resume"]))
    assert metrics_of(torn) == metrics_of(whole)


def test_dagger_learns_from_what_the_learner_did(settings):
    folder = sft(replace(settings, dagger_rounds=1, dagger_games=3))
    plays = [json.loads(line) for line in (folder.path / "dagger-1.jsonl").read_text().splitlines()]
    assert len(plays) == 3
    assert all(play["messages"] for play in plays)
    assert [line["update"] for line in metrics_of(folder) if "dagger/round" in line] == [4]


def test_held_out_scenes_are_played_and_never_learned_from(settings, games, monkeypatch, capsys):
    ids = [game.game_id for game in discover(games, "train").games]
    out = scene_of(ids[0])
    monkeypatch.setattr(room, "held_out", lambda game_id: scene_of(game_id) == out)
    learned = []
    monkeypatch.setattr(room, "demonstrate", lambda game, *_: learned.append(game) or demonstrate(game, *_))
    from alfworld_rl.learning.demonstrations import demonstrate

    folder = sft(replace(settings, dev_games=2, max_steps=2))
    assert learned
    assert all(f"-{out}/" not in str(game.path) for game in learned)
    assert metrics_of(folder)[-1]["dev/games"] == 2
    assert "held-out games won" in capsys.readouterr().out


@pytest.mark.parametrize(("everywhere", "said"), [(True, "every game is of"), (False, "no game is of")])
def test_games_that_leave_one_side_empty_are_refused_before_anything_is_trained(
    settings, monkeypatch, everywhere, said
):
    monkeypatch.setattr(room, "held_out", lambda game_id: everywhere)
    with pytest.raises(UsageError, match=said):
        sft(replace(settings, dev_games=2))


def test_one_scene_in_about_twelve_is_held_out_the_same_ones_everywhere():
    scenes = [f"train/pick_and_place_simple-Mug-None-Desk-{number}/trial_T1" for number in range(1, 431)]
    share = sum(map(held_out, scenes)) / len(scenes)
    assert 1 / 20 < share < 1 / 8
    assert held_out(scenes[7]) == held_out("train/look_at_obj_in_light-CD-None-DeskLamp-8/trial_T2")


def test_what_cannot_be_is_refused_before_anything_is_made(settings, tmp_path, games):
    runs = tmp_path / "08-alfworld" / "runs"
    seen = discover(games, "valid_seen").games[0].game_id
    results = tmp_path / "results.jsonl"
    results.write_text(json.dumps({"type": "trajectory", "game_id": seen, "won": True, "messages": []}) + "\n")
    with pytest.raises(UsageError, match="for measuring and are not learned from"):
        sft(replace(settings, from_results=(results,)))
    with pytest.raises(UsageError, match="no run nothing"):
        sft(SftSettings(resume="nothing"), given=frozenset(["resume"]))
    with pytest.raises(AlfworldRLError, match="no base model"):
        sft(replace(settings, base_model="/nowhere/at/all"))
    assert not runs.exists() or not list(runs.iterdir())


def test_a_run_keeps_its_settings_and_ends_once(settings):
    folder = sft(replace(settings, max_steps=1))
    asked = SftSettings(resume=folder.name, learning_rate=0.5)
    with pytest.raises(UsageError, match="--learning-rate"):
        sft(asked, given=frozenset(["resume", "learning_rate"]))
    with pytest.raises(UsageError, match="finished"):
        sft(SftSettings(resume=folder.name), given=frozenset(["resume"]))
    with pytest.raises(UsageError, match=f"made by sft; go on with it by `alfworld-rl sft --resume {folder.name}`"):
        train(TrainSettings(backend="local", resume=folder.name), given=frozenset(["resume"]))


def test_settings_that_contradict_each_other_are_told_together():
    wrong = SftSettings(lora_rank=0, init_from="local://a/sampler_weights/b", resume="a", max_assistant_tokens=12000)
    assert len(wrong.conflicts()) == 3


def test_the_learning_rate_rises_then_falls_to_zero():
    settings = SftSettings(learning_rate=1.0, warmup_steps=4, max_steps=14)
    rates = [settings.adam(update).learning_rate for update in range(15)]
    assert rates[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 0.9])
    assert rates[-1] == 0

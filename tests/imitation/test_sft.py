"""The command: it learns, saves ordinary checkpoints, and goes on where it was."""

import json
from typing import Any

import pytest

import scripted_backend
from alfworld_rl.backends.base import BackendError, BalanceError
from alfworld_rl.backends.local import LocalBackend
from alfworld_rl.cli import main
from alfworld_rl.commands import sft, train
from alfworld_rl.commands.sft import SftConfig
from alfworld_rl.commands.train import TrainConfig
from alfworld_rl.config.workspace import home
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import discover, scenes
from alfworld_rl.games.scenes import held_out, scene_of
from alfworld_rl.runs.folder import RunFolder
from alfworld_rl.types import Capabilities, TrainingStart
from recorded_runs import timeless as metrics_of
from scripted_backend import opener, random_player


@pytest.fixture
def settings(tmp_path, monkeypatch, games, policy):
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    return SftConfig.from_flat(
        {
            "backend": "local",
            "base_model": str(policy),
            "data_root": [games],
            "max_steps": 6,
            "batch_tokens": 600,
            "lora_rank": 0,
            "learning_rate": 2e-3,
            "warmup_steps": 1,
            "admissible_commands": ["none"],
            "max_episode_steps": 8,
            "max_assistant_tokens": 12,
            "save_every": 2,
        }
    )


def go_on(name: str, **flags: Any) -> RunFolder | None:
    return sft.run(SftConfig.from_flat({"resume": name, **flags}))


def test_the_loss_falls_and_the_checkpoints_are_ordinary_ones(settings, policy, capsys):
    folder = sft.run(settings.replace(max_steps=12, save_every=0))
    losses = [line["train/loss_mean"] for line in metrics_of(folder)]
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    printed = capsys.readouterr().out
    [state] = [line.removeprefix("Saved state: ") for line in printed.splitlines() if line.startswith("Saved state")]
    [weights] = [line.split(": ")[1] for line in printed.splitlines() if line.startswith("Saved sampler weights")]
    backend = LocalBackend(folder.path.parent)
    assert backend.sampler(str(policy), weights).tokenizer.eos_token_id is not None
    for start in (TrainingStart(weights=weights), TrainingStart(state=state)):
        assert backend.trainer(start, lora_rank=0, seed=0).sampler() is not None


@pytest.mark.parametrize("crash_at", [3, 4])
def test_a_run_that_dies_goes_on_to_the_same_end(settings, monkeypatch, crash_at):
    settings = settings.replace(dagger_rounds=2, dagger_games=2, perturbation=0.3, exploration=1.0)
    whole = sft.run(settings.replace(run_name="whole"))

    recorded = RunFolder.add_metrics

    def dies(folder, metrics):
        if metrics["update"] == crash_at:
            raise AlfworldRLError("the disk is full")
        recorded(folder, metrics)

    monkeypatch.setattr(RunFolder, "add_metrics", dies)
    with pytest.raises(AlfworldRLError, match="disk is full"):
        sft.run(settings.replace(run_name="torn"))
    monkeypatch.setattr(RunFolder, "add_metrics", recorded)
    torn = go_on("torn")
    assert metrics_of(torn) == metrics_of(whole)


def test_dagger_learns_from_what_the_learner_did(settings):
    folder = sft.run(settings.replace(dagger_rounds=1, dagger_games=3))
    plays = [json.loads(line) for line in (folder.path / "dagger-1.jsonl").read_text().splitlines()]
    assert len(plays) == 3
    assert all(play["messages"] for play in plays)
    assert [line["update"] for line in metrics_of(folder) if "dagger/round" in line] == [4]


@pytest.fixture(params=["dev_games", "eval_games"])
def held_out_flag(request):
    """--dev-games is the older name."""
    return request.param


def test_held_out_scenes_are_played_and_never_learned_from(settings, games, monkeypatch, capsys, held_out_flag):
    ids = [game.game_id for game in discover(games, "train").games]
    out = scene_of(ids[0])
    monkeypatch.setattr(scenes, "held_out", lambda game_id: scene_of(game_id) == out)
    loaded = []
    load = sft.Game.load
    monkeypatch.setattr(sft.Game, "load", lambda path: loaded.append(path) or load(path))
    folder = sft.run(settings.replace(max_steps=2, **{held_out_flag: 2}))
    assert loaded
    [line] = [line for line in metrics_of(folder) if "validation/games" in line]
    assert (line["update"], line["validation/games"]) == (2, 2)
    assert "of 2 validation games won" in capsys.readouterr().out
    record = folder.record()
    assert (record.best.update, record.best.success_rate) == (2, line["validation/success_rate"])
    # What is learned from is hashed into the record: none of it is of that scene.
    learned, _ = scenes.split_by_scene(discover(games, "train").games, 2, 42)
    assert record.games == sft.tasks_hash(learned)
    assert all(scene_of(game.game_id) != out for game in learned)


@pytest.mark.parametrize(("everywhere", "said"), [(True, "every game is of"), (False, "no game is of")])
def test_games_that_leave_one_side_empty_are_refused_before_anything_is_trained(
    settings, monkeypatch, everywhere, said
):
    monkeypatch.setattr(scenes, "held_out", lambda game_id: everywhere)
    with pytest.raises(UsageError, match=said):
        sft.run(settings.replace(dev_games=2))


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
        sft.run(settings.replace(from_results=(results,)))
    with pytest.raises(UsageError, match="no run nothing"):
        go_on("nothing")
    with pytest.raises(AlfworldRLError, match="no base model"):
        sft.run(settings.replace(base_model="/nowhere/at/all"))
    assert not runs.exists() or not list(runs.iterdir())


def test_a_run_keeps_its_settings_and_ends_once(settings):
    folder = sft.run(settings.replace(max_steps=1))
    with pytest.raises(UsageError, match="--learning-rate"):
        go_on(folder.name, learning_rate=0.5)
    with pytest.raises(UsageError, match="already has 1 updates; train it further with --init-from"):
        go_on(folder.name)
    with pytest.raises(UsageError, match=f"made by sft; go on with it by `alfworld-rl sft --resume {folder.name}`"):
        train.run(TrainConfig.from_flat({"backend": "local", "resume": folder.name}))


def test_settings_that_contradict_each_other_are_told_together():
    wrong = {"lora_rank": 0, "init_from": "local://a/sampler_weights/b", "resume": "a", "max_assistant_tokens": 12000}
    with pytest.raises(UsageError) as raised:
        SftConfig.from_flat(wrong)
    assert str(raised.value).count("; ") == 3  # three sentences, one of which has a semicolon of its own


def test_the_learning_rate_rises_then_falls_to_zero():
    optimizer = SftConfig.from_flat({"learning_rate": 1.0, "warmup_steps": 4, "max_steps": 14}).optimizer
    rates = [optimizer.adam(update, 14).learning_rate for update in range(15)]
    assert rates[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 0.9])
    assert rates[-1] == 0


# ---- What imitation has since it lives the life of any run; on a backend without a model.


@pytest.fixture
def scripted(tmp_path, monkeypatch, games):
    """Settings for the scripted backend."""
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    flags = {"backend": "local", "base_model": "m", "data_root": [games], "max_steps": 4, "batch_tokens": 3000}
    flags |= {"max_episode_steps": 3, "max_trajectory_tokens": 60_000, "run_name": "a", "save_every": 0}
    return SftConfig.from_flat(flags)


def run(config: SftConfig, **backend: Any) -> RunFolder | None:
    return sft.run(config, open_backend=opener(**backend))


def resume(**flags: Any) -> RunFolder | None:
    return run(SftConfig.from_flat({"resume": "a", **flags}))


def nth(name: str, number: int, error: Exception) -> Any:
    """A `moment` that raises `error` at the `number`-th call of `name`."""
    calls: list[str] = []

    def moment(called: str) -> None:
        calls.append(called)
        if called == name and calls.count(name) == number:
            raise error

    return moment


def test_a_failure_saves_what_is_finished_and_says_how_to_go_on(scripted):
    whole = metrics_of(run(scripted.replace(run_name="whole")))
    refused = BalanceError("the balance is exhausted")
    with pytest.raises(AlfworldRLError, match=r"balance is exhausted.*alfworld-rl sft --resume a"):
        run(scripted, moment=nth("forward_backward", 3, refused))
    record = RunFolder.existing(home() / "runs", "a").record()
    assert (record.update, record.saved.update) == (2, 2)
    assert record.saved.sampler_uri is not None
    assert metrics_of(resume()) == whole


def test_a_failure_in_mid_update_saves_nothing_that_is_of_no_update(scripted):
    """Behind the first of two optimizer steps the weights are those of no update."""
    whole = metrics_of(run(scripted.replace(run_name="whole")))
    with pytest.raises(AlfworldRLError, match="No update was saved; --resume a starts the run again"):
        run(scripted, moment=nth("optim_step", 3, BackendError("gone")))
    assert metrics_of(resume()) == whole


def test_the_optimizer_never_steps_on_a_loss_that_is_no_number(scripted, monkeypatch):
    steps: list[str] = []
    real = scripted_backend.ScriptedTrainer.forward_backward

    def broken(self, data, loss):
        metrics = real(self, data, loss)
        return metrics | {"loss_mean": float("nan")} if steps.count("optim_step") == 1 else metrics

    monkeypatch.setattr(scripted_backend.ScriptedTrainer, "forward_backward", broken)
    with pytest.raises(AlfworldRLError, match="not a finite number"):
        run(scripted, moment=steps.append)
    assert steps.count("optim_step") == 1
    assert RunFolder.existing(home() / "runs", "a").record().saved.update == 1


def test_usage_counts_what_the_learner_played_and_what_validation_played(scripted, monkeypatch, games):
    played: list[int] = []

    def player(prompt, seed, weights):
        played.append(seed)
        return random_player(prompt, seed, weights)

    out = scene_of(discover(games, "train").games[0].game_id)
    monkeypatch.setattr(scenes, "held_out", lambda game_id: scene_of(game_id) == out)
    flags = {"dagger_rounds": 1, "dagger_games": 2, "eval_games": 1, "eval_every": 2}
    folder = run(scripted.replace(**flags), player=player)
    lines = metrics_of(folder)
    assert played
    totals = [(line["trainer/total_prefill_tokens"], line["trainer/total_sampled_tokens"]) for line in lines]
    # Round 1 is played before update 3, validation behind updates 2 and 4.
    assert totals[0] == (0, 0)
    assert totals[0] < totals[1] < totals[2] < totals[3]
    usage = folder.record().usage
    assert (usage.prefill, usage.sampled) == totals[-1]
    assert usage.trained == sum(line["train/tokens_billed"] for line in lines) > 0


def test_max_cost_ends_it_with_everything_saved(scripted, tmp_path, capsys):
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'date = "now"\nsource = "test"\ncurrency = "RMB"\n'
        "[per_million_tokens]\nprefill = 0\ncached = 0\nsampled = 0\ntrained = 1e6\n"
    )
    first = metrics_of(run(scripted.replace(run_name="one", max_steps=1)))[0]["train/tokens_billed"]
    record = run(scripted.replace(max_steps=40, prices=prices, max_cost=4.5 * first)).record()
    assert 1 <= record.saved.update == record.update < 40
    assert record.saved.sampler_uri is not None
    assert "--max-cost" in capsys.readouterr().out


def test_a_dry_run_says_what_it_would_use_and_starts_nothing(scripted, tmp_path, capsys):
    def open_backend(*_, **__):
        raise AssertionError("a dry run opened a backend")

    asked = scripted.replace(backend="trio", base_model="Qwen/Qwen3.5-4B", dry_run=True, dagger_rounds=2)
    assert sft.run(asked, open_backend=open_backend) is None
    out = capsys.readouterr().out
    assert "RMB" in out
    assert "2 DAgger rounds" in out
    assert list((tmp_path / "08-alfworld").iterdir()) == []


def test_sequences_longer_than_the_service_takes_are_refused(scripted, tmp_path):
    short = Capabilities(default_model="m", max_sequence_tokens=1000)
    with pytest.raises(UsageError, match="takes sequences of 1000 tokens: set --max-trajectory-tokens"):
        run(scripted, capabilities=short)
    assert list((tmp_path / "08-alfworld" / "runs").iterdir()) == []


def test_an_opening_that_does_not_fit_is_said_and_ends(scripted):
    with pytest.raises(AlfworldRLError, match=r"none of the last .* demonstrations has a token to learn.*--max-traj"):
        run(scripted.replace(max_trajectory_tokens=300, max_assistant_tokens=20))


def test_more_rounds_than_updates_are_refused_at_once(scripted):
    with pytest.raises(UsageError, match="--dagger-rounds 4 must be below --max-steps 4"):
        scripted.replace(dagger_rounds=4)
    folder = run(scripted.replace(dagger_rounds=3, dagger_games=1))
    assert [line["dagger/round"] for line in metrics_of(folder) if "dagger/round" in line] == [1, 2, 3]


def test_a_rolling_state_is_removed_through_the_backend(scripted, monkeypatch):
    monkeypatch.setattr(sft, "SECONDS_BETWEEN_SAVES", 0.0)
    open_backend = opener()
    folder = sft.run(scripted, open_backend=open_backend)
    assert open_backend.backend.deleted == [f"local://a/training_state/rolling-{n:06d}" for n in (1, 2, 3)]
    assert [path.name for path in (folder.path / "training_state").iterdir()] == ["step-000004"]


def test_memory_is_no_part_of_what_a_resumed_run_repeats(settings):
    folder = sft.run(settings.replace(max_steps=1))
    [line] = read_jsonl(folder.metrics_file)
    assert [name for name in line if "memory" in name] == ["time/peak_memory_mb"]


def test_the_best_update_is_recorded_and_goes_on_with_the_run(scripted, monkeypatch, games):
    out = scene_of(discover(games, "train").games[0].game_id)
    monkeypatch.setattr(scenes, "held_out", lambda game_id: scene_of(game_id) == out)
    flags = {"eval_games": 1, "eval_every": 1}
    whole = run(scripted.replace(run_name="whole", **flags))
    with pytest.raises(AlfworldRLError, match="gone"):
        run(scripted.replace(**flags), moment=nth("forward_backward", 3, BackendError("gone")))
    parts = resume()
    assert metrics_of(parts) == metrics_of(whole)
    assert parts.record().best.update == whole.record().best.update


def test_a_validation_that_fails_costs_no_update_and_is_made_up_for(scripted, monkeypatch, games):
    out = scene_of(discover(games, "train").games[0].game_id)
    monkeypatch.setattr(scenes, "held_out", lambda game_id: scene_of(game_id) == out)
    flags = {"eval_games": 1, "eval_every": 2}
    whole = run(scripted.replace(run_name="whole", **flags))
    poor = {"fail": lambda prompt: BalanceError("no money")}
    with pytest.raises(AlfworldRLError, match=r"no money.*Update 2 was the last finished and update 2 the last saved"):
        run(scripted.replace(**flags), **poor)
    assert [line["update"] for line in metrics_of(RunFolder.existing(home() / "runs", "a"))] == [1, 2]
    assert metrics_of(resume()) == metrics_of(whole)


def test_the_flags_are_those_of_the_command_line(scripted, games, capsys):
    code = main(["sft", "--backend", "local", "--data-root", str(games), "--dev-games", "1", "--eval-games", "1"])
    assert code == 2
    assert "--dev-games and --eval-games are the same" in capsys.readouterr().err

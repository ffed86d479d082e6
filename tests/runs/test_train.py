"""Training runs against a scripted backend: what they leave, how they fail, and how they go on."""

import io
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agent_models import call
from alfworld_rl.backends import BACKENDS
from alfworld_rl.backends.base import BalanceError, SamplingError
from alfworld_rl.commands import train
from alfworld_rl.commands.train import TrainConfig
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import discover, generate
from alfworld_rl.games.scenes import split_by_scene
from alfworld_rl.runs.folder import RunFolder
from alfworld_rl.types import Capabilities
from alfworld_rl.world import Game
from recorded_runs import timeless
from scripted_backend import ScriptedBackend, opener, random_player


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=6, valid_seen=2, valid_unseen=2, seed=3)
    return root


@pytest.fixture(scope="session")
def many_games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough that some are of held-out houses."""
    root = tmp_path_factory.mktemp("many")
    generate(root, train=64, valid_seen=0, valid_unseen=0, seed=1)
    return root


@pytest.fixture(autouse=True)
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "08-alfworld"


def config(data_root: Path, **changes: Any) -> TrainConfig:
    small: dict[str, Any] = {
        "backend": "local",
        "base_model": "scripted",  # with a model of one's own the local backend's presets have no part
        "data_root": data_root,
        "max_steps": 4,
        "games_per_batch": 2,
        "group_size": 3,
        "max_episode_steps": 3,
        "max_trajectory_tokens": 60_000,
        "save_every": 2,
        "run_name": "a",
        "swanlab_mode": "disabled",
    }
    return TrainConfig.from_flat(small | changes)


def run(data_root: Path, *, backend: dict[str, Any] | None = None, **changes: Any) -> RunFolder:
    folder = train.run(config(data_root, **changes), open_backend=opener(**(backend or {})))
    assert folder is not None
    return folder


def go_on(data_root: Path, *, backend: dict[str, Any] | None = None, **changes: Any) -> RunFolder:
    """With `--resume a` and these flags alone."""
    asked = TrainConfig.from_flat({"backend": "local", "resume": "a", "data_root": data_root} | changes)
    folder = train.run(asked, open_backend=opener(**(backend or {})))
    assert folder is not None
    return folder


def test_a_run_leaves_metrics_checkpoints_and_a_record(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(data_root, max_steps=5)
    lines = read_jsonl(folder.metrics_file)
    assert [line["update"] for line in lines] == [1, 2, 3, 4, 5]
    for prefix in ("reward/", "rollout/", "advantage/", "train/", "trainer/", "time/"):
        assert any(name.startswith(prefix) for name in lines[0])
    assert any(name.startswith("reward/success_rate/") for name in lines[0])
    checkpoints = read_jsonl(folder.checkpoints_file)
    assert [(item["update"], item["kind"]) for item in checkpoints] == [
        (update, kind) for update in (2, 4, 5) for kind in ("training_state", "sampler_weights")
    ]
    printed = capsys.readouterr().out
    for item in checkpoints:
        label = "Saved state" if item["kind"] == "training_state" else "Saved sampler weights"
        assert f"{label}: {item['uri']}\n" in printed
    record = folder.record()
    assert record is not None
    assert record.saved is not None
    assert (record.update, record.saved.update, record.finished) == (5, 5, True)
    assert sorted(path.name for path in (folder.path / "training_state").iterdir()) == [
        "step-000002",
        "step-000004",
        "step-000005",
    ]


def test_save_every_0_saves_only_at_the_end(data_root: Path) -> None:
    folder = run(data_root, max_steps=3, save_every=0)
    assert [item["update"] for item in read_jsonl(folder.checkpoints_file)] == [3, 3]


def test_metrics_count_what_the_backend_was_asked(data_root: Path) -> None:
    folder = run(data_root)
    lines = read_jsonl(folder.metrics_file)
    record = folder.record()
    assert record is not None
    assert record.usage.prefill == sum(line["rollout/prefill_tokens"] for line in lines)
    assert record.usage.sampled == sum(line["rollout/sampled_tokens"] for line in lines)
    assert record.usage.trained == sum(line["train/tokens_billed"] for line in lines) > 0
    assert 0.3 < lines[0]["rollout/cacheable_share"] < 1


def test_the_same_command_trains_the_same(data_root: Path) -> None:
    assert timeless(run(data_root)) == timeless(run(data_root, run_name="b"))
    assert timeless(run(data_root)) != timeless(run(data_root, run_name="c", seed=1))


def test_an_update_without_anything_to_learn_is_skipped_and_counted(data_root: Path) -> None:
    calls: list[str] = []
    backend = {"player": lambda prompt, seed, weights: "I give up.", "moment": calls.append}
    folder = run(data_root, backend=backend, max_steps=2, save_every=0)
    assert [line["trainer/update_skipped"] for line in read_jsonl(folder.metrics_file)] == [1, 1]
    assert set(calls) == {"save"}


def test_dynamic_sampling_replaces_degenerate_groups_up_to_its_bound(data_root: Path) -> None:
    backend = {"player": lambda prompt, seed, weights: "I give up."}
    folder = run(data_root, backend=backend, max_steps=1, dynamic_sampling=3)
    (line,) = read_jsonl(folder.metrics_file)
    assert line["rollout/groups"] == 5
    assert line["trainer/games_taken"] == 5


def test_every_game_is_played_once_an_epoch(data_root: Path) -> None:
    seen: list[str] = []

    def player(prompt: str, seed: int, weights: float) -> str:
        if prompt.count("<|im_start|>assistant") == 1:
            seen.append(prompt)
        return random_player(prompt, seed, weights)

    run(data_root, backend={"player": player}, max_steps=3)
    assert len(set(seen)) == 6
    assert len(seen) == 6 * 3


def test_a_failed_trajectory_does_not_sink_the_update(data_root: Path) -> None:
    answered = iter(range(1000))

    def fail(prompt: str) -> Exception | None:
        late = prompt.count("<|im_start|>assistant") > 1
        return SamplingError("cut off") if late and next(answered) == 0 else None

    folder = run(data_root, backend={"fail": fail}, max_steps=1)
    (line,) = read_jsonl(folder.metrics_file)
    assert line["rollout/failed"] == 1
    assert line["rollout/trajectories"] == 6


def test_an_empty_account_saves_and_says_how_to_go_on(data_root: Path) -> None:
    requests = iter(range(10_000))
    backend = {"fail": lambda prompt: BalanceError("the balance is exhausted") if next(requests) > 40 else None}
    with pytest.raises(AlfworldRLError, match=r"balance is exhausted.*go on with alfworld-rl train --resume a"):
        run(data_root, backend=backend, max_steps=9, save_every=0)
    folder = RunFolder.existing(Path("08-alfworld/runs"), "a")
    record = folder.record()
    assert record is not None
    assert record.saved is not None
    assert record.update == record.saved.update > 0
    assert record.saved.sampler_uri is not None
    whole = timeless(run(data_root, run_name="b", max_steps=9))
    assert timeless(go_on(data_root, max_steps=9)) == whole


def test_a_resumed_run_equals_the_uninterrupted_one(data_root: Path) -> None:
    whole = timeless(run(data_root, run_name="whole", max_steps=5))
    run(data_root, max_steps=3)
    assert timeless(go_on(data_root, max_steps=5)) == whole


def test_resuming_a_finished_run_or_with_other_games_is_refused(data_root: Path, tmp_path: Path) -> None:
    run(data_root, max_steps=2)
    with pytest.raises(UsageError, match="already has 2 updates"):
        go_on(data_root, max_steps=2)
    other = tmp_path / "other"
    generate(other, train=3, valid_seen=0, valid_unseen=0, seed=9)
    with pytest.raises(UsageError, match="other games"):
        go_on(other, max_steps=3)
    with pytest.raises(UsageError, match="--learning-rate was"):
        go_on(data_root, max_steps=3, learning_rate=0.5)


def test_ctrl_c_once_finishes_the_update_and_saves(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps: list[str] = []

    def moment(name: str) -> None:
        steps.append(name)
        if steps.count("optim_step") == 2 and name == "optim_step":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(data_root, backend={"moment": moment}, max_steps=9, save_every=0)
    captured = capsys.readouterr()
    assert "Ctrl-C again leaves it" in captured.err
    assert "Saved sampler weights:" in captured.out
    assert "updates" in captured.out
    assert captured.out.endswith("Go on with alfworld-rl train --resume a\n")
    record = RunFolder.existing(Path("08-alfworld/runs"), "a").record()
    assert record is not None
    assert record.saved is not None
    assert record.saved.update == record.update
    assert not record.finished


def test_ctrl_c_twice_leaves_now_with_the_record_intact(data_root: Path) -> None:
    steps: list[str] = []

    def moment(name: str) -> None:
        steps.append(name)
        if steps.count("optim_step") == 2 and name == "optim_step":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(data_root, backend={"moment": moment}, max_steps=4)
    whole = timeless(run(data_root, run_name="whole"))
    assert timeless(go_on(data_root)) == whole


def test_a_full_disk_ends_the_run_with_the_last_record_intact(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, syncs = os.fsync, iter(range(10_000))

    def full(descriptor: int) -> None:
        if next(syncs) >= 13:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AlfworldRLError, match="No space left on device"):
        run(data_root, save_every=0)
    monkeypatch.setattr(os, "fsync", sync)
    record = RunFolder.existing(Path("08-alfworld/runs"), "a").record()
    assert record is not None
    assert record.update >= 1
    assert timeless(go_on(data_root)) == timeless(run(data_root, run_name="whole"))


def test_a_backend_that_refuses_leaves_no_run_behind(data_root: Path, house: Path) -> None:
    def open_backend(name: str, **_: Any) -> ScriptedBackend:
        raise UsageError("no credentials: run `trio login`, or use --backend local")

    with pytest.raises(UsageError, match="trio login"):
        train.run(config(data_root), open_backend=open_backend)
    assert list((house / "runs").iterdir()) == []


def test_max_cost_ends_the_run_with_everything_saved(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'date = "now"\nsource = "test"\ncurrency = "RMB"\n'
        "[per_million_tokens]\nprefill = 0\ncached = 0\nsampled = 1e6\ntrained = 0\n"
    )
    first = read_jsonl(run(data_root, run_name="one", max_steps=1).metrics_file)[0]["rollout/sampled_tokens"]
    folder = run(data_root, max_steps=9, prices=prices, max_cost=2.5 * first, save_every=0)
    record = folder.record()
    assert record is not None
    assert record.saved is not None
    assert record.saved.update == record.update < 9
    assert "--max-cost" in capsys.readouterr().out


def test_dry_run_prints_an_estimate_and_starts_nothing(
    data_root: Path, house: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_backend(name: str, **_: Any) -> ScriptedBackend:
        raise AssertionError("a dry run opened a backend")

    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody there whom SwanLab could ask for a key
    asked = config(data_root, backend="trio", base_model="Qwen/Qwen3.5-4B", dry_run=True, swanlab_mode="online")
    assert train.run(asked, open_backend=open_backend) is None
    assert "RMB" in capsys.readouterr().out
    assert list(house.iterdir()) == []


def kl(folder: RunFolder) -> list[float]:
    return [line["train/kl_from_start"] for line in read_jsonl(folder.metrics_file)]


def test_the_penalty_is_against_the_policy_the_run_started_from(data_root: Path) -> None:
    """A scripted policy's logprobs are -0.5 less its weights: the divergence is the difference of the weights."""
    folder = run(data_root, max_steps=2, kl_coef=0.1, seed=42)
    first = timeless(folder)[0]["train/grad_norm"]  # the weights after the first update
    assert kl(folder) == pytest.approx([-0.042, -first])
    plain = run(data_root, run_name="plain", max_steps=2, seed=42)
    assert timeless(plain)[0]["train/loss_mean"] != timeless(folder)[0]["train/loss_mean"]


@pytest.mark.parametrize("kind", ["training_state", "sampler_weights"])
def test_a_run_from_a_checkpoint_is_penalized_for_leaving_that_checkpoint(data_root: Path, kind: str) -> None:
    start = timeless(run(data_root, max_steps=1))[0]["train/grad_norm"]
    folder = run(data_root, run_name="b", max_steps=2, kl_coef=0.1, init_from=f"local://a/{kind}/step-000001")
    after = timeless(folder)[0]["train/grad_norm"]
    assert kl(folder) == pytest.approx([0, start - after], abs=1e-6)


def test_only_the_newest_rolling_state_is_kept_and_the_backend_removes_the_others(data_root: Path) -> None:
    open_backend = opener()
    folder = train.run(config(data_root, save_every=0, max_steps=4), open_backend=open_backend)
    assert folder is not None
    rolling = [f"local://a/training_state/rolling-{update:06d}" for update in (1, 2, 3)]
    assert open_backend.backend.deleted == rolling  # type: ignore[attr-defined]
    assert [path.name for path in (folder.path / "training_state").iterdir()] == ["step-000004"]


def test_a_backend_whose_saves_are_dear_saves_only_when_asked(data_root: Path) -> None:
    calls: list[str] = []
    run(
        data_root,
        save_every=0,
        max_steps=4,
        backend={"moment": calls.append, "capabilities": Capabilities(default_model="m")},
    )
    assert calls.count("save") == 2


def test_the_schedule_gives_every_update_its_learning_rate(data_root: Path) -> None:
    folder = run(data_root, max_steps=6, schedule="cosine", warmup_steps=2, learning_rate=1e-3)
    peak = [1 / 3, 2 / 3, 1, *(0.5 * (1 + math.cos(math.pi * done / 4)) for done in (1, 2, 3))]
    assert [line["train/learning_rate"] for line in timeless(folder)] == pytest.approx([1e-3 * one for one in peak])


def test_more_updates_are_refused_where_they_would_change_the_learning_rate_of_all(data_root: Path) -> None:
    run(data_root, max_steps=2, schedule="linear")
    with pytest.raises(UsageError, match="--max-steps was 2, not 4"):
        go_on(data_root, max_steps=4)


def test_validation_plays_the_same_held_out_games_and_records_the_best(many_games: Path) -> None:
    learned, held_out = split_by_scene(discover(many_games, "train").games, 2, 42)
    tasks = {Game.load(game.path).task for game in held_out} - {Game.load(game.path).task for game in learned}
    validated: list[list[tuple[str, int]]] = []
    moments: list[str] = []

    def player(prompt: str, seed: int, weights: float) -> str:
        if prompt.count("<|im_start|>assistant") == 1 and any(f"{task}\n" in prompt for task in tasks):
            if moments:
                validated.append([])
                moments.clear()
            validated[-1].append((prompt, seed))
        return random_player(prompt, seed, weights)

    backend = {"player": player, "moment": moments.append}
    folder = run(many_games, backend=backend, max_steps=4, save_every=3, eval_every=2, eval_games=2)
    assert tasks
    assert len(validated) == 2
    assert sorted(validated[0]) == sorted(validated[1])  # the same games from the same seeds: a paired comparison
    lines = timeless(folder)
    rates = {line["update"]: line["validation/success_rate"] for line in lines if "validation/success_rate" in line}
    assert list(rates) == [2, 4]
    assert {line["validation/games"] for line in lines if "validation/games" in line} == {2}
    record = folder.record()
    assert record is not None
    assert record.best is not None
    assert record.best.success_rate == max(rates.values()) == rates[record.best.update]
    assert record.best.sampler_uri == f"local://a/sampler_weights/step-{record.best.update:06d}"


def test_the_best_update_is_the_one_that_won_most(many_games: Path) -> None:
    walkthroughs = {}
    for ref in split_by_scene(discover(many_games, "train").games, 2, 42)[1]:
        game = Game.load(ref.path)
        walkthroughs[game.task] = game.walkthrough
    updates = iter(range(1000))
    present = 0

    def moment(name: str) -> None:
        nonlocal present
        if name == "optim_step":
            present = next(updates) + 1

    def player(prompt: str, seed: int, weights: float) -> str:
        known = [task for task in walkthroughs if f"{task}\n" in prompt]
        if known and present == 2:  # the second update knows how those games go; the others do not, or forgot
            return call(walkthroughs[known[0]][prompt.count("<|im_start|>assistant") - 1])
        return random_player(prompt, seed, weights)

    backend = {"player": player, "moment": moment}
    flags = {"eval_every": 1, "eval_games": 2, "max_episode_steps": 12, "max_steps": 3, "group_size": 2}
    record = run(many_games, backend=backend, **flags).record()
    assert record is not None
    assert record.best is not None
    assert (record.best.update, record.best.sampler_uri) == (2, "local://a/sampler_weights/step-000002")


def test_validation_goes_on_where_the_run_does(many_games: Path) -> None:
    flags = {"eval_every": 1, "eval_games": 2, "save_every": 0}
    whole = run(many_games, run_name="whole", max_steps=4, **flags)
    run(many_games, max_steps=2, **flags)
    parts = go_on(many_games, max_steps=4)
    assert timeless(parts) == timeless(whole)
    best = [record.best for folder in (parts, whole) if (record := folder.record()) is not None]
    assert [(one.update, one.success_rate) for one in best if one] == [(4, best[1] and best[1].success_rate)] * 2


def test_validation_is_seldom_or_often_the_same_learning(many_games: Path) -> None:
    learned = ("reward/", "rollout/", "train/", "advantage/")

    def of(folder: RunFolder) -> list[dict[str, Any]]:
        return [{k: v for k, v in line.items() if k.startswith(learned)} for line in timeless(folder)]

    often = run(many_games, max_steps=4, eval_games=2, eval_every=1)
    assert of(often) == of(run(many_games, run_name="seldom", max_steps=4, eval_games=2, eval_every=4))


def test_validation_without_held_out_games_is_refused_at_once(data_root: Path, house: Path) -> None:
    with pytest.raises(UsageError, match="no game is of a held-out scene"):
        run(data_root, eval_games=2)
    with pytest.raises(UsageError, match="--eval-every needs --eval-games"):
        run(data_root, eval_every=2)
    assert list(house.iterdir()) == []


def test_the_local_presets_hold_for_the_built_in_model_where_no_flag_is_given(data_root: Path) -> None:
    saved: dict[str, Any] = {}
    for name, flags in (("preset", {}), ("given", {"learning_rate": 1e-2}), ("own", {"base_model": "scripted"})):
        asked = {"backend": "local", "data_root": data_root, "run_name": name, "max_steps": 1, "games_per_batch": 1}
        folder = train.run(TrainConfig.from_flat(asked | {"group_size": 2} | flags), open_backend=opener())
        assert folder is not None
        saved[name] = folder.settings("train")
    assert (saved["preset"]["base_model"], saved["preset"]["learning_rate"]) == ("alfworld-tiny-start", 1e-4)
    assert saved["preset"]["max_steps"] == 1
    assert saved["given"]["learning_rate"] == 1e-2
    assert (saved["own"]["advantage"], saved["own"]["learning_rate"], saved["own"]["lora_rank"]) == ("mean", 1e-6, 32)
    assert {one["swanlab_mode"] for one in saved.values()} == {"disabled"}
    # The quick start's defaults are those of the other backend, to the letter.
    trio = TrainConfig().with_defaults(BACKENDS["trio"].training_presets(None))
    assert trio == TrainConfig()


def test_the_reward_is_recorded_and_its_parts_stand_apart(data_root: Path) -> None:
    folder = run(data_root, max_steps=1, reward="penalized-success", penalized_success_floor=0.2)
    saved = folder.settings("train")
    assert (saved["reward"], saved["penalized_success_floor"]) == ("penalized-success", 0.2)
    (line,) = timeless(folder)
    assert line["reward/mean"] == pytest.approx(line["reward/part/success"] + line["reward/part/invalid"])
    assert line["reward/mean"] == 0  # nothing was won, so no penalty counts
    with pytest.raises(UsageError, match="--reward was penalized-success, not success"):
        go_on(data_root, reward="success", max_steps=2)


def test_kept_trajectories_are_rows_with_their_advantages(data_root: Path) -> None:
    folder = run(data_root, max_steps=2, keep_trajectories=3)
    rows = read_jsonl(folder.trajectories_file)
    assert [row["update"] for row in rows] == [1, 1, 1, 2, 2, 2]
    for row in rows:
        assert len(row["advantages"]) == row["steps"]
        assert sum(row["reward_parts"].values()) == pytest.approx(row["reward"])
    assert not run(data_root, run_name="none", max_steps=1, keep_trajectories=0).trajectories_file.exists()

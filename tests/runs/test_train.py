"""Training runs against a scripted backend: what they leave, how they fail, and how they go on."""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from alfworld_rl.runs.settings import TrainSettings
from alfworld_rl.runs.train import train

from alfworld_rl.backends.base import BalanceError, SamplingError
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import whole_lines
from alfworld_rl.games import generate
from alfworld_rl.runs.folder import RunFolder
from scripted_backend import ScriptedBackend, opener, random_player


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=6, valid_seen=2, valid_unseen=2, seed=3)
    return root


@pytest.fixture(autouse=True)
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "08-alfworld"


def settings(data_root: Path, **changes: Any) -> TrainSettings:
    small: dict[str, Any] = {
        "backend": "local",
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
    return TrainSettings(**(small | changes))


def run(data_root: Path, *, resume: bool = False, backend: dict[str, Any] | None = None, **changes: Any) -> RunFolder:
    if resume:
        changes["resume"] = changes.get("resume", "a")
    given = frozenset(changes) | {"data_root"}
    asked = settings(data_root, **changes)
    folder = train(asked, given=given, open_backend=opener(**(backend or {})))
    assert folder is not None
    return folder


def timeless(folder: RunFolder) -> list[dict[str, Any]]:
    lines = whole_lines(folder.metrics_file)
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def test_a_run_leaves_metrics_checkpoints_and_a_record(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(data_root, max_steps=5)
    lines = whole_lines(folder.metrics_file)
    assert [line["update"] for line in lines] == [1, 2, 3, 4, 5]
    for prefix in ("reward/", "rollout/", "advantage/", "train/", "trainer/", "time/"):
        assert any(name.startswith(prefix) for name in lines[0])
    assert any(name.startswith("reward/success_rate/") for name in lines[0])
    checkpoints = whole_lines(folder.checkpoints_file)
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
    assert [item["update"] for item in whole_lines(folder.checkpoints_file)] == [3, 3]


def test_metrics_count_what_the_backend_was_asked(data_root: Path) -> None:
    folder = run(data_root)
    lines = whole_lines(folder.metrics_file)
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
    assert [line["trainer/update_skipped"] for line in whole_lines(folder.metrics_file)] == [1, 1]
    assert set(calls) == {"save"}


def test_dynamic_sampling_replaces_degenerate_groups_up_to_its_bound(data_root: Path) -> None:
    backend = {"player": lambda prompt, seed, weights: "I give up."}
    folder = run(data_root, backend=backend, max_steps=1, dynamic_sampling=3)
    (line,) = whole_lines(folder.metrics_file)
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
    (line,) = whole_lines(folder.metrics_file)
    assert line["rollout/failed"] == 1
    assert line["rollout/trajectories"] == 6


def test_an_empty_account_saves_and_says_how_to_go_on(data_root: Path) -> None:
    requests = iter(range(10_000))
    backend = {"fail": lambda prompt: BalanceError("the balance is exhausted") if next(requests) > 40 else None}
    with pytest.raises(AlfworldRLError, match=r"balance is exhausted.*go on with --resume a"):
        run(data_root, backend=backend, max_steps=9, save_every=0)
    folder = RunFolder.existing(Path("08-alfworld/runs"), "a")
    record = folder.record()
    assert record is not None
    assert record.saved is not None
    assert record.update == record.saved.update > 0
    assert record.saved.sampler_uri is not None
    whole = timeless(run(data_root, run_name="b", max_steps=9))
    assert timeless(run(data_root, resume=True, max_steps=9)) == whole


def test_a_resumed_run_equals_the_uninterrupted_one(data_root: Path) -> None:
    whole = timeless(run(data_root, run_name="whole", max_steps=5))
    run(data_root, max_steps=3)
    assert timeless(run(data_root, resume=True, max_steps=5)) == whole


def test_resuming_a_finished_run_or_with_other_games_is_refused(data_root: Path, tmp_path: Path) -> None:
    run(data_root, max_steps=2)
    with pytest.raises(UsageError, match="already has 2 updates"):
        run(data_root, resume=True, max_steps=2)
    other = tmp_path / "other"
    generate(other, train=3, valid_seen=0, valid_unseen=0, seed=9)
    with pytest.raises(UsageError, match="other games"):
        run(other, resume=True, max_steps=3)
    with pytest.raises(UsageError, match="--learning-rate was"):
        run(data_root, resume=True, max_steps=3, learning_rate=0.5)


def test_ctrl_c_once_finishes_the_update_and_saves(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps: list[str] = []

    def moment(name: str) -> None:
        steps.append(name)
        if steps.count("optim_step") == 2 and name == "optim_step":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(data_root, backend={"moment": moment}, max_steps=9, save_every=0)
    captured = capsys.readouterr()
    assert "Ctrl-C again leaves now" in captured.err
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
    assert timeless(run(data_root, resume=True)) == whole


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
    assert timeless(run(data_root, resume=True)) == timeless(run(data_root, run_name="whole"))


def test_a_backend_that_refuses_leaves_no_run_behind(data_root: Path, house: Path) -> None:
    def open_backend(name: str, **_: Any) -> ScriptedBackend:
        raise UsageError("no credentials: run `trio login`, or use --backend local")

    with pytest.raises(UsageError, match="trio login"):
        train(settings(data_root), open_backend=open_backend)
    assert list((house / "runs").iterdir()) == []


def test_max_cost_ends_the_run_with_everything_saved(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'date = "now"\nsource = "test"\ncurrency = "RMB"\n'
        "[per_million_tokens]\nprefill = 0\ncached = 0\nsampled = 1e6\ntrained = 0\n"
    )
    first = whole_lines(run(data_root, run_name="one", max_steps=1).metrics_file)[0]["rollout/sampled_tokens"]
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
    asked = settings(data_root, dry_run=True, swanlab_mode="online")
    assert train(asked, open_backend=open_backend) is None
    assert "RMB" in capsys.readouterr().out
    assert list(house.iterdir()) == []


def test_the_penalty_is_against_the_policy_the_run_started_from(data_root: Path) -> None:
    folder = run(data_root, max_steps=2, kl_coef=0.1)
    measured = [line["train/kl_from_start"] for line in whole_lines(folder.metrics_file)]
    assert all(value < 0 for value in measured)
    plain = run(data_root, run_name="plain", max_steps=2)
    assert json.dumps(timeless(plain)) != json.dumps(timeless(folder))

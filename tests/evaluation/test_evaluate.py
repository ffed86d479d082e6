"""Evaluations against a scripted backend: every game once, the same file however it came about."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_models import call
from alfworld_rl.backends.base import BalanceError, SamplingError
from alfworld_rl.cli import main
from alfworld_rl.commands import eval as command
from alfworld_rl.commands.eval import EvalConfig
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.results import read_results
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import discover, generate
from alfworld_rl.world import Game
from scripted_backend import ScriptedBackend, opener

KEYS = [
    "game_id",
    "split",
    "task_type",
    "task",
    "messages",
    "steps",
    "won",
    "truncated",
    "stop_reason",
    "invalid_action_count",
    "reward",
    "evaluation_split",
]
METRICS = [
    "reward_mean",
    "success_rate",
    "steps_mean",
    "truncated_rate",
    "valid_tool_call_rate",
    "admissible_action_rate",
    "invalid_actions_mean",
    "games",
]


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=4, valid_seen=5, valid_unseen=4, seed=3)
    return root


@pytest.fixture(autouse=True)
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results.jsonl"


def run(data_root: Path, output: Path, *, backend: dict[str, Any] | None = None, **changes: Any) -> Mapping[str, Any]:
    small: dict[str, Any] = {"max_episode_steps": 3, "max_trajectory_tokens": 60_000, "games_per_batch": 3}
    small |= {"backend": "local", "data_root": data_root, "output": output}
    if "concurrency" in changes:
        del small["games_per_batch"]
    return command.run(EvalConfig.from_flat(small | changes), open_backend=opener(**(backend or {})))


def test_every_game_once_with_all_that_others_read(
    data_root: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(data_root, output)
    *lines, last = [json.loads(line) for line in output.read_text().splitlines()]
    assert last == summary
    assert [line["type"] for line in lines] == ["trajectory"] * 9
    games = [game for split in ("valid_seen", "valid_unseen") for game in discover(data_root, split).games]
    assert [line["game_id"] for line in lines] == [game.game_id for game in games]
    assert all(set(KEYS) <= line.keys() for line in lines)
    assert (last["type"], last["base_model"], last["model_path"]) == ("summary", "alfworld-tiny", None)
    for split, count in (("valid_seen", 5), ("valid_unseen", 4), ("all", 9)):
        assert all(f"eval/{split}/{name}" in last["metrics"] for name in METRICS)
        assert last["metrics"][f"eval/{split}/games"] == count
        low, high = last["intervals"][f"eval/{split}/success_rate"]
        assert 0 <= low <= last["metrics"][f"eval/{split}/success_rate"] <= high <= 1
    assert set(last["game_sha256"]) == {game.game_id for game in games}
    assert last["protocol"]
    assert sorted(path.name for path in output.parent.iterdir()) == ["08-alfworld", "results.jsonl"]
    assert "valid_unseen" in capsys.readouterr().out


def test_metrics_are_those_of_the_lines(data_root: Path, output: Path) -> None:
    metrics = run(data_root, output)["metrics"]
    lines = [line for line in read_jsonl(output) if line["type"] == "trajectory"]
    steps = sum(line["steps"] for line in lines)
    assert metrics["eval/all/reward_mean"] == pytest.approx(sum(line["reward"] for line in lines) / 9)
    assert metrics["eval/all/invalid_actions_mean"] == sum(line["invalid_action_count"] for line in lines) / 9
    assert metrics["eval/all/admissible_action_rate"] == 1 - sum(line["invalid_action_count"] for line in lines) / steps
    for line in lines:
        assert line["reward"] == pytest.approx(line["won"] - 0.1 * line["invalid_action_count"])


def test_the_score_does_not_depend_on_how_many_games_are_in_flight(data_root: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{count}.jsonl" for count in (1, 4, 100)]
    for output, count in zip(outputs, (1, 4, 100), strict=True):
        run(data_root, output, games_per_batch=count)
    assert len({output.read_bytes() for output in outputs}) == 1


def test_games_per_batch_is_another_name_of_concurrency(data_root: Path, tmp_path: Path) -> None:
    for name, flag in (("a", "games_per_batch"), ("b", "concurrency")):
        asked = EvalConfig.from_flat({flag: 5})
        assert asked.in_flight == 5
        run(data_root, tmp_path / f"{name}.jsonl", **{flag: 5})
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert EvalConfig().in_flight == 16
    with pytest.raises(UsageError, match="--concurrency and --games-per-batch are the same; give one of them"):
        EvalConfig.from_flat({"games_per_batch": 5, "concurrency": 5})


def test_the_reward_is_recorded_and_results_of_unlike_rewards_are_not_compared(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, other = tmp_path / "plain.jsonl", tmp_path / "other.jsonl"
    run(data_root, plain)
    summary = run(data_root, other, reward="penalized-success")
    assert summary["settings"]["reward"] == summary["played"]["reward"] == "penalized-success"
    lines = read_jsonl(other)[:-1]
    assert all(line["reward"] == 0 for line in lines if not line["won"])
    assert any(line["invalid_action_count"] for line in lines)
    labelled = [f"Plain={plain}", f"Other={other}"]
    capsys.readouterr()
    assert main(["analysis", "--results", *labelled, "--output", str(tmp_path / "a.png")]) == 2
    assert '--reward was "document", not "penalized-success"' in capsys.readouterr().err
    # Scored again by one reward they can be.
    again = ["--output", str(tmp_path / "a.png"), "--score-again", "--reward", "success"]
    assert main(["analysis", "--results", *labelled, *again]) == 0
    with pytest.raises(UsageError, match="--reward was"):
        run(data_root, plain, reward="success", resume_output=True)


def test_parameters_of_the_reward_that_differ_are_unlike_rewards(data_root: Path, output: Path) -> None:
    summary = run(data_root, output, document_invalid_penalty=0.5)
    assert summary["settings"]["reward_invalid_penalty"] == 0.5
    for line in read_jsonl(output)[:-1]:
        assert line["reward"] == pytest.approx(line["won"] - 0.5 * line["invalid_action_count"])
    with pytest.raises(UsageError, match="--reward-invalid-penalty was"):
        run(data_root, output, resume_output=True)


def test_max_cost_ends_an_evaluation_that_can_be_finished(data_root: Path, output: Path, tmp_path: Path) -> None:
    run(data_root, tmp_path / "whole.jsonl")
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'date = "now"\nsource = "test"\ncurrency = "RMB"\n'
        "[per_million_tokens]\nprefill = 0\ncached = 0\nsampled = 1e6\ntrained = 0\n"
    )
    with pytest.raises(AlfworldRLError, match=r"reached --max-cost 1 RMB; the finished games are in .*--resume-output"):
        run(data_root, output, prices=prices, max_cost=1.0)
    assert 0 < len(read_jsonl(output)) < 9
    run(data_root, output, resume_output=True)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_an_interrupted_evaluation_goes_on_to_the_same_file(data_root: Path, output: Path, tmp_path: Path) -> None:
    run(data_root, tmp_path / "whole.jsonl")
    requests = iter(range(1000))
    dying = {"fail": lambda prompt: BalanceError("no money") if next(requests) > 16 else None}
    with pytest.raises(AlfworldRLError, match=r"no money; the finished games are in .*--resume-output"):
        run(data_root, output, backend=dying)
    done = read_jsonl(output)
    assert 0 < len(done) < 9
    with output.open("a") as file:
        file.write('{"type": "trajectory", "game_id": "torn')
    asked: list[str] = []
    run(data_root, output, resume_output=True, backend={"fail": asked.append})
    openings = {prompt for prompt in asked if "<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>" not in prompt}
    assert len(openings) <= 9 - len(done) + 1
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not output.with_name("results.jsonl.settings").exists()
    run(data_root, output, resume_output=True)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_going_on_with_other_settings_is_refused_by_name(data_root: Path, output: Path) -> None:
    run(data_root, output)
    with pytest.raises(UsageError, match=r"--seed was 42, not 7; --temperature was 0\.01, not 0\.5"):
        run(data_root, output, resume_output=True, temperature=0.5, seed=7)


def test_an_existing_file_is_refused_and_replaced_only_when_told(data_root: Path, output: Path) -> None:
    run(data_root, output)
    before = output.read_bytes()
    with pytest.raises(UsageError, match="--overwrite-output"):
        run(data_root, output, seed=1)
    assert output.read_bytes() == before
    run(data_root, output, seed=1, overwrite_output=True)
    assert output.read_bytes() != before
    assert [path.name for path in output.parent.glob("results*")] == ["results.jsonl"]


def test_replacing_keeps_the_old_file_until_the_new_one_is_complete(data_root: Path, output: Path) -> None:
    run(data_root, output)
    before = output.read_bytes()
    with pytest.raises(BalanceError):
        run(data_root, output, overwrite_output=True, backend={"fail": lambda prompt: BalanceError("no money")})
    assert output.read_bytes() == before
    requests = iter(range(1000))
    dying = {"fail": lambda prompt: BalanceError("no money") if next(requests) > 16 else None}
    with pytest.raises(AlfworldRLError, match="no money"):
        run(data_root, output, seed=1, overwrite_output=True, backend=dying)
    assert output.with_name("results.jsonl.old").read_bytes() == before
    run(data_root, output, seed=1, resume_output=True)
    assert [path.name for path in output.parent.glob("results*")] == ["results.jsonl"]


def test_a_game_that_cannot_be_played_to_its_end_is_not_scored(data_root: Path, output: Path) -> None:
    requests = iter(range(1000))
    once = {"fail": lambda prompt: SamplingError("cut off for good") if next(requests) == 0 else None}
    with pytest.raises(AlfworldRLError, match=r"1 of 9 games .*cut off for good.*--resume-output"):
        run(data_root, output, backend=once)
    assert len(read_jsonl(output)) == 8
    assert run(data_root, output, resume_output=True)["metrics"]["eval/all/games"] == 9


def test_samples_per_game(data_root: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    winners = {}
    for split in ("valid_seen", "valid_unseen"):
        for game in discover(data_root, split).games:
            winners[Game.load(game.path).task] = Game.load(game.path).walkthrough

    def player(prompt: str, seed: int, weights: float) -> str:
        task = next(task for task in winners if f"{task}\n" in prompt)
        turn = prompt.count("<|im_start|>assistant") - 1
        return call(winners[task][turn])

    summary = run(data_root, output, samples_per_game=3, max_episode_steps=60, backend={"player": player})
    assert summary["metrics"]["eval/all/success_rate"] == 1
    assert [summary["metrics"][f"eval/all/pass@{k}"] for k in (1, 2, 3)] == [1, 1, 1]
    assert summary["metrics"]["eval/all/games"] == 9
    assert len(read_jsonl(output)) == 28
    # Nine games, not 27: trajectories of one game are no independent trials.
    assert summary["intervals"]["eval/all/success_rate"] == pytest.approx([0.7009, 1], abs=1e-4)
    assert "pass@3" in capsys.readouterr().out


def test_two_evaluations_cannot_write_one_file(data_root: Path, output: Path) -> None:
    code = (
        "import sys, pathlib; from alfworld_rl.evaluation.output import opened\n"
        "with opened(pathlib.Path(sys.argv[1]), {}, overwrite=False, resume=False):\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code, output], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(UsageError, match="in use by another process"):
            run(data_root, output, overwrite_output=True)
        other.kill()
    run(data_root, output, overwrite_output=True)


def test_a_training_state_is_refused_with_the_uri_to_use(data_root: Path, output: Path) -> None:
    with pytest.raises(UsageError, match="Saved sampler weights"):
        run(data_root, output, model_path="local://a/training_state/step-000001")
    assert not output.exists()


def test_a_broken_game_file_is_named_before_the_model_is_asked(data_root: Path, output: Path, tmp_path: Path) -> None:
    root = tmp_path / "broken"
    generate(root, train=2, valid_seen=2, valid_unseen=2, seed=3)
    run(root, output)
    victim = discover(root, "valid_unseen").games[0].path
    text = victim.read_text()
    victim.write_text(text.replace("(:goal", "(:gaol"))
    os.utime(victim)

    def open_backend(*_: Any, **__: Any) -> ScriptedBackend:
        raise AssertionError("the backend was opened")

    config = EvalConfig.from_flat({"backend": "local", "data_root": root, "output": tmp_path / "other.jsonl"})
    with pytest.raises(AlfworldRLError, match=str(victim.parent.name)):
        command.run(config, open_backend=open_backend)
    assert not (tmp_path / "other.jsonl").exists()


def test_an_unwritable_folder_is_refused(data_root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        run(data_root, tmp_path / "file" / "results.jsonl")


def test_what_it_writes_can_be_read_back(data_root: Path, output: Path) -> None:
    run(data_root, output)
    results = read_results(output)
    assert results.overall.games == 9
    assert len(results.rows) == 9
    assert results.settings["max_episode_steps"] == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.with_name("results.jsonl.settings").write_text("{"),
        lambda path: path.with_name("results.jsonl.settings").write_text("[1]"),
        lambda path: path.write_text('{"type": "trajectory", "game_id": ["a"], "sample": 0}\n'),
        lambda path: path.write_text('{"type": "trajectory", "game_id": "a"}\n'),
        lambda path: path.write_text("[" * 100_000 + "\n"),
    ],
)
def test_a_damaged_unfinished_file_is_refused_in_a_sentence(data_root: Path, output: Path, damage: Any) -> None:
    requests = iter(range(1000))
    dying = {"fail": lambda prompt: BalanceError("no money") if next(requests) > 16 else None}
    with pytest.raises(AlfworldRLError, match="no money"):
        run(data_root, output, backend=dying)
    damage(output)
    before = output.read_bytes()
    with pytest.raises(AlfworldRLError, match=r"overwrite-output|damaged"):
        run(data_root, output, resume_output=True)
    assert output.read_bytes() == before


def test_a_disk_that_fills_up_leaves_the_finished_games_and_the_way_on(
    data_root: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(data_root, tmp_path / "whole.jsonl")
    sync, synced = os.fsync, iter(range(1000))

    def full(descriptor: int) -> None:
        if next(synced) > 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(AlfworldRLError, match=r"No space left.*--resume-output"):
            run(data_root, output)
    assert 0 < len(read_jsonl(output)) < 9
    run(data_root, output, resume_output=True)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()

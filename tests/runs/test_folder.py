"""A run folder says what a run was asked and how far it came."""

import json
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.commands.sft import SftConfig
from alfworld_rl.commands.train import TrainConfig
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import read_jsonl
from alfworld_rl.runs.config import resumed
from alfworld_rl.runs.folder import Best, Record, RunFolder, Saved
from alfworld_rl.types import Usage


def new(runs: Path, name: str = "alfworld-agent-rl", **flags: Any) -> RunFolder:
    return RunFolder.new(runs, name, "train", TrainConfig.from_flat({"run_name": name, **flags}).to_flat())


def more_updates(saved: TrainConfig) -> frozenset[str]:
    return frozenset({"max_steps"})


def test_a_repeated_name_gets_a_number(tmp_path: Path) -> None:
    names = [new(tmp_path, "a").name for _ in range(3)]
    assert names == ["a", "a-2", "a-3"]


def test_settings_and_record_come_back_as_they_were(tmp_path: Path) -> None:
    flags = {"data_root": "/games", "learning_rate": 3e-5, "include_admissible_actions": False, "advantage": "gigpo"}
    config = TrainConfig.from_flat({"run_name": "a", **flags})
    folder = RunFolder.new(tmp_path, "a", "train", config.to_flat())
    values = RunFolder.existing(tmp_path, "a").settings("train")
    assert TrainConfig.from_flat({name: value for name, value in values.items() if value is not None}) == config
    assert folder.record() is None
    saved = Saved(4, 32, "local://a/training_state/s", "local://a/sampler_weights/s", Usage(1, 2, 3, 4))
    best = Best(4, 0.5, "local://a/sampler_weights/s")
    for record in (Record(5, Usage(5, 6, 7, 8), "hash", saved, 2, True, best), Record(1, Usage(), "hash")):
        folder.write_record(record)
        assert folder.record() == record


def test_the_folder_of_another_command_is_named_with_the_command_that_goes_on(tmp_path: Path) -> None:
    folder = new(tmp_path, "a")
    with pytest.raises(UsageError, match="made by train; go on with it by `alfworld-rl train --resume a`"):
        folder.settings("sft")


def test_going_back_keeps_what_was_done_aside(tmp_path: Path) -> None:
    folder = new(tmp_path)
    for update in range(1, 6):
        folder.add_metrics({"update": update})
    with folder.metrics_file.open("a") as file:
        file.write('{"update": 6, "tor')
    folder.go_back_to(3)
    assert read_jsonl(folder.metrics_file) == [{"update": 1}, {"update": 2}, {"update": 3}]
    assert read_jsonl(folder.path / "metrics.redone.jsonl") == [{"update": 4}, {"update": 5}]


def test_a_run_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    new(tmp_path, "a")
    with pytest.raises(UsageError, match=r"there is no run b under .*; there are a"):
        RunFolder.existing(tmp_path, "b")


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    folder = new(tmp_path, "a")
    with (
        folder.in_use(),
        pytest.raises(UsageError, match="run a is in use"),
        RunFolder.existing(tmp_path, "a").in_use(),
    ):
        pass


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match="runs cannot be made"):
        new(tmp_path / "runs")


def test_a_resumed_run_may_last_longer_but_not_learn_otherwise(tmp_path: Path) -> None:
    new(tmp_path, "a", max_steps=5, learning_rate=1e-4)
    _, longer = resumed(tmp_path, "train", TrainConfig.from_flat({"resume": "a", "max_steps": 9}), "a", more_updates)
    assert (longer.run.max_steps, longer.optimizer.learning_rate) == (9, 1e-4)
    other = TrainConfig.from_flat({"learning_rate": 1e-3, "seed": 1, "resume": "a"})
    with pytest.raises(UsageError, match=r"--learning-rate was 0\.0001, not 0\.001; --seed was 42, not 1"):
        resumed(tmp_path, "train", other, "a", more_updates)


def test_flags_that_contradict_what_is_saved_are_refused_together(tmp_path: Path) -> None:
    """Each alone could be; beside what the run was started with it cannot."""
    new(tmp_path, "a", eval_games=4, admissible_commands="none")
    asked = TrainConfig.from_flat({"resume": "a", "eval_games": 5, "include_admissible_actions": True})
    with pytest.raises(UsageError) as raised:
        resumed(tmp_path, "train", asked, "a")
    assert "--eval-games was 4, not 5" in str(raised.value)
    assert "--include-admissible-actions was None, not True" in str(raised.value)
    new(tmp_path, "b", init_from="local://x/sampler_weights/y")
    _, config = resumed(tmp_path, "train", TrainConfig.from_flat({"resume": "b", "save_every": 3}), "b")
    assert (config.run.init_from, config.run.save_every) == ("local://x/sampler_weights/y", 3)


def test_a_flag_that_is_given_as_it_was_is_no_contradiction(tmp_path: Path) -> None:
    new(tmp_path, "a", learning_rate=1e-4, backend="local")
    asked = TrainConfig.from_flat({"resume": "a", "learning_rate": 1e-4, "backend": "local"})
    assert resumed(tmp_path, "train", asked, "a")[1].optimizer.learning_rate == 1e-4


def test_settings_of_an_older_version_take_todays_defaults_once_and_for_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = new(tmp_path, "a", max_steps=3, learning_rate=1e-4)
    values = json.loads(folder.settings_file.read_text())
    for name in ("schedule", "eval_every", "reward"):
        del values[name]
    folder.settings_file.write_text(json.dumps(values | {"no_longer_a_flag": 1}))
    asked = TrainConfig.from_flat({"resume": "a"})
    _, config = resumed(tmp_path, "train", asked, "a")
    assert (config.run.max_steps, config.optimizer.schedule, config.reward.reward) == (3, "constant", "document")
    assert "--schedule constant" in capsys.readouterr().out
    written = json.loads(folder.settings_file.read_text())
    assert (written["schedule"], written["eval_every"], written["reward"]) == ("constant", 0, "document")
    assert (written["command"], written["learning_rate"]) == ("train", 1e-4)
    # What was written down holds whatever a later version's default is, and is not said again.
    folder.settings_file.write_text(json.dumps(written | {"schedule": "linear"}))
    assert resumed(tmp_path, "train", asked, "a")[1].optimizer.schedule == "linear"
    assert capsys.readouterr().out == ""


def test_sft_keeps_its_own_defaults_for_what_an_older_version_did_not_know(tmp_path: Path) -> None:
    """The schedule of imitation was linear before it had a flag."""
    values = SftConfig.from_flat({"backend": "local", "run_name": "s"}).to_flat()
    del values["schedule"]
    RunFolder.new(tmp_path, "s", "sft", values)
    assert resumed(tmp_path, "sft", SftConfig.from_flat({"resume": "s"}), "s")[1].optimizer.schedule == "linear"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("settings.json", '{"seed": [1], "max_steps": 3}'),
        ("settings.json", '{"include_admissible_actions": "maybe"}'),
        ("settings.json", "[" * 100_000),
        ("state.json", '{"update": "x", "usage": {}, "games": "", "saved": null, "resumes": 0, "finished": false}'),
        ("state.json", '{"update": 1, "usage": {}, "games": "", "saved": "s", "resumes": 0, "finished": false}'),
        ("state.json", '{"update": 1, "usage": [1], "games": "", "saved": null, "resumes": 0, "finished": false}'),
        ("metrics.jsonl", "{}\n"),
        ("metrics.jsonl", "[" * 100_000 + "\n"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, text: str) -> None:
    folder = new(tmp_path)
    (folder.path / file).write_text(text)

    def read() -> None:
        resumed(tmp_path, "train", TrainConfig.from_flat({"resume": folder.name}), folder.name)
        folder.record()
        folder.go_back_to(0)

    with pytest.raises(AlfworldRLError, match=file) as raised:
        read()
    assert not isinstance(raised.value, UsageError)
    assert (folder.path / file).read_text() == text

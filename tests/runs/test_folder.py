"""A run folder says what a run was asked and how far it came."""

from pathlib import Path

import pytest
from alfworld_rl.runs.settings import TrainSettings, from_json, resumed

from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import whole_lines
from alfworld_rl.runs.folder import Record, RunFolder, Saved
from alfworld_rl.types import Usage


def test_a_repeated_name_gets_a_number(tmp_path: Path) -> None:
    names = [RunFolder.new(tmp_path, TrainSettings(run_name="a")).name for _ in range(3)]
    assert names == ["a", "a-2", "a-3"]


def test_settings_and_record_come_back_as_they_were(tmp_path: Path) -> None:
    settings = TrainSettings(
        run_name="a", data_root=Path("/games"), learning_rate=3e-5, include_admissible_actions=False
    )
    folder = RunFolder.new(tmp_path, settings)
    assert RunFolder.existing(tmp_path, "a").settings(TrainSettings) == settings
    assert folder.record() is None
    saved = Saved(4, 32, "local://a/training_state/s", "local://a/sampler_weights/s", Usage(1, 2, 3, 4))
    for record in (Record(5, Usage(5, 6, 7, 8), "hash", saved, 2, True), Record(1, Usage(), "hash")):
        folder.write_record(record)
        assert folder.record() == record


def test_going_back_keeps_what_was_done_aside(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path, TrainSettings())
    for update in range(1, 6):
        folder.add_metrics({"update": update})
    with folder.metrics_file.open("a") as file:
        file.write('{"update": 6, "tor')
    folder.go_back_to(3)
    assert whole_lines(folder.metrics_file) == [{"update": 1}, {"update": 2}, {"update": 3}]
    assert whole_lines(folder.path / "metrics.redone.jsonl") == [{"update": 4}, {"update": 5}]


def test_a_run_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    RunFolder.new(tmp_path, TrainSettings(run_name="a"))
    with pytest.raises(UsageError, match=r"there is no run b under .*; there are a"):
        RunFolder.existing(tmp_path, "b")


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path, TrainSettings(run_name="a"))
    with (
        folder.in_use(),
        pytest.raises(UsageError, match="run a is in use"),
        RunFolder.existing(tmp_path, "a").in_use(),
    ):
        pass


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match="runs cannot be made"):
        RunFolder.new(tmp_path / "runs", TrainSettings())


def test_a_resumed_run_may_last_longer_but_not_learn_otherwise() -> None:
    saved = TrainSettings(max_steps=5, learning_rate=1e-4)
    longer = TrainSettings(max_steps=9, learning_rate=1e-4, resume="a")
    assert resumed(saved, longer, ["max_steps", "resume"]).max_steps == 9
    other = TrainSettings(learning_rate=1e-3, seed=1, resume="a")
    with pytest.raises(UsageError, match=r"--learning-rate was 0\.0001, not 0\.001; --seed was 42, not 1"):
        resumed(saved, other, ["learning_rate", "seed", "resume"])


def test_settings_of_an_older_program_are_read() -> None:
    assert from_json(TrainSettings, {"max_steps": 3, "no_longer_a_flag": 1}).max_steps == 3


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
    folder = RunFolder.new(tmp_path, TrainSettings())
    (folder.path / file).write_text(text)

    def read() -> None:
        folder.settings(TrainSettings)
        folder.record()
        folder.go_back_to(0)

    with pytest.raises(AlfworldRLError, match=file) as raised:
        read()
    assert not isinstance(raised.value, UsageError)
    assert (folder.path / file).read_text() == text

"""The command line as a person meets it: what it says, where, and with which exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.cli import COMMANDS, main

SCRIPTS = Path(__file__).resolve().parents[2] / "08-alfworld"


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_names_every_command_without_loading_any(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; from alfworld_rl.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'torch', 'pytrio', 'swanlab', 'matplotlib', 'numpy', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert all(name in done.stdout for name in COMMANDS)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", ["train", "eval", "analysis"])
def test_the_scripts_are_the_commands(name: str) -> None:
    done = subprocess.run([sys.executable, SCRIPTS / f"{name}.py", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert f"usage: {name}.py " in done.stdout


def test_all_wrong_values_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {
        "--max-steps": "x",
        "--group-size": "1",
        "--top-p": "3",
        "--swanlab-mode": "loud",
        "--learning-rate": "nan",
    }
    code = main(["train", *[word for pair in wrong.items() for word in pair]])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(name in captured.err for name in wrong)


def test_a_wrong_value_and_a_contradiction_are_refused_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--seed", "-1", "--overwrite-output", "--resume-output"]) == 2
    error = capsys.readouterr().err
    assert "--seed must be at least 0" in error
    assert "give one of them" in error


@pytest.mark.parametrize("command", ["train", "eval"])
def test_missing_games_are_named_before_anything_else(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--data-root", "nowhere", "--swanlab-mode", "disabled"]) == 2
    error = capsys.readouterr().err
    assert "nowhere" in error
    assert "alfworld-download" in error
    assert "Traceback" not in error
    assert list(Path("08-alfworld").iterdir()) == []


def test_analysis_says_what_is_missing_and_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analysis"]) == 2
    error = capsys.readouterr().err
    for name in ("base-qwen35-4b-eval.jsonl", "checkpoint-40steps.jsonl", "checkpoint-80steps.jsonl"):
        assert name in error
    assert not Path("08-alfworld/images").exists()


def test_doctor_never_prints_a_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PYTRIO_API_KEY", "secret-key")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "works now" in out
    assert "secret-key" not in out


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data-root", "nowhere", "--debug", "--swanlab-mode", "disabled"]) == 2
    assert "Traceback" in capsys.readouterr().err

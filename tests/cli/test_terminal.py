"""What stands on which stream, for people and for programs; completion; colours."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.cli import COMMANDS, main
from alfworld_rl.games import generate

PLAY = ["--max-episode-steps", "3", "--max-assistant-tokens", "20", "--admissible-commands", "none"]


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=3, valid_seen=1, valid_unseen=1, seed=3)
    return root


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)


def evaluation(games: Path, *more: str) -> list[str]:
    return ["eval", "--backend", "local", "--data-root", str(games), *PLAY, *more]


def test_json_is_the_summary_of_the_results_file_and_people_read_standard_error(
    games: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(evaluation(games, "--output", "one.jsonl", "--json")) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(Path("one.jsonl").read_text().splitlines()[-1])
    assert "success" in err
    assert "Results: one.jsonl" in err

    assert main(evaluation(games, "--output", "two.jsonl", "--json", "--quiet")) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["type"] == "summary"
    assert err == ""


def test_a_failed_evaluation_prints_no_json(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(evaluation(games, "--model-path", "local://no/sampler_weights/such", "--json")) != 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")


def test_quiet_leaves_errors_and_what_was_asked_for(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "list", "--data-root", str(games), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["games", "list", "--data-root", str(games), "--split", "train", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert all(Path(line).is_file() for line in out.splitlines())
    assert len(out.splitlines()) == 3
    assert err == ""
    assert main(["games", "list", "--data-root", "nowhere", "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nowhere" in err


def test_without_quiet_the_counts_stand_beside_the_paths(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "list", "--data-root", str(games), "--split", "train"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert "train: 3 games" in err


COMPLETE = """
source ./complete.bash
ask() { COMP_WORDS=(alfworld-rl "$@"); COMP_CWORD=$#; COMPREPLY=(); _shtab_alfworld_rl; echo "${COMPREPLY[@]}"; }
ask ""
ask games ""
ask eval --samples-per
ask train --admissible-commands ""
ask train --backend lo
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_flags_and_values() -> None:
    script = subprocess.run(
        [sys.executable, "-m", "alfworld_rl.cli", "--print-completion", "bash"], capture_output=True, text=True
    )
    assert script.returncode == 0, script.stderr
    Path("complete.bash").write_text(script.stdout)
    done = subprocess.run(["bash", "-c", COMPLETE], capture_output=True, text=True)
    commands, games, flag, choices, backend = done.stdout.splitlines()
    assert set(COMMANDS) <= set(commands.split())
    assert games.split() == ["list", "generate"]
    assert flag == "--samples-per-game"
    assert choices.split() == ["full", "changes", "none"]
    assert backend == "local"


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh", "powershell"])
def test_other_shells_get_a_script_of_their_own(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", shell])
    assert not end.value.code
    assert "samples-per-game" in capsys.readouterr().out


COLOUR = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3|4|9|10)[0-9](?:;[0-9]+)*m")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
@pytest.mark.parametrize("no_color", [True, False])
def test_no_color_is_respected_on_a_terminal(no_color: bool, games: Path) -> None:
    import pty

    env = {**os.environ, "TERM": "xterm-256color", **({"NO_COLOR": "1"} if no_color else {})}
    if not no_color:
        env.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "alfworld_rl.cli", *evaluation(games, "--output", "here.jsonl")]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # Linux says so when the last writer has left
            break
        if not more:
            break
        shown += more
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "valid_seen" in text
    assert bool(COLOUR.search(text)) is not no_color


@pytest.mark.parametrize("name", ["nul", "COM1", "aux.1", "run."])
def test_no_run_has_a_name_that_a_system_keeps_for_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--run-name", name, "--swanlab-mode", "disabled"]) == 2
    assert "--run-name cannot be" in capsys.readouterr().err

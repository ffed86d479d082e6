"""The examples run as their texts say, only smaller."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from alfworld_rl.cli import main
from alfworld_rl.files import read_json, read_jsonl
from alfworld_rl.games import generate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

PLAY = ["--backend", "local", "--data-root", "games", "--max-episode-steps", "6"]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    generate(Path("games"), train=3, valid_seen=1, valid_unseen=1, seed=5)
    return tmp_path


def test_the_loop(house: Path) -> None:
    command = [sys.executable, EXAMPLES / "rl_loop.py", "--data-root", "games", "--updates", "1"]
    done = subprocess.run(
        [*command, "--games-per-update", "2", "--group-size", "4"], capture_output=True, text=True, cwd=house
    )
    assert done.returncode == 0, done.stderr
    assert "update 1: " in done.stdout
    assert "after:  Evaluation(" in done.stdout
    assert len((EXAMPLES / "rl_loop.py").read_text().splitlines()) <= 75


def test_a_reward_of_ones_own(house: Path) -> None:
    train = ["train", *PLAY, "--reward", "examples.new_reward:quick", "--max-steps", "1", "--games-per-batch", "2"]
    assert main([*train, "--group-size", "2", "--run-name", "quick"]) == 0
    run = house / "08-alfworld" / "runs" / "quick"
    assert read_json(run / "settings.json")["reward"] == "examples.new_reward:quick"
    [line] = read_jsonl(run / "metrics.jsonl")
    assert line["reward/mean"] == pytest.approx(line["reward/part/won"] + line["reward/part/haste"])


def test_a_format_of_ones_own(house: Path) -> None:
    common = ["eval", *PLAY, "--split", "valid_seen"]
    assert main([*common, "--format", "examples.new_format:TersePrompt", "--output", "terse.jsonl"]) == 0
    assert main([*common, "--output", "usual.jsonl"]) == 0
    terse, usual = (read_jsonl(house / f"{name}.jsonl") for name in ("terse", "usual"))
    assert "Look into closed things." in json.dumps(terse[0]["messages"])
    assert terse[-1]["protocol"] != usual[-1]["protocol"]
    # What was played under another prompt is not compared.
    assert main(["analysis", "--results", "Terse=terse.jsonl", "Usual=usual.jsonl", "--output", "a.png"]) == 2


def test_the_notebook(tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    printed = [one for cell in outputs for one in cell if one.output_type == "stream" and one.name == "stdout"]
    assert printed == []
    shown = [cell[-1]["data"]["text/plain"] for cell in outputs]
    assert shown[0].startswith("Games(12 games of ")
    assert shown[-2].startswith("Comparison(success ")

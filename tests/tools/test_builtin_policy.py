"""The maker of the built-in policy: the same games and seed make the same files."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from alfworld_rl.games import generate
from alfworld_rl.tools.builtin_policy import main


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=12, valid_seen=2, valid_unseen=2, seed=3)
    return root


def test_the_same_games_and_seed_make_the_same_files(tmp_path, games, capsys):
    for name in ("first", "second"):
        assert main(["new", "--data-root", str(games), "--output", str(tmp_path / name), "--seed", "7"]) == 0
    first, second = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("first", "second")
    )
    assert first == second
    assert main(["new", "--data-root", str(games), "--output", str(tmp_path / "third"), "--seed", "8"]) == 0
    assert (tmp_path / "third" / "model.safetensors").read_bytes() != first["model.safetensors"]

    # Shipping what was made changes nothing but what transformers notes in the tokenizer's settings.
    assert main(["ship", "--weights", str(tmp_path / "first"), "--output", str(tmp_path / "shipped")]) == 0
    weights, shipped = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "shipped"))
    assert weights.keys() == shipped.keys()
    assert all(torch.equal(weights[name], shipped[name]) for name in weights)
    assert (tmp_path / "shipped" / "tokenizer.json").read_bytes() == first["tokenizer.json"]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "shipped", dtype=torch.float32, local_files_only=True)
    assert model.config.tie_word_embeddings
    assert json.loads((tmp_path / "shipped" / "config.json").read_text())["dtype"] == "float32"


def test_what_cannot_be_made_is_said_in_a_sentence(tmp_path, capsys):
    assert main(["new", "--data-root", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert main(["ship", "--weights", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    assert "sampler_weights" in capsys.readouterr().err

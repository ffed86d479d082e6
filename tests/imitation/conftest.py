"""A few generated games and the built-in tokenizer's own kind of model: everything a warm start needs, and small."""

from pathlib import Path

import pytest
import torch

from alfworld_rl.games import discover, generate
from alfworld_rl.tools.builtin_policy import make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=24, valid_seen=2, valid_unseen=2, seed=5)
    return root


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory, games: Path) -> Path:
    """The folder of an untrained policy, made from those games."""
    folder = tmp_path_factory.mktemp("policy") / "tiny"
    make(discover(games, "train").games, folder)
    return folder

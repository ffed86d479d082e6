"""A randomly initialised small Qwen3 with a character tokenizer: everything but the wits of a real model."""

import pytest
import torch
from local_data import save_small_qwen3


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "small"
    save_small_qwen3(folder)
    return str(folder)

"""What every test may need: the real games, wherever this machine has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "alfworld"
# Read before any test can import alfworld, which sets the variable to a cache folder of its own.
GIVEN_ROOT = os.environ.get("ALFWORLD_DATA")


@pytest.fixture(scope="session")
def real_games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with ALFWorld's own games: ALFWORLD_DATA, else unpacked from ../shared, else skip."""
    if root := GIVEN_ROOT:
        if not (Path(root) / "json_2.1.1").is_dir():
            pytest.fail(f"ALFWORLD_DATA={root} holds no json_2.1.1 folder")
        return Path(root)
    if not (SHARED / "unpack.py").exists():
        pytest.skip("no real ALFWorld games: set ALFWORLD_DATA to a data root (see alfworld-download)")
    root = tmp_path_factory.mktemp("alfworld")
    subprocess.run([sys.executable, SHARED / "unpack.py", root], check=True, capture_output=True)
    return root


@pytest.fixture(scope="session")
def recorded_plays() -> Path:
    """The folder of plays recorded from the official stack, or skip."""
    if not (SHARED / "traces").is_dir():
        pytest.skip("no recorded plays of the official stack: ../shared/alfworld/traces is not here")
    return SHARED / "traces"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that start a SkyRL server take minutes and download its packages: only who asks gets them."""
    if "skyrl" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip(reason="only by `pytest -m skyrl`: starts a SkyRL server, see docs/own-cluster.md")
    for item in items:
        if item.get_closest_marker("skyrl"):
            item.add_marker(skip)

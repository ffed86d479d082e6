"""The wheel, in an empty environment and an empty folder: what someone has who does not have the repository."""

import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = os.environ.get("UV") or shutil.which("uv")  # `uv run` tells where it is
MEGABYTES = 20


def run(*words: str | Path, env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=env, cwd=cwd)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def uv(*words: str | Path, cwd: Path) -> None:
    """From uv's cache alone where it has everything, as after `uv run --group test`; else from the registry."""
    assert UV is not None
    command = [UV, *(str(word) for word in words)]
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "UV_OFFLINE")}
    # Where uv is pyenv's, the folder of the test does not say of which Python.
    env.setdefault("PYENV_VERSION", (ROOT / ".python-version").read_text().strip())
    if os.stat(Path(UV).anchor).st_dev != os.stat(cwd).st_dev:
        env["UV_LINK_MODE"] = "symlink"  # gigabytes of PyTorch would be copied
    if subprocess.run(command, capture_output=True, env={**env, "UV_OFFLINE": "1"}, cwd=cwd).returncode:
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if UV is None:
        pytest.skip("no uv here to build a wheel with: pip install uv")
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.whl"))


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MEGABYTES * 1e6


def test_the_quick_start_runs_in_an_empty_folder_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    environment, person, folder = tmp_path / "environment", tmp_path / "person", tmp_path / "empty"
    person.mkdir()
    folder.mkdir()
    # The versions that are installed here are in the cache.
    constraints = tmp_path / "constraints.txt"
    here = {one.name.lower(): one.version for one in distributions() if one.name != "alfworld-agent-rl"}
    constraints.write_text("\n".join(f"{name}=={version}" for name, version in here.items()))
    uv("venv", "--python", sys.executable, environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    uv("pip", "install", "--python", python, "--constraint", constraints, f"{wheel}[local]", cwd=tmp_path)
    package = next(environment.glob("lib/*/site-packages")) / "alfworld_rl"
    before = {path for path in package.rglob("*") if "__pycache__" not in path.parts}
    env = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(person), "LANG": "C.UTF-8"}

    told = run(environment / "bin" / "alfworld-rl", "quickstart", "--short", env=env, cwd=folder)

    assert {path.name for path in folder.iterdir()} == {"08-alfworld"}
    assert (folder / "08-alfworld" / "images" / "quickstart.png").is_file()
    assert (folder / "08-alfworld" / "runs" / "quickstart" / "metrics.jsonl").is_file()
    assert {path for path in package.rglob("*") if "__pycache__" not in path.parts} == before
    # Its closing words are commands that work as they stand.
    commands = [line.strip() for line in told.rpartition("These commands did it")[2].splitlines()[1:] if line.strip()]
    assert {command.split()[1] for command in commands} == {"games", "eval", "train", "analysis", "report"}
    run(*shlex.split(commands[-1]), env=env, cwd=folder)

    told = run("alfworld-rl", "doctor", env=env, cwd=folder)
    assert "quickstart" in told
    assert "uv run" not in told
    assert "uv sync" not in told
    assert str(folder) in told

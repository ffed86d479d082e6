"""A real SkyRL server on loopback, in a virtual environment of its own that is made once.

The environment lies under SKYRL_VENV, else ~/.cache/alfworld-rl/skyrl-0.4.0. See docs/own-cluster.md for the commands
by hand; this is the same.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alfworld_rl.backends.local import builtin

VERSION = "0.4.0"
VENV = Path(os.environ.get("SKYRL_VENV") or Path.home() / f".cache/alfworld-rl/skyrl-{VERSION}")
READY = "Starting background engine"  # /healthz answers a minute before
BACKEND_CONFIG = {
    "max_lora_adapters": 16,
    "max_lora_rank": 8,
    "train_micro_batch_size": 4,
    "sample_max_num_sequences": 4,
}
START_S = 300.0


class CannotSetUpError(Exception):
    """Why there is no SkyRL on this machine, in a sentence."""


def uv() -> str:
    """The uv program itself: SkyRL reads its parent's command line, which has to begin with `uv run`."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise CannotSetUpError("uv is not on the PATH")
    return found


def set_up() -> None:
    """Make the environment unless it is there. Raises CannotSetUpError."""
    if (VENV / "ready").exists():
        return
    python = ["--python", str(VENV / "bin" / "python")]
    wanted = os.environ.get("SKYRL_PYTHON", "3.12")
    for command in (
        [uv(), "venv", "-q", "--clear", "--python", wanted, str(VENV)],
        [uv(), "pip", "install", "-q", *python, f"skyrl[tinker,jax]=={VERSION}", "aiohttp"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CannotSetUpError(f"{' '.join(command)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    (VENV / "ready").touch()


class SkyRLServer:
    """The server process. Its checkpoints and its database lie under `folder`, so that another one can go on there."""

    def __init__(self, folder: Path, model: str = "alfworld-tiny", **backend_config: Any) -> None:
        self.folder = folder
        self.model = builtin.path(model)
        self.backend_config = {**BACKEND_CONFIG, **backend_config}
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """In a folder of its own: in that of a project, uv would take the environment of the project."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "server.log").unlink(missing_ok=True)
        command = [uv(), "run", "--active", "--no-project", "--offline", "-m", "skyrl.tinker.api"]
        command += ["--base-model", str(self.model), "--backend", "jax"]
        command += ["--backend-config", json.dumps(self.backend_config)]
        command += ["--checkpoints-base", str(self.folder / "checkpoints")]
        command += ["--database-url", f"sqlite:///{self.folder}/tinker.db"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        with (self.folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until the engine is ready. Raises RuntimeError where it ends or takes too long."""
        deadline = time.monotonic() + START_S
        while READY not in self.log.replace("\n", " "):
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the SkyRL server did not start:\n{self.log[-3000:]}")
            time.sleep(0.5)

    def stop(self) -> None:
        """End the process and its engine, which has a process of its own."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def __enter__(self) -> "SkyRLServer":
        self.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def environment() -> dict[str, str]:
    """What a process of SkyRL needs: its virtual environment active, the CPU, and no look at the hub."""
    return {
        **os.environ,
        "VIRTUAL_ENV": str(VENV),
        "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
    }


@contextlib.contextmanager
def worker(coordinator: str, processes: int, number: int, log: Path) -> Iterator[None]:
    """One more JAX process of a server whose `backend_config` names the same coordinator."""
    command = [str(VENV / "bin" / "python"), "-m", "skyrl.backends.jax"]
    command += ["--coordinator-address", coordinator, "--num-processes", str(processes), "--process-id", str(number)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

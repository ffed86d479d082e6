"""Runs that are killed at chosen moments, in processes of their own (see test_kill.py).

Usage: killed_runs.py DATA_ROOT SEED COUNT. Works in the present folder, which holds `08-alfworld`. A moment is a line
of code of runs/ or of the backend's `save`: before it is executed the process gets SIGKILL. Processes are forked, so
that they do not all import everything again. Prints a JSON object.
"""

import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from alfworld_rl.runs.settings import TrainSettings

import scripted_backend
from alfworld_rl.runs import train as training

WATCHED = (str(Path(training.__file__).parent), scripted_backend.__file__)


def settings(data_root: str, **changes: Any) -> TrainSettings:
    return TrainSettings(
        backend="local",
        data_root=Path(data_root),
        max_steps=4,
        games_per_batch=2,
        group_size=2,
        max_episode_steps=2,
        max_trajectory_tokens=60_000,
        save_every=2,
        swanlab_mode="disabled",
        **changes,
    )


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process; its exit code, or less than 0 for the signal that killed it."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    with contextlib.suppress(BaseException):
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            work()
        code = 0
    os._exit(code)


def counting_lines(on_line: Callable[[int], None]) -> None:
    """From here on, tell `on_line` the number of every watched line before it is executed."""
    count = 0

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            on_line(count)
        return local

    def tracer(frame: FrameType, event: str, argument: object) -> Any:
        return local if frame.f_code.co_filename.startswith(WATCHED) else None

    sys.settrace(tracer)


def run(data_root: str, name: str, *, kill_at: int | None = None, count_into: Path | None = None) -> None:
    exists = (Path("08-alfworld/runs") / name / "settings.json").exists()
    asked = settings(data_root, resume=name) if exists else settings(data_root, run_name=name)
    given = frozenset({"resume"}) if exists else frozenset[str]()
    last = 0

    def on_line(number: int) -> None:
        nonlocal last
        last = number
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    counting_lines(on_line)
    training.train(asked, given=given, open_backend=scripted_backend.opener())
    sys.settrace(None)
    if count_into is not None:
        count_into.write_text(str(last))


def main(data_root: str, seed: int, count: int) -> None:
    lines_file = Path("lines")
    assert in_child(lambda: run(data_root, "whole", count_into=lines_file)) == 0
    lines = int(lines_file.read_text())
    rng = random.Random(seed)
    outcomes = []
    for number, moment in enumerate(sorted(rng.sample(range(1, lines), count))):
        name = f"killed-{number}"
        killed = in_child(lambda name=name, moment=moment: run(data_root, name, kill_at=moment))  # type: ignore[misc]
        # Every third run is killed once more while it goes on.
        again = rng.randrange(1, lines) if number % 3 == 0 else None
        if again is not None:
            in_child(lambda name=name, again=again: run(data_root, name, kill_at=again))  # type: ignore[misc]
        state = Path("08-alfworld/runs") / name / "state.json"
        record = json.loads(state.read_text()) if state.exists() else None
        # A kill in the last lines of all comes when there is nothing left to do.
        finished = record is not None and record["finished"]
        completed = 0 if finished else in_child(lambda name=name: run(data_root, name))  # type: ignore[misc]
        outcomes.append({"name": name, "moment": moment, "killed": killed, "completed": completed})
    print(json.dumps({"lines": lines, "outcomes": outcomes}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

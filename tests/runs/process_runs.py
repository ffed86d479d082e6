"""Runs that are killed or asked to end at chosen moments, in processes of their own (see test_processes.py).

    process_runs.py kill COMMAND DATA_ROOT SEED COUNT     SIGKILL at COUNT random moments
    process_runs.py signal COMMAND DATA_ROOT              SIGTERM, SIGHUP and SIGINT at every kind of moment

Works in the present folder, which holds `08-alfworld`, through the command line, with a scripted backend that is
registered like any other. A moment of a kill is a line of code of the rooms that keep a run's files, or of the
backend's `save`: before it is executed the process gets SIGKILL. Processes are forked, so that they do not all import
everything again. Prints a JSON object.
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

import scripted_backend
from alfworld_rl import cli
from alfworld_rl.algorithms import recipe
from alfworld_rl.backends import BACKENDS
from alfworld_rl.backends.kinds import LOCAL, BackendKind
from alfworld_rl.commands import sft, train
from alfworld_rl.imitation import recipe as imitation
from alfworld_rl.runs import run as runs

WATCHED = (
    *(str(Path(module.__file__).parent) for module in (runs, imitation)),
    *(str(module.__file__) for module in (train, sft, recipe, scripted_backend)),
)
FLAGS = {
    "train": "--games-per-batch 2 --group-size 3 --max-episode-steps 2 --swanlab-mode disabled",
    "sft": "--batch-tokens 4000 --max-episode-steps 4 --dagger-rounds 2 --dagger-games 2",
}
SAME = "--backend scripted --max-steps 4 --save-every 2 --max-trajectory-tokens 60000 --eval-games 2 --eval-every 2"

options: dict[str, Any] = {}
"""What the next backend that is opened is made with, see `ScriptedBackend`."""


def open_scripted(given: Any) -> scripted_backend.ScriptedBackend:
    return scripted_backend.ScriptedBackend(given.runs_dir, given.run_name, **options)


BACKENDS.add("scripted", BackendKind(capabilities=LOCAL, open=open_scripted), "no model at all")


def in_child(work: Callable[[], int], output: str = os.devnull) -> int:
    """Run `work` in a forked process; its exit code, or less than 0 for the signal that killed it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 99
    with contextlib.suppress(BaseException), open(output, "w") as file, contextlib.redirect_stdout(file):
        code = work()
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


def start_or_go_on(command: str, data_root: str, name: str) -> int:
    """The command of a run that is not there yet, or of one that goes on; its exit code."""
    if (Path("08-alfworld/runs") / name / "settings.json").exists():
        return cli.main([command, "--backend", "scripted", "--resume", name])
    return cli.main([command, "--run-name", name, "--data-root", data_root, *SAME.split(), *FLAGS[command].split()])


def killed(command: str, data_root: str, name: str, *, at: int | None = None, count_into: Path | None = None) -> int:
    last = 0

    def on_line(number: int) -> None:
        nonlocal last
        last = number
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    counting_lines(on_line)
    code = start_or_go_on(command, data_root, name)
    sys.settrace(None)
    if count_into is not None:
        count_into.write_text(str(last))
    return code


def kill(command: str, data_root: str, seed: int, count: int) -> dict[str, Any]:
    lines_file = Path("lines")
    assert in_child(lambda: killed(command, data_root, "whole", count_into=lines_file)) == 0
    lines = int(lines_file.read_text())
    rng = random.Random(seed)
    outcomes = []
    for number, moment in enumerate(sorted(rng.sample(range(1, lines), count))):
        name = f"killed-{number}"
        died = in_child(lambda name=name, moment=moment: killed(command, data_root, name, at=moment))  # type: ignore[misc]
        # Every third run is killed once more while it goes on.
        again = rng.randrange(1, lines) if number % 3 == 0 else None
        if again is not None:
            in_child(lambda name=name, again=again: killed(command, data_root, name, at=again))  # type: ignore[misc]
        state = Path("08-alfworld/runs") / name / "state.json"
        record = json.loads(state.read_text()) if state.exists() else None
        # A kill in the last lines of all comes when there is nothing left to do.
        finished = record is not None and record["finished"]
        completed = 0 if finished else in_child(lambda name=name: start_or_go_on(command, data_root, name))  # type: ignore[misc]
        outcomes.append({"name": name, "moment": moment, "killed": died, "completed": completed})
    return {"lines": lines, "outcomes": outcomes}


def signalled(command: str, data_root: str, name: str, number: int, moment: str, finished: int) -> int:
    """The command, to which `number` is sent once, at a `moment` of the backend's behind `finished` updates."""
    state = Path("08-alfworld/runs") / name / "state.json"
    sent = False

    def come_to(found: str) -> None:
        nonlocal sent
        if not sent and found == moment and state.exists() and json.loads(state.read_text())["update"] == finished:
            sent = True
            os.kill(os.getpid(), number)

    def player(prompt: str, seed: int, weights: float) -> str:
        come_to("sample")
        return scripted_backend.random_player(prompt, seed, weights)

    options.update(player=player, moment=come_to)
    return start_or_go_on(command, data_root, name)


def signals(command: str, data_root: str) -> dict[str, Any]:
    assert in_child(lambda: start_or_go_on(command, data_root, "whole")) == 0
    outcomes = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        for moment, finished in (("sample", 2), ("forward_backward", 2), ("optim_step", 2), ("save", 1)):
            name, output = f"{number.name.lower()}-{moment}", f"{number.name.lower()}-{moment}.out"

            def ended(name: str = name, number: int = number, moment: str = moment, finished: int = finished) -> int:
                return signalled(command, data_root, name, number, moment, finished)

            code = in_child(ended, output)
            record = json.loads((Path("08-alfworld/runs") / name / "state.json").read_text())
            completed = in_child(lambda name=name: start_or_go_on(command, data_root, name))  # type: ignore[misc]
            outcomes.append(
                {"name": name, "signal": int(number), "moment": moment, "code": code, "completed": completed}
                | {"record": record, "output": Path(output).read_text()}
            )
    return {"outcomes": outcomes}


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    done = kill(rest[0], rest[1], int(rest[2]), int(rest[3])) if what == "kill" else signals(*rest)
    print(json.dumps(done))

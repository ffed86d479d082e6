"""What --async-updates saves: whole runs against the loopback PyTRIO with a real service's waits, in one run.

    PYTHONPATH=tests uv run --group test python benchmarks/async_updates.py

The service really samples and trains the built-in policy, and besides waits as a cluster does: each sampling request
--sampling seconds (uniform in that range), each gradient --training seconds. Printed: the wall time of the updates
without and with rollouts that run ahead, and the share that is saved.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from alfworld_rl.backends.local import builtin
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import generate
from trio_server import API_KEY, MODEL, LearningEngine, Model, Service, TrioServer

POLICY = "alfworld-tiny-start"


def train(
    folder: Path, environment: Mapping[str, str], ahead: int, arguments: argparse.Namespace
) -> tuple[float, list[dict[str, float]]]:
    """Wall seconds of a whole run, its start included, and the metrics of its updates."""
    words = [
        "train",
        "--data-root",
        "games",
        "--run-name",
        f"ahead-{ahead}",
        "--swanlab-mode",
        "disabled",
        "--lora-rank",
        "8",
    ]
    words += ["--max-steps", str(arguments.updates), "--games-per-batch", "4", "--group-size", "4", "--save-every", "0"]
    words += ["--admissible-commands", "none", "--max-episode-steps", str(arguments.steps)]
    words += ["--max-assistant-tokens", "32", "--max-trajectory-tokens", "4000", "--async-updates", str(ahead)]
    # In a process of its own, since pytrio reads where its service is when it is imported.
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "alfworld_rl.cli", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
    )
    took = time.monotonic() - started
    return took, read_jsonl(folder / "08-alfworld" / "runs" / f"ahead-{ahead}" / "metrics.jsonl")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12, help="steps of a game")
    parser.add_argument("--sampling", type=float, nargs=2, default=(0.2, 0.6), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--training", type=float, default=4.0, help="seconds of a gradient")
    parser.add_argument("--short", action="store_true", help="two updates, short waits: does it run?")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.updates, arguments.steps, arguments.sampling, arguments.training = 1, 2, (0.0, 0.01), 0.05
    folder = Path(tempfile.mkdtemp(prefix="async-updates-"))
    (folder / "08-alfworld").mkdir()
    generate(folder / "games", train=16, valid_seen=0, valid_unseen=0, seed=1)
    service = Service(LearningEngine(folder / "service", POLICY), [Model(MODEL, builtin.path(POLICY))])
    service.faults.sampling_latency_s = tuple(arguments.sampling)
    service.faults.before_event = lambda kind: time.sleep(arguments.training) if "forward_backward" in kind else None
    with TrioServer(service, 0) as server:
        environment = os.environ | {"PYTRIO_BASE_URL": server.url, "PYTRIO_API_KEY": API_KEY}
        walls = {}
        for ahead in (0, 1):
            walls[ahead], lines = train(folder, environment, ahead, arguments)
            rollout, training = (sum(line[f"time/{name}"] for line in lines) for name in ("rollout", "train"))
            print(
                f"--async-updates {ahead}: {walls[ahead]:6.1f} s for {len(lines)} updates "
                f"(rollouts {rollout:.1f} s, training {training:.1f} s)",
                flush=True,
            )
    print(f"saved: {1 - walls[1] / walls[0]:.0%} of the wall time")
    return 0


if __name__ == "__main__":
    sys.exit(main())

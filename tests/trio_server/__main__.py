"""The loopback service, by hand: see --help, and CONTRIBUTING.md."""

import argparse
import tempfile
import time
from pathlib import Path

from alfworld_rl.backends.local import builtin
from trio_server import API_KEY, MODEL, LearningEngine, Model, ScriptedEngine, Service, TrioServer
from trio_server.engines import Engine, walkthroughs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trio_server", description="PyTRIO on loopback.")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--mode", choices=("learning", "scripted"), default="learning")
    parser.add_argument("--policy", default="alfworld-tiny", help="built-in policy behind the model's name")
    parser.add_argument("--data-root", type=Path, help="scripted: play the games of this folder by their walkthroughs")
    parser.add_argument("--runs-dir", type=Path, help="learning: where checkpoints are kept (default: a new folder)")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.0, 0.0), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--flaky", type=float, default=0.0, metavar="SHARE", help="share of requests answered with 5xx")
    parser.add_argument("--balance", type=int, metavar="TOKENS", help="refuse to go on after so many tokens")
    arguments = parser.parse_args()

    folder = builtin.path(arguments.policy)
    engine: Engine
    if arguments.mode == "scripted":
        engine = ScriptedEngine(folder, walkthroughs(arguments.data_root) if arguments.data_root else None)
    else:
        engine = LearningEngine(arguments.runs_dir or Path(tempfile.mkdtemp(prefix="trio-server-")), arguments.policy)
    service = Service(engine, [Model(MODEL, folder)], balance=arguments.balance)
    service.faults.sampling_latency_s = tuple(arguments.latency)
    service.faults.flaky_rate = arguments.flaky
    with TrioServer(service, arguments.port) as server:
        print(f"{MODEL} is served at {server.url}. In another shell:\n")
        print(f"    export PYTRIO_BASE_URL={server.url} PYTRIO_API_KEY={API_KEY}\n")
        print("Ctrl-C ends it.", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            ledger = service.ledger
            print(
                f"\n{ledger.sampled_tokens} tokens sampled, {ledger.trained_tokens} trained on, at most "
                f"{ledger.most_in_flight} requests in flight"
            )


if __name__ == "__main__":
    main()

"""What a person sees of `train` on PyTRIO when the service, the account or their own process fails."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytrio

from alfworld_rl.backends.local import builtin
from alfworld_rl.cli import main
from alfworld_rl.games import generate
from trio_server import API_KEY, MODEL, Model, ScriptedEngine, Service, TrioServer
from trio_server.engines import walkthroughs

FOLDER = builtin.path("alfworld-tiny")
SMALL = ["--games-per-batch", "2", "--group-size", "4", "--max-episode-steps", "4", "--save-every", "0"]
OPTIONS = [*SMALL, "--swanlab-mode", "disabled", "--lora-rank", "8"]


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=3, valid_seen=1, valid_unseen=1, seed=0)
    return root


@pytest.fixture
def service(data_root: Path) -> Service:
    return Service(ScriptedEngine(FOLDER, walkthroughs(data_root)), [Model(MODEL, FOLDER)])


@pytest.fixture
def train(
    service: Service, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., int]]:
    """`train` with a few flags, in a folder of its own, against the service; returns the exit code."""
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    with TrioServer(service) as server:
        pytrio.configure(
            home=str(tmp_path),
            base_url=server.url,
            api_key=API_KEY,
            retry_initial_delay_seconds=0.02,
            retry_max_delay_seconds=0.1,
        )
        monkeypatch.setenv("PYTRIO_BASE_URL", server.url)
        monkeypatch.setenv("PYTRIO_API_KEY", API_KEY)

        def run(*flags: str) -> int:
            return main(["train", "--data-root", str(data_root), *OPTIONS, *flags])

        yield run
        for path in tmp_path.glob("08-alfworld/runs/**/*.json*"):
            assert API_KEY not in path.read_text()


def metrics(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"08-alfworld/runs/{run}/metrics.jsonl").read_text().splitlines()]


def test_a_balance_that_ends_in_mid_run_costs_no_finished_update(
    train: Callable[..., int], service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--run-name", "whole", "--max-steps", "1") == 0
    spent_by_an_update = service.ledger.sampled_tokens + service.ledger.trained_tokens
    service.balance = 2 * spent_by_an_update
    saved_before = len(service.saved("training_state"))
    assert train("--run-name", "poor", "--max-steps", "50") == 1
    error = capsys.readouterr().err
    assert "no balance left" in error
    assert "--resume poor" in error
    finished = [line["update"] for line in metrics("poor")]
    assert finished == list(range(1, len(finished) + 1))
    assert finished
    assert len(service.saved("training_state")) == saved_before + 1
    service.balance = None
    total = str(finished[-1] + 1)
    assert train("--resume", "poor", "--max-steps", total) == 0
    assert [line["update"] for line in metrics("poor")] == [*finished, finished[-1] + 1]
    service.ledger.check_training()


def test_max_cost_ends_a_run_cleanly_with_everything_saved(
    train: Callable[..., int], service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'currency = "RMB"\ndate = "today"\nsource = "a test"\n'
        "[per_million_tokens]\nprefill = 0\ncached = 0\nsampled = 1e6\ntrained = 0\n"
    )
    flags = ("--prices", str(prices), "--max-steps", "9")
    assert train("--run-name", "one", "--prices", str(prices), "--max-steps", "1") == 0
    cost = metrics("one")[0]["trainer/total_cost"]
    assert cost == service.ledger.sampled_tokens
    capsys.readouterr()
    assert train("--run-name", "frugal", *flags, "--max-cost", str(2.5 * cost)) == 0
    output = capsys.readouterr().out
    assert "--max-cost" in output
    assert output.count("Saved state: trio://") == output.count("Saved sampler weights: trio://") == 1
    updates = [line["update"] for line in metrics("frugal")]
    assert 1 <= len(updates) < 9
    assert metrics("frugal")[-1]["trainer/total_cost"] <= 2.5 * cost


def test_a_dry_run_asks_nothing_of_the_service(
    train: Callable[..., int], service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--run-name", "dry", "--dry-run") == 0
    output = capsys.readouterr().out
    assert "RMB" in output
    assert "estimate" in output
    assert not service.ledger.requests
    assert not Path("08-alfworld/runs/dry").exists()


def test_a_flaky_service_is_worked_through(train: Callable[..., int], service: Service) -> None:
    service.faults.flaky_rate = 0.15
    assert train("--run-name", "flaky", "--max-steps", "3") == 0
    assert [line["update"] for line in metrics("flaky")] == [1, 2, 3]
    assert len(service.ledger.first_prompts()) == 3 * 2 * 4
    assert service.ledger.check_training() > 0


@pytest.mark.parametrize(
    ("key", "flags", "code", "said"),
    [
        ("", (), 2, "trio login"),
        ("sk-wrong", (), 1, "does not accept the API key"),
        (API_KEY, ("--base-model", "Qwen/Qwen9"), 2, f"choose --base-model from {MODEL}"),
        (API_KEY, ("--init-from", "trio://run_0/training_state/none"), 2, "no checkpoint"),
        (API_KEY, ("--lora-rank", "128"), 2, "4 to 64"),
        (API_KEY, ("--max-trajectory-tokens", "200000"), 2, "takes sequences of 32768 tokens"),
    ],
)
def test_what_is_refused_at_the_start_leaves_no_run_behind(
    train: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    key: str,
    flags: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    pytrio.configure(api_key=key)
    assert train("--run-name", "refused", *flags) == code
    error = capsys.readouterr().err
    assert said in error
    assert "sk-wrong" not in error
    assert len(error.strip().splitlines()) == 1
    assert not Path("08-alfworld/runs/refused").exists()


def test_a_process_killed_between_gradient_and_step_goes_on_without_either(
    train: Callable[..., int], service: Service, data_root: Path
) -> None:
    killed: list[int] = []

    def kill_at_the_third_step(event_type: str) -> None:
        if event_type == "trainer.optimize_step" and len(service.ledger.optimizer_steps) == 2 and not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    service.faults.before_event = kill_at_the_third_step
    arguments = ["train", "--data-root", str(data_root), *OPTIONS, "--run-name", "killed", "--max-steps", "4"]
    arguments[arguments.index("--save-every") + 1] = "1"
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from alfworld_rl.cli import main; sys.exit(main({arguments!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.wait(timeout=300) == -signal.SIGKILL
    assert [line["update"] for line in metrics("killed")] == [1, 2]
    assert train("--resume", "killed") == 0
    assert [line["update"] for line in metrics("killed")] == [1, 2, 3, 4]
    (resumed,) = [run for run in service.training_runs.values() if run.source]
    assert resumed.restore_optimizer
    assert resumed.source == service.saved("training_state")[1]
    # The gradient of the killed update was never stepped with, nor its trajectories trained on again.
    run_of_step = [run for run, _ in service.ledger.optimizer_steps]
    assert run_of_step.count(resumed.cuid) == 2
    service.ledger.check_training()

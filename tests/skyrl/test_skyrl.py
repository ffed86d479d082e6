"""The whole line against a real SkyRL server: train, evaluate, kill, resume, export, and two processes as one server.

Only by `pytest -m skyrl`; see docs/own-cluster.md.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from alfworld_rl.backends.batch import total_weight
from alfworld_rl.backends.local import builtin
from alfworld_rl.backends.tinker import TinkerBackend
from alfworld_rl.types import AdamParams, LossSpec, SamplingParams, TrainingStart
from backend_data import datum, logprobs, prompt_of, two
from skyrl_server import CannotSetUpError, SkyRLServer, set_up, worker

pytestmark = pytest.mark.skyrl

MODEL = "alfworld-tiny-start"
EPISODES = ["--admissible-commands", "none", "--max-episode-steps", "8", "--max-assistant-tokens", "32"]


@pytest.fixture(scope="module", autouse=True)
def _set_up() -> None:
    try:
        set_up()
    except CannotSetUpError as error:
        pytest.skip(f"SkyRL cannot be set up here: {error}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to run in, with a few generated games."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "08-alfworld").mkdir()
    done = alfworld_rl(folder, "games", "generate", "--data-root", "games", "--train", "4", "--valid-seen", "2",
                       "--valid-unseen", "1", "--seed", "1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRLServer]:
    with SkyRLServer(tmp_path_factory.mktemp("skyrl"), MODEL, sample_max_num_sequences=8) as server:
        yield server


def alfworld_rl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(arguments), cwd=folder, capture_output=True, text=True, timeout=1200)


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "alfworld_rl.cli", *arguments]


def training(url: str, *more: str) -> list[str]:
    return ["train", "--backend", "tinker", "--base-url", url, "--base-model", MODEL, "--data-root", "games",
            "--lora-rank", "8", "--learning-rate", "1e-3", "--games-per-batch", "2", "--group-size", "4",
            "--temperature", "1", *EPISODES, *more]  # fmt: skip


def jsonl(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_train_kill_resume_evaluate_and_export(server: SkyRLServer, home: Path) -> None:
    run = home / "08-alfworld" / "runs" / "killed"
    arguments = training(server.url, "--max-steps", "2", "--save-every", "1", "--run-name", "killed")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command(arguments), cwd=home, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 900
        while not (run / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert process.poll() is None, (home / "log").read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = alfworld_rl(home, "train", "--resume", "killed")
    assert done.returncode == 0, done.stderr
    lines = jsonl(run / "metrics.jsonl")
    assert [line["update"] for line in lines] == [1, 2]
    assert "free" in done.stdout
    state = json.loads((run / "state.json").read_text())
    assert state["update"] == 2
    assert state["finished"]
    uri = state["saved"]["sampler_uri"]
    assert uri.startswith("tinker://")

    files = {"tinker": home / "tinker.jsonl", "local": home / "local.jsonl"}
    evaluation = ["eval", "--base-model", MODEL, "--data-root", "games", "--split", "all", *EPISODES]
    # The server forgets the model when the session ends; its sampler weights can be evaluated all the same.
    done = alfworld_rl(home, *evaluation, "--backend", "tinker", "--base-url", server.url, "--model-path", uri,
                       "--output", str(files["tinker"]))  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = alfworld_rl(home, *evaluation, "--backend", "local", "--output", str(files["local"]))
    assert done.returncode == 0, done.stderr
    shapes = {name: [(line["type"], sorted(line)) for line in jsonl(path)] for name, path in files.items()}
    assert shapes["tinker"] == shapes["local"]
    assert jsonl(files["tinker"])[-1]["model_path"] == uri

    done = alfworld_rl(home, "export", uri, "exported", "--base-url", server.url, "--results", str(files["tinker"]))
    assert done.returncode == 0, done.stderr
    backend = TinkerBackend(server.url)
    sampler = backend.sampler(MODEL, uri)
    prompt = prompt_of(sampler)
    expected = logprobs(sampler, prompt)
    backend.close()
    assert adapter_logprobs(home / "exported", prompt) == pytest.approx(expected[1:], abs=1e-4)
    card = (home / "exported" / "README.md").read_text()
    assert "- run: killed\n- update: 2" in card
    assert "| valid_seen | 2 |" in card


def adapter_logprobs(folder: Path, tokens: Sequence[int]) -> list[float]:
    base = AutoModelForCausalLM.from_pretrained(str(builtin.path(MODEL)), dtype=torch.float32)
    with torch.no_grad():
        logits = PeftModel.from_pretrained(base, folder)(torch.tensor([list(tokens)])).logits[0]
    all_logprobs = torch.log_softmax(logits, dim=-1)
    return [float(all_logprobs[place, token]) for place, token in enumerate(tokens[1:])]


@pytest.mark.parametrize("loss", [LossSpec("ppo", 0.9, 1.1), LossSpec("cispo", 0.9, 1.1), LossSpec("cross_entropy")])
def test_the_gradient_is_the_one_that_torch_computes_from_the_same_weights(
    server: SkyRLServer, loss: LossSpec, tmp_path: Path
) -> None:
    """The gradient of the mean over tokens, parameter by parameter, for sequences of unlike length."""
    backend = TinkerBackend(server.url)
    trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=4, seed=5)
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    short, long = two(sampler, prompt)
    data = [datum(prompt, short, 1.0, ratio=1.05), datum(prompt, long, 0.5, ratio=0.97)]
    # With an eps far above any gradient a first step of AdamW is -lr / eps times the gradient: it shows the gradient.
    adam = AdamParams(learning_rate=1e-3, grad_clip_norm=0)
    shown = AdamParams(learning_rate=1e3, eps=1e3, weight_decay=0.0, grad_clip_norm=0)

    def export(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        backend.download(trainer.save_sampler_weights(name), folder)
        return folder

    # From a fresh adapter, whose B is 0, only B would have a gradient: the second step is the one that is compared.
    trainer.forward_backward(data, loss)
    trainer.optim_step(adam)
    first = export("first")
    before = backend.trainer(TrainingStart(weights=trainer.save_state("first")), lora_rank=4, seed=5)
    before.forward_backward(data, loss)
    before.optim_step(shown)
    folder = tmp_path / "second"
    folder.mkdir()
    backend.download(before.save_sampler_weights("second"), folder)
    backend.close()

    base = AutoModelForCausalLM.from_pretrained(str(builtin.path(MODEL)), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, first, is_trainable=True)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e3, betas=(0.9, 0.95), eps=1e3, weight_decay=0)
    total = total_weight(data, loss)
    torch_loss = torch.zeros(())
    for one in data:
        mask = torch.tensor(one.mask_T)
        all_logprobs = torch.log_softmax(model(torch.tensor([one.tokens_T.tolist()])).logits[0], dim=-1)
        new = all_logprobs.gather(1, torch.tensor(one.targets_T).long()[:, None])[:, 0][mask]
        advantages = torch.tensor(one.advantages_T)[mask]
        ratio = torch.exp(new - torch.tensor(one.logprobs_T)[mask])
        bounded = ratio.clamp(loss.clip_low, loss.clip_high)
        if loss.name == "cross_entropy":
            torch_loss = torch_loss - (advantages * new).sum() / total
        elif loss.name == "ppo":
            torch_loss = torch_loss - torch.minimum(ratio * advantages, bounded * advantages).sum() / total
        else:
            torch_loss = torch_loss - (bounded.detach() * advantages * new).sum() / total
    torch_loss.backward()
    optimizer.step()
    stepped = get_peft_model_state_dict(model)
    start, saved = (load_file(one / "adapter_model.safetensors") for one in (first, folder))
    assert stepped.keys() == saved.keys()
    step = np.concatenate([(stepped[name].detach() - start[name]).numpy().ravel() for name in sorted(saved)])
    found = np.concatenate([(saved[name] - start[name]).numpy().ravel() for name in sorted(saved)])
    assert np.linalg.norm(step) > 0.01
    assert np.linalg.norm(found - step) < 1e-3 * np.linalg.norm(step)


def test_a_server_that_was_started_again_goes_on_from_a_state(home: Path, tmp_path: Path) -> None:
    """State URIs outlive the server process; what was in its memory is said to be gone."""
    with SkyRLServer(tmp_path / "skyrl", MODEL) as server:
        backend = TinkerBackend(server.url)
        trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=4, seed=0)
        sampler = trainer.sampler()
        prompt = prompt_of(sampler)
        expected = logprobs(sampler, prompt)
        weights = trainer.save_sampler_weights("kept")
        server.stop()
        server.start()
        server.wait()
        with pytest.raises(Exception, match="--resume"):
            asyncio.run(trainer.sampler().sample(prompt, SamplingParams(max_tokens=2)))
        again = TinkerBackend(server.url)
        assert logprobs(again.sampler(MODEL, weights), prompt) == pytest.approx(expected, abs=1e-4)
        again.close()
        backend.close()


def test_two_processes_are_one_server(home: Path, tmp_path: Path) -> None:
    """The smallest honest test of several machines: two JAX processes share the model's weights."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    server = SkyRLServer(
        tmp_path / "skyrl",
        MODEL,
        sample_max_num_sequences=8,
        coordinator_address=coordinator,
        num_processes=2,
        fully_sharded_data_parallel_size=2,
    )
    server.start()
    try:
        with worker(coordinator, 2, 1, tmp_path / "worker.log"):
            server.wait()
            done = alfworld_rl(home, *training(server.url, "--max-steps", "1", "--run-name", "two"))
            assert done.returncode == 0, done.stderr + server.log[-2000:]
            (line,) = jsonl(home / "08-alfworld" / "runs" / "two" / "metrics.jsonl")
            assert line["update"] == 1
    finally:
        server.stop()


def test_doctor_says_what_a_server_has(server: SkyRLServer, home: Path) -> None:
    done = alfworld_rl(home, "doctor", "--backend", "tinker", "--base-url", server.url)
    assert done.returncode == 0, done.stdout
    assert MODEL in done.stdout
    assert "works; a token took" in done.stdout
    done = alfworld_rl(home, "doctor", "--backend", "tinker", "--base-url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "does not answer" in done.stdout
    assert os.environ.get("TINKER_API_KEY", "no key") not in done.stdout

"""`alfworld-rl export`: what other programs compute from the folder is what our sampler does."""

import asyncio
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from alfworld_rl.backends.local import LocalBackend, builtin
from alfworld_rl.cli import main
from alfworld_rl.types import AdamParams, LossSpec, SamplingParams, TrainingStart
from backend_data import datum, prompt_of

MODEL = "alfworld-tiny"


def hub_logprobs(folder: Path, lora: bool, tokens: list[int]) -> list[float]:
    """What transformers, and PEFT where it is an adapter, make of the folder."""
    source = str(builtin.path(MODEL)) if lora else folder
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, folder) if lora else model
    with torch.no_grad():
        all_logprobs = torch.log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)
    return [float(all_logprobs[place, token]) for place, token in enumerate(tokens[1:])]


@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.parametrize("kind", ["training_state", "sampler_weights"])
def test_transformers_and_peft_compute_from_it_what_the_sampler_does(
    rank: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "08-alfworld" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    backend = LocalBackend(tmp_path / "08-alfworld" / "runs", run_name="mine", device="cpu")
    trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=rank, seed=0)
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    written = asyncio.run(sampler.sample(prompt, SamplingParams(max_tokens=8))).completions[0]
    trainer.forward_backward([datum(prompt, written, 1.0)], LossSpec("importance_sampling"))
    trainer.optim_step(AdamParams(learning_rate=1e-2))
    tokens = [*prompt, *written.tokens]
    expected = asyncio.run(trainer.sampler().logprobs(tokens))
    uri = trainer.save_state("step-1") if kind == "training_state" else trainer.save_sampler_weights("step-1")
    checkpoints = tmp_path / "08-alfworld" / "runs" / "mine" / "checkpoints.jsonl"
    checkpoints.write_text(f'{{"update": 1, "kind": "{kind}", "uri": "{uri}"}}\n')

    assert main(["export", uri, "out"]) == 0
    assert hub_logprobs(tmp_path / "out", rank > 0, tokens) == pytest.approx(expected[1:], abs=1e-4)
    if not rank:
        assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"base_model: {MODEL}" in card
    assert "- run: mine\n- update: 1" in card
    assert uri in card
    assert ("LoRA adapter of rank 4" in card) == (rank > 0)
    assert not (tmp_path / "out" / "optimizer.safetensors").exists()

    assert main(["export", uri, "out"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["export", f"{uri}-not-there", "other"]) == 2
    assert not (tmp_path / "other").exists()


def test_what_cannot_be_exported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "nonsense", str(tmp_path / "out")]) == 2
    assert main(["export", "elsewhere://run/sampler_weights/name", str(tmp_path / "out")]) == 2
    assert "elsewhere" in capsys.readouterr().err

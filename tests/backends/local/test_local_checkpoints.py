import asyncio
import json
import resource
import warnings
from pathlib import Path

import pytest
import torch
from local_data import datum
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from alfworld_rl.backends.base import BackendError, BaseModelError, CheckpointError
from alfworld_rl.backends.local import LocalBackend, LocalSampler, LocalTrainer
from alfworld_rl.types import AdamParams, Datum, LossSpec, SamplingParams, TrainingStart

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def play(sampler: LocalSampler, seed: int) -> list[Datum]:
    answer = asyncio.run(sampler.sample(PROMPT, SamplingParams(max_tokens=8, seed=seed), n=2))
    return [datum(PROMPT, completion, 1.0 - 2 * index) for index, completion in enumerate(answer.completions)]


def train(trainer: LocalTrainer, updates: range) -> list[float]:
    losses = []
    for update in updates:
        metrics = trainer.forward_backward(play(trainer.sampler(), update), LossSpec("importance_sampling"))
        losses += [metrics["loss_sum"], trainer.optim_step(AdamParams(learning_rate=0.01))["grad_norm"]]
    return losses


@pytest.mark.parametrize("rank", [0, 4])
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path, base_model: str, rank: int) -> None:
    trainer = LocalBackend(tmp_path, run_name="first").trainer(
        TrainingStart(base_model=base_model), lora_rank=rank, seed=7
    )
    train(trainer, range(2))
    uri = trainer.save_state("update-2")
    assert uri == "local://first/training_state/update-2"
    expected = train(trainer, range(2, 5))
    resumed = LocalBackend(tmp_path, run_name="second").trainer(TrainingStart(state=uri), lora_rank=0, seed=0)
    assert train(resumed, range(2, 5)) == expected
    assert resumed.save_state("end") == "local://second/training_state/end"


@pytest.mark.parametrize("rank", [0, 4])
def test_saved_weights_sample_as_the_trainer_did(tmp_path: Path, base_model: str, rank: int) -> None:
    backend = LocalBackend(tmp_path, run_name="run")
    trainer = backend.trainer(TrainingStart(base_model=base_model), lora_rank=rank, seed=7)
    train(trainer, range(2))
    expected = asyncio.run(trainer.sampler().logprobs(PROMPT))
    uri = trainer.save_sampler_weights("end")
    assert asyncio.run(backend.sampler(base_model, uri).logprobs(PROMPT)) == expected
    for start in (uri, trainer.save_state("end")):
        fresh = LocalBackend(tmp_path).trainer(TrainingStart(weights=start), lora_rank=0, seed=1)
        assert asyncio.run(fresh.sampler().logprobs(PROMPT)) == expected


def test_an_adapter_is_in_pefts_own_format_and_full_weights_in_transformers(tmp_path: Path, base_model: str) -> None:
    for rank in (0, 4):
        trainer = LocalBackend(tmp_path, run_name=f"rank-{rank}").trainer(
            TrainingStart(base_model=base_model), lora_rank=rank, seed=7
        )
        train(trainer, range(2))
        trainer.save_sampler_weights("end")
        folder = tmp_path / f"rank-{rank}" / "sampler_weights" / "end"
        if rank:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base_model), folder)
        else:
            plain = AutoModelForCausalLM.from_pretrained(folder)
            assert AutoTokenizer.from_pretrained(folder).eos_token == "<|im_end|>"
        with torch.no_grad():
            logits = plain.eval()(torch.tensor([PROMPT])).logits[0, -2]
        expected = asyncio.run(trainer.sampler().logprobs(PROMPT))[-1]
        assert torch.log_softmax(logits, -1)[PROMPT[-1]].item() == pytest.approx(expected, abs=1e-4)


def test_the_same_seed_makes_the_same_adapter(tmp_path: Path, base_model: str) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    start, backend = TrainingStart(base_model=base_model), LocalBackend(tmp_path)
    trainers = [backend.trainer(start, lora_rank=2, seed=seed) for seed in (1, 1, 2)]
    weights = [torch.cat([weight.flatten() for weight in trainer.weights.values()]) for trainer in trainers]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_uris_that_name_nothing_or_the_wrong_kind(tmp_path: Path, base_model: str) -> None:
    backend = LocalBackend(tmp_path, run_name="run")
    trainer = backend.trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    state, weights = trainer.save_state("a"), trainer.save_sampler_weights("a")
    with pytest.raises(CheckpointError, match="Saved sampler weights"):
        backend.sampler(base_model, state)
    with pytest.raises(CheckpointError, match="training_state URI"):
        backend.trainer(TrainingStart(state=weights), lora_rank=0, seed=0)
    with pytest.raises(CheckpointError, match="that run has sampler_weights/a"):
        backend.sampler(base_model, "local://run/sampler_weights/b")
    with pytest.raises(CheckpointError, match="nothing of that kind"):
        backend.trainer(TrainingStart(state="local://other/training_state/a"), lora_rank=0, seed=0)
    with pytest.raises(CheckpointError, match="--backend trio"):
        backend.sampler(base_model, "trio://run/sampler_weights/a")
    with pytest.raises(CheckpointError, match="not a checkpoint URI"):
        backend.sampler(base_model, "sampler_weights/a")
    with pytest.raises(CheckpointError, match=f"--base-model {base_model}"):
        backend.sampler("alfworld-tiny", weights)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/etc", "", ".hidden", "a\nb", "ä", "x" * 200])
def test_names_do_not_reach_outside(tmp_path: Path, base_model: str, name: str) -> None:
    backend = LocalBackend(tmp_path / "runs", run_name="run")
    trainer = backend.trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    for save in (trainer.save_state, trainer.save_sampler_weights):
        with pytest.raises(CheckpointError):
            save(name)
    for uri in (f"local://{name}/sampler_weights/a", f"local://run/sampler_weights/{name}"):
        with pytest.raises(CheckpointError):
            backend.sampler(base_model, uri)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_checkpoint_is_there_whole_or_not_at_all(
    tmp_path: Path, base_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(tmp_path, run_name="run")
    trainer = backend.trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    train(trainer, range(1))
    uri = trainer.save_state("a")
    kept = train(trainer, range(1, 2))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("alfworld_rl.backends.local.trainer.save_file", full)
        with pytest.raises(BackendError, match="No space left on device"):
            trainer.save_state("a")
    assert [path.name for path in (tmp_path / "run" / "training_state").iterdir()] == ["a"]
    assert train(backend.trainer(TrainingStart(state=uri), lora_rank=0, seed=0), range(1, 2)) == kept
    # Saved again under its name (a run that was resumed does), it is replaced.
    trainer.save_state("a")
    assert [path.name for path in (tmp_path / "run" / "training_state").iterdir()] == ["a"]
    assert json.loads((tmp_path / "run/training_state/a/checkpoint.json").read_text())["optimizer_steps"] == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path, base_model: str) -> None:
    (tmp_path / "runs").write_text("a file")
    trainer = LocalBackend(tmp_path / "runs").trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    with pytest.raises(BackendError, match="could not be written"):
        trainer.save_state("a")


def test_a_disk_that_takes_no_more(tmp_path: Path, base_model: str) -> None:
    trainer = LocalBackend(tmp_path, run_name="run").trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(BackendError, match="could not be written"):
            trainer.save_state("a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "run" / "training_state").iterdir()) == []


def test_a_damaged_checkpoint_says_so(tmp_path: Path, base_model: str) -> None:
    backend = LocalBackend(tmp_path, run_name="run")
    uri = backend.trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0).save_sampler_weights("a")
    weights = tmp_path / "run/sampler_weights/a/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        backend.sampler(base_model, uri)
    (tmp_path / "run/sampler_weights/a/checkpoint.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        backend.sampler(base_model, uri)


def test_runs_without_a_name_get_different_ones(tmp_path: Path) -> None:
    assert LocalBackend(tmp_path).run_name != LocalBackend(tmp_path).run_name


@pytest.mark.parametrize(
    ("name", "words"),
    [("/nowhere/model", "no such folder"), ("alfwrld-tiny", "alfworld-tiny"), ("./x", "no such folder")],
)
def test_a_base_model_that_is_not_there(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(BaseModelError, match=words):
        LocalBackend(tmp_path).trainer(TrainingStart(base_model=name), lora_rank=1, seed=0)


def test_an_unreachable_hub_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(BaseModelError, match=r"nobody/nothing.*the hub says: Name or service not known.*alfworld-tiny"):
        LocalBackend(tmp_path).sampler("nobody/nothing")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BaseModelError, match=r"no config\.json"):
        LocalBackend(tmp_path).sampler(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BaseModelError, match="could not be loaded"):
        LocalBackend(tmp_path).sampler(str(tmp_path))


def test_settings_that_cannot_be(tmp_path: Path, base_model: str) -> None:
    with pytest.raises(BackendError, match="lora_rank"):
        LocalBackend(tmp_path).trainer(TrainingStart(base_model=base_model), lora_rank=-1, seed=0)
    with pytest.raises(BackendError, match="micro_batch_tokens"):
        LocalBackend(tmp_path, micro_batch_tokens=0)
    with pytest.raises(BackendError, match="'abacus'"):
        LocalBackend(tmp_path, device="abacus")


def test_a_deleted_checkpoint_is_gone_and_nothing_else(tmp_path: Path, base_model: str) -> None:
    backend = LocalBackend(tmp_path, run_name="run")
    trainer = backend.trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    state, weights, other = trainer.save_state("a"), trainer.save_sampler_weights("a"), trainer.save_state("b")
    backend.delete(state)
    backend.delete(state)  # one that is gone already is no error
    with pytest.raises(CheckpointError, match="that run has training_state/b"):
        backend.trainer(TrainingStart(state=state), lora_rank=0, seed=0)
    for uri in (weights, other):
        backend.trainer(TrainingStart(weights=uri), lora_rank=0, seed=0)
    backend.delete("local://no-such-run/training_state/a")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["sampler_weights", "training_state"]
    assert [path.name for path in (tmp_path / "run" / "training_state").iterdir()] == ["b"]
    # A backend writes one run, and reads and deletes those of all.
    LocalBackend(tmp_path, run_name="other").delete(weights)
    assert list((tmp_path / "run" / "sampler_weights").iterdir()) == []
    for wrong in ("trio://run/training_state/b", "local://../training_state/b", "local://run/other/b"):
        with pytest.raises(CheckpointError):
            backend.delete(wrong)
    backend.trainer(TrainingStart(state=other), lora_rank=0, seed=0)


def test_it_says_what_it_can_do(tmp_path: Path, base_model: str) -> None:
    can = LocalBackend(tmp_path).capabilities(base_model)
    assert can.trains
    assert can.full_finetuning
    assert can.behaviour_logprobs
    assert not can.billed
    trainer = LocalBackend(tmp_path).trainer(TrainingStart(base_model=base_model), lora_rank=2, seed=0)
    for loss in can.losses:
        trainer.forward_backward(play(trainer.sampler(), 0)[:1], LossSpec(loss))


def test_a_start_is_one_of_three(tmp_path: Path, base_model: str) -> None:
    for given in ({}, {"base_model": base_model, "state": "local://run/training_state/a"}):
        with pytest.raises(ValueError, match="needs one of base_model, weights and state"):
            TrainingStart(**given)

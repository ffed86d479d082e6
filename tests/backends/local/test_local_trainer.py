import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from local_data import datum, datum_of
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import AutoModelForCausalLM

from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.algorithms.data import GroupAdvantages, make_data
from alfworld_rl.backends.base import BackendError
from alfworld_rl.backends.local import LocalBackend, LocalSampler, LocalTrainer
from alfworld_rl.rollouts import Group, Step, Trajectory
from alfworld_rl.types import AdamParams, Completion, Datum, LossName, LossSpec, SamplingParams, TrainingStart

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [1, 6, 1, 8, 0, 3, 3, 9, 8, 8, 7]]


def sampled_data(sampler: LocalSampler, advantages: tuple[float, ...] = (1.0, -0.5, 0.25)) -> list[Datum]:
    async def play() -> list[Datum]:
        answers = [
            await sampler.sample(prompt, SamplingParams(max_tokens=9, seed=i)) for i, prompt in enumerate(PROMPTS)
        ]
        return [
            datum(prompt, answer.completions[0], advantage)
            for prompt, answer, advantage in zip(PROMPTS, answers, advantages, strict=True)
        ]

    return asyncio.run(play())


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def data_logprobs(data: list[Datum]) -> list[np.ndarray]:
    return [datum.logprobs_T for datum in data]


def new_trainer(tmp_path: Path, base_model: str, rank: int = 4, **options: int) -> LocalTrainer:
    return LocalBackend(tmp_path, run_name="run", **options).trainer(
        TrainingStart(base_model=base_model), lora_rank=rank, seed=0
    )


def gradients(trainer: LocalTrainer) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in trainer.weights.values() if weight.grad is not None])


@pytest.mark.parametrize("name", ["ppo", "importance_sampling", "cispo", "cross_entropy"])
def test_loss_is_the_formula_over_the_models_own_logprobs(tmp_path: Path, base_model: str, name: LossName) -> None:
    prompt, written = [3, 1, 4, 1, 5], [9, 2, 6, 5]
    sampling, advantages = [-1.0, -3.0, -4.5, -2.5], [1.0, -2.0, 0.5, 1.5]
    reference = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    with torch.no_grad():
        logits = reference(torch.tensor([[*prompt, *written]])).logits[0].double()
    logprobs = [
        math.log(torch.softmax(logits[len(prompt) - 1 + i], -1)[token].item()) for i, token in enumerate(written)
    ]
    expected = 0.0
    clipped = 0
    for logprob, old, advantage in zip(logprobs, sampling, advantages, strict=True):
        ratio = math.exp(logprob - old)
        bounded = min(max(ratio, 0.8), 1.2)
        expected += {
            "ppo": -min(ratio * advantage, bounded * advantage),
            "importance_sampling": -ratio * advantage,
            "cispo": -bounded * advantage * logprob,
            "cross_entropy": -advantage * logprob,
        }[name]
        clipped += (name == "ppo" and ratio * advantage > bounded * advantage) or (name == "cispo" and ratio != bounded)
    metrics = new_trainer(tmp_path, base_model).forward_backward(
        [datum_of(prompt, written, sampling, advantages)], LossSpec(name)
    )
    assert metrics["loss_sum"] == pytest.approx(expected, rel=1e-5)
    weight = sum(advantages) if name == "cross_entropy" else 4
    assert metrics["loss_mean"] == pytest.approx(expected / weight, rel=1e-5)
    assert metrics["token_count"] == 4
    if name != "cross_entropy":
        assert metrics["clip_fraction"] == clipped / 4
        kl = sum(math.exp(new - old) - 1 - (new - old) for new, old in zip(logprobs, sampling, strict=True)) / 4
        assert metrics["approx_kl"] == pytest.approx(kl, rel=1e-5)


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_step_moves_the_probability_of_a_trajectory_with_its_advantage(
    tmp_path: Path, base_model: str, rank: int, advantage: float
) -> None:
    trainer = new_trainer(tmp_path, base_model, rank)
    before = trainer.sampler()
    data = sampled_data(before, (advantage, 0.0, 0.0))
    tokens = [*data[0].tokens_T.tolist(), int(data[0].targets_T[-1])]
    trainer.forward_backward(data, LossSpec("ppo"))
    trainer.optim_step(AdamParams(learning_rate=1e-4))
    changed = sum(asyncio.run(trainer.sampler().logprobs(tokens))[len(PROMPTS[0]) :])
    unchanged = sum(asyncio.run(before.logprobs(tokens))[len(PROMPTS[0]) :])
    assert unchanged == pytest.approx(float(data[0].logprobs_T.sum()), abs=1e-4)
    assert (changed - unchanged) * advantage > 1e-4


def test_gradients_do_not_depend_on_the_token_budget(tmp_path: Path, base_model: str) -> None:
    found = {}
    for budget in (1, 30, 10_000):
        trainer = new_trainer(tmp_path, base_model, rank=0, micro_batch_tokens=budget)
        with threads(1):
            metrics = trainer.forward_backward(sampled_data(trainer.sampler()), LossSpec("ppo"))
        found[metrics["micro_batches"]] = gradients(trainer)
    assert list(found) == [3, 2, 1]
    whole = found.pop(1)
    for parts in found.values():
        assert torch.allclose(parts, whole, atol=1e-5, rtol=0)


def test_micro_batches_side_by_side_make_the_same_gradient_every_time(tmp_path: Path, base_model: str) -> None:
    found = []
    for count in (1, 3, 3):
        trainer = new_trainer(tmp_path, base_model, rank=0)
        data = sampled_data(trainer.sampler())
        with threads(count):
            metrics = trainer.forward_backward(data, LossSpec("ppo"))
        assert metrics["micro_batches"] == count
        found.append((gradients(trainer), metrics["loss_sum"], metrics["entropy"]))
    (alone, *numbers), (beside, *others), again = found
    assert torch.allclose(beside, alone, atol=1e-6, rtol=0)
    assert others == pytest.approx(numbers, rel=1e-5)
    assert torch.equal(again[0], beside)


def test_sampling_after_training_uses_as_many_threads_as_before(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model, rank=0)
    used: list[set[int]] = []

    def note(*_: object) -> None:
        if threading.current_thread().name.startswith("sampler"):
            used[-1].add(torch.get_num_threads())

    with threads(2), register_module_forward_pre_hook(note):
        for _ in range(2):
            used.append(set())
            trainer.forward_backward(sampled_data(trainer.sampler()), LossSpec("ppo"))
            trainer.optim_step(AdamParams(learning_rate=1e-3))
    assert used == [{2}, {2}]


def test_bfloat16_rounds_the_gradient_and_leaves_weights_and_sampling_alone(tmp_path: Path, base_model: str) -> None:
    exact, rounded = (new_trainer(tmp_path, base_model, rank=0, bfloat16=on) for on in (False, True))
    data = sampled_data(exact.sampler())
    assert all(map(np.array_equal, data_logprobs(data), data_logprobs(sampled_data(rounded.sampler()))))
    for trainer in (exact, rounded):
        trainer.forward_backward(data, LossSpec("ppo"))
    difference = (gradients(exact) - gradients(rounded)).norm() / gradients(exact).norm()
    assert 1e-4 < float(difference) < 0.05
    assert {weight.dtype for weight in rounded.weights.values()} == {torch.float32}


def test_gradients_equal_those_of_a_plain_padded_model(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model, rank=0)
    data = sampled_data(trainer.sampler(), (1.0, 1.0, 1.0))
    trainer.forward_backward(data, LossSpec("cross_entropy"))
    reference = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    longest = max(len(datum.tokens_T) for datum in data)
    padded = torch.zeros(len(data), longest, dtype=torch.long)
    labels = torch.full((len(data), longest), -100)
    attention = torch.zeros(len(data), longest, dtype=torch.long)
    for row, item in enumerate(data):
        length = len(item.tokens_T)
        padded[row, :length] = torch.from_numpy(item.tokens_T)
        attention[row, :length] = 1
        labels[row, :length][torch.from_numpy(item.mask_T)] = torch.from_numpy(item.targets_T[item.mask_T]).long()
    logits = reference(padded, attention_mask=attention).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100).backward()
    for name, weight in reference.named_parameters():
        assert torch.allclose(trainer.weights[name].grad, weight.grad, atol=1e-5), name


@pytest.mark.parametrize("name", ["ppo", "importance_sampling", "cispo"])
def test_what_has_no_advantage_need_not_be_sent(tmp_path: Path, base_model: str, name: LossName) -> None:
    """The gradient with a trajectory that has no advantage is that of the others, scaled by their share of tokens."""
    trainer = new_trainer(tmp_path, base_model, rank=0)
    played, advantages = sampled_data(trainer.sampler()), (0.5, 0.0, -0.5)
    trajectories = []
    for item in played:
        start = int(np.flatnonzero(item.mask_T)[0]) + 1
        row = [int(item.tokens_T[0]), *item.targets_T.tolist()]
        transcript = Transcript(row[:start])
        transcript.write(Completion(tuple(row[start:]), tuple(item.logprobs_T[start - 1 :].tolist()), "stop"))
        step = Step(transcript.turns[-1], "", "", "look", True, False, "", 0)
        trajectories.append(Trajectory(game=None, transcript=transcript, steps=[step], stop_reason="max_steps"))
    groups = [Group(None, trajectories), Group(None, trajectories[:2])]
    found = [
        GroupAdvantages([0, 1, 2], [np.array([value]) for value in advantages]),
        GroupAdvantages([0, 1], [np.array([0.0]), np.array([0.0])]),  # a degenerate group has no part in either
    ]
    sent, whole = make_data(groups, found).data, make_data(groups, found, keep_without=True).data
    assert (len(sent), len(whole)) == (2, 3)
    trainer.forward_backward(whole, LossSpec(name))
    expected = gradients(trainer).clone()
    for weight in trainer.weights.values():
        weight.grad = None
    trainer.forward_backward(sent, LossSpec(name))
    assert expected.abs().max() > 1e-3
    assert torch.allclose(gradients(trainer), expected, atol=1e-6, rtol=0)


def test_calls_before_a_step_add_up(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model)
    data = sampled_data(trainer.sampler())
    trainer.forward_backward(data[:1], LossSpec())
    first = gradients(trainer).clone()
    trainer.forward_backward(data[1:], LossSpec())
    both = gradients(trainer).clone()
    assert not torch.allclose(first, both)
    trainer.optim_step(AdamParams(learning_rate=0.0))
    trainer.forward_backward(data[1:], LossSpec())
    assert torch.allclose(first + gradients(trainer), both, atol=1e-6)


def test_the_steps_norm_is_bounded_and_reported(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model)
    data = sampled_data(trainer.sampler())
    trainer.forward_backward(data, LossSpec())
    norm = gradients(trainer).norm().item()
    assert trainer.optim_step(AdamParams(grad_clip_norm=norm / 10))["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_adam_is_adamw_with_decoupled_decay(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model, rank=0)
    name, weight = next(iter(trainer.weights.items()))
    trainer.forward_backward(sampled_data(trainer.sampler()), LossSpec())
    before, gradient = weight.detach().clone(), weight.grad.clone()
    trainer.optim_step(AdamParams(learning_rate=0.01, weight_decay=0.1, eps=1e-12, grad_clip_norm=0.0))
    # After one step both bias-corrected moments are the gradient and its square: a step of the learning rate's size.
    expected = before * (1 - 0.01 * 0.1) - 0.01 * gradient / (gradient.abs() + 1e-12)
    assert torch.allclose(weight, expected, atol=1e-6), name


def test_untrained_tokens_and_empty_batches(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model)
    with pytest.raises(BackendError, match="no token to train on"):
        trainer.forward_backward([datum_of([1, 2], [], [], [])], LossSpec())
    with pytest.raises(BackendError, match="forward_backward first"):
        trainer.optim_step(AdamParams())


def test_only_the_adapter_is_trained_with_a_rank(tmp_path: Path, base_model: str) -> None:
    assert all("lora" in name for name in new_trainer(tmp_path, base_model, rank=2).weights)
    everything = new_trainer(tmp_path, base_model, rank=0).weights
    assert "model.embed_tokens.weight" in everything


def test_a_gradient_that_is_not_finite_changes_nothing(tmp_path: Path, base_model: str) -> None:
    trainer = new_trainer(tmp_path, base_model)
    before = {name: weight.detach().clone() for name, weight in trainer.weights.items()}
    trainer.forward_backward([datum_of([1, 2], [3], [-1.0], [float("inf")])], LossSpec("importance_sampling"))
    with pytest.raises(BackendError, match="not finite"):
        trainer.optim_step(AdamParams())
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.weights.items())

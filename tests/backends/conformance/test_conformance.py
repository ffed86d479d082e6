"""What every backend promises: whoever passes this can train, evaluate and resume with all of the program.

Nothing here knows a backend's name. What a server may refuse instead of doing is said where it is tested.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from alfworld_rl.backends.base import Backend, BackendError, Checkpoint, CheckpointError, Trainer
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.types import AdamParams, Datum, LossName, LossSpec, Sampled, SamplingParams, TrainingStart
from backend_data import count, datum, logprobs, prompt_of, sample, two

RANK = 8
STEP = AdamParams(learning_rate=1e-3, grad_clip_norm=0)
NO_STEP = AdamParams(learning_rate=1e-12, grad_clip_norm=0)  # tells the gradient's norm and changes nothing to speak of


@pytest.fixture
def trainer(backend: Backend, base_model: str) -> Trainer:
    return new_trainer(backend, base_model)


def new_trainer(backend: Backend, base_model: str) -> Trainer:
    return backend.trainer(TrainingStart(base_model=base_model), lora_rank=RANK, seed=3)


# --- sampling


def test_a_completion_has_a_logprob_for_every_token_and_says_why_it_ended(backend: Backend, base_model: str) -> None:
    sampler = backend.sampler(base_model)
    prompt = prompt_of(sampler)
    cut = sample(sampler, prompt, n=2, max_tokens=2, temperature=0.01)
    assert [len(one.tokens) for one in cut.completions] == [2, 2]
    assert all(len(one.logprobs) == 2 and one.stop_reason == "length" for one in cut.completions)
    assert cut.usage.prefill >= len(prompt)
    assert cut.usage.sampled == 4
    whole = sample(sampler, prompt, max_tokens=64, temperature=0.01).completions[0]
    assert whole.stop_reason == "stop"
    assert whole.tokens[-1] == sampler.tokenizer.eos_token_id
    assert sampler.tokenizer.eos_token_id not in whole.tokens[:-1]


def test_equal_seeds_give_equal_completions_and_others_differ(backend: Backend, base_model: str) -> None:
    sampler = backend.sampler(base_model)
    prompt = prompt_of(sampler)
    first, again, other = (sample(sampler, prompt, n=2, seed=seed, temperature=1.5) for seed in (7, 7, 2**40 + 8))
    assert [one.tokens for one in first.completions] == [one.tokens for one in again.completions]
    assert len({one.tokens for one in (*first.completions, *other.completions)}) == 4


def test_what_is_sampled_together_is_what_is_sampled_alone(backend: Backend, base_model: str) -> None:
    sampler = backend.sampler(base_model)
    prompts = [
        prompt_of(sampler, text) for text in ("Hello.", "Put a mug on the desk, then look at it under the lamp.")
    ]

    async def together() -> list[Sampled]:
        params = [SamplingParams(max_tokens=12, seed=seed) for seed in range(2)]
        return await asyncio.gather(*map(sampler.sample, prompts, params))

    alone = [sample(sampler, prompt, seed=seed) for seed, prompt in enumerate(prompts)]
    assert [one.completions[0].tokens for one in asyncio.run(together())] == [
        one.completions[0].tokens for one in alone
    ]


def test_temperature_near_0_takes_the_likeliest_token(backend: Backend, base_model: str) -> None:
    sampler = backend.sampler(base_model)
    prompt = prompt_of(sampler)
    assert len({sample(sampler, prompt, seed=seed, temperature=1e-3).completions[0].tokens for seed in range(3)}) == 1


def test_a_stop_text_ends_a_completion(backend: Backend, base_model: str) -> None:
    sampler = backend.sampler(base_model)
    prompt = prompt_of(sampler)
    whole = sample(sampler, prompt, max_tokens=64, temperature=1e-3).completions[0]
    text = sampler.tokenizer.decode(whole.tokens, skip_special_tokens=False)
    stop = text.strip()[:6]
    params = SamplingParams(max_tokens=64, temperature=1e-3, stop=(stop,))
    cut = asyncio.run(sampler.sample(prompt, params)).completions[0]
    assert cut.stop_reason == "stop"
    assert cut.tokens == whole.tokens[: len(cut.tokens)]
    assert stop in sampler.tokenizer.decode(cut.tokens, skip_special_tokens=False)
    assert stop not in sampler.tokenizer.decode(cut.tokens[:-1], skip_special_tokens=False)


def test_the_logprobs_of_a_text_are_those_it_was_sampled_with(backend: Backend, base_model: str) -> None:
    sampler = backend.sampler(base_model)
    prompt = prompt_of(sampler)
    written = sample(sampler, prompt).completions[0]
    scored = logprobs(sampler, [*prompt, *written.tokens])
    assert len(scored) == len(prompt) + len(written.tokens)
    assert scored[0] == 0
    assert scored[len(prompt) :] == pytest.approx(written.logprobs, abs=1e-4)


# --- gradients


def test_the_trainer_computes_the_logprobs_that_the_sampler_does(trainer: Trainer) -> None:
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    data = [datum(prompt, one, 1.0) for one in sample(sampler, prompt, n=2).completions]
    metrics = trainer.forward_backward(data, LossSpec("ppo"))
    assert metrics["token_count"] == count(*data)
    assert metrics["loss_mean"] == pytest.approx(-1, abs=1e-4)
    assert metrics["loss_sum"] == pytest.approx(-count(*data), abs=1e-3)
    assert metrics.get("clip_fraction", 0) == 0
    assert abs(metrics.get("approx_kl", 0)) < 1e-6


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_step_changes_a_completion_s_probability_by_the_sign_of_its_advantage(
    trainer: Trainer, loss: LossName, advantage: float
) -> None:
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    written = sample(sampler, prompt).completions[0]
    text = [*prompt, *written.tokens]
    before = logprobs(sampler, text)[len(prompt) :].sum()
    trainer.forward_backward([datum(prompt, written, advantage)], LossSpec(loss))
    trainer.optim_step(replace(STEP, learning_rate=1e-4))
    after = logprobs(trainer.sampler(), text)[len(prompt) :].sum()
    assert (after - before) * advantage > 0


def test_ppo_has_no_gradient_where_the_ratio_is_beyond_its_bound(trainer: Trainer) -> None:
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    written = sample(sampler, prompt).completions[0]
    text = [*prompt, *written.tokens]
    before = logprobs(sampler, text)

    def step(advantage: float, ratio: float) -> np.ndarray:
        trainer.forward_backward([datum(prompt, written, advantage, ratio=ratio)], LossSpec("ppo", 0.8, 1.2))
        trainer.optim_step(STEP)
        return logprobs(trainer.sampler(), text)

    assert step(1.0, 1.3) == pytest.approx(before, abs=1e-6)  # likelier than before by more than 1.2
    assert step(-1.0, 0.7) == pytest.approx(before, abs=1e-6)  # less likely by more than 0.8
    assert np.abs(step(-1.0, 1.3) - before).max() > 1e-4  # but it may always go back


def norm_of(trainer: Trainer, data: Sequence[Datum], loss: LossSpec) -> float:
    """The norm of the gradient, which the next call begins without."""
    trainer.forward_backward(data, loss)
    return float(trainer.optim_step(NO_STEP)["grad_norm"])


def test_the_gradient_is_that_of_the_mean_over_all_tokens(trainer: Trainer) -> None:
    """By hand: where 1 of 4 tokens has an advantage, the norm is a quarter of that of this one alone."""
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    short, long = two(sampler, prompt)
    learned, idle = datum(prompt, short, 1.0, tokens=1), datum(prompt, long, 0.0)
    share = count(learned) / count(learned, idle)
    assert share < 0.5
    for loss in (LossSpec("ppo"), LossSpec("cispo"), LossSpec("importance_sampling")):
        alone = norm_of(trainer, [learned], loss)
        assert alone > 0
        assert norm_of(trainer, [learned, idle], loss) == pytest.approx(alone * share, rel=1e-3)
        lower = alone * count(learned) / count(idle, learned, idle)
        assert norm_of(trainer, [idle, learned, idle], loss) == pytest.approx(lower, rel=1e-3)
        assert norm_of(trainer, [datum(prompt, short, 3.0, tokens=1)], loss) == pytest.approx(alone * 3, rel=1e-3)


def test_cross_entropy_weighs_tokens_and_divides_by_the_weights(trainer: Trainer) -> None:
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    short, long = two(sampler, prompt)
    loss = LossSpec("cross_entropy")
    learned = datum(prompt, short, 1.0, tokens=2)
    metrics = trainer.forward_backward([learned], loss)
    alone = float(trainer.optim_step(NO_STEP)["grad_norm"])
    assert metrics["loss_mean"] == pytest.approx(-np.mean(short.logprobs[:2]), abs=1e-3)
    # By hand: what has no weight does not count, and the scale of the weights does not either.
    assert norm_of(trainer, [learned, datum(prompt, long, 0.0)], loss) == pytest.approx(alone, rel=1e-3)
    assert norm_of(trainer, [datum(prompt, short, 0.25, tokens=2)], loss) == pytest.approx(alone, rel=1e-3)
    # And of two, each has the share of its weights in the gradient: the two sequences are the same.
    both = [datum(prompt, short, 1.0, tokens=2), datum(prompt, short, 3.0, tokens=2)]
    assert norm_of(trainer, both, loss) == pytest.approx(alone, rel=1e-3)


def test_nothing_to_train_on_and_no_gradient_are_refused(trainer: Trainer) -> None:
    with pytest.raises(AlfworldRLError):
        trainer.forward_backward([], LossSpec("ppo"))


# --- samplers of a model in training


def test_a_sampler_opened_before_a_step_has_its_weights_or_says_that_they_are_gone(trainer: Trainer) -> None:
    """Never does it sample from other weights than its own, and never does it change those under training."""
    before = trainer.sampler()
    prompt = prompt_of(before)
    written = sample(before, prompt).completions[0]
    text = [*prompt, *written.tokens]
    expected = logprobs(before, text)
    trainer.forward_backward([datum(prompt, written, 1.0)], LossSpec("ppo"))
    trainer.optim_step(STEP)
    trained = logprobs(trainer.sampler(), text)
    assert np.abs(trained - expected).max() > 1e-4
    refused = ""
    try:
        expected = logprobs(before, text) - expected
    except BackendError as error:
        refused = str(error)
    assert "open another" in refused or expected == pytest.approx(0, abs=1e-5)
    assert logprobs(trainer.sampler(), text) == pytest.approx(trained, abs=1e-5)


# --- checkpoints


def test_a_state_goes_on_as_if_nothing_had_been_in_between(reopen: Callable[[], Backend], trainer: Trainer) -> None:
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    good, bad = two(sampler, prompt)
    data = [datum(prompt, good, 1.0), datum(prompt, bad, -1.0)]
    text = [*prompt, *good.tokens]

    def step(stepping: Trainer) -> np.ndarray:
        stepping.forward_backward(data, LossSpec("importance_sampling"))
        stepping.optim_step(STEP)
        return logprobs(stepping.sampler(), text)

    at_save = step(trainer)
    uri = trainer.save_state("step.1")
    assert Checkpoint.parse(uri).kind == "training_state"
    resumed = reopen().trainer(TrainingStart(state=uri), lora_rank=RANK, seed=3)
    assert logprobs(resumed.sampler(), text) == pytest.approx(at_save, abs=1e-4)
    assert step(resumed) == pytest.approx(step(trainer), abs=1e-3)
    # With weights alone the optimizer begins anew, so the next step is another one.
    fresh = reopen().trainer(TrainingStart(weights=uri), lora_rank=RANK, seed=3)
    assert logprobs(fresh.sampler(), text) == pytest.approx(at_save, abs=1e-4)


def test_sampler_weights_are_those_they_were_saved_from_whatever_is_trained_afterwards(
    reopen: Callable[[], Backend], trainer: Trainer, base_model: str
) -> None:
    sampler = trainer.sampler()
    prompt = prompt_of(sampler)
    written = sample(sampler, prompt).completions[0]
    text = [*prompt, *written.tokens]
    seen, uris = [], []
    for number, advantage in enumerate((1.0, 1.0, -1.0)):
        trainer.forward_backward([datum(prompt, written, advantage)], LossSpec("importance_sampling"))
        trainer.optim_step(STEP)
        seen.append(logprobs(trainer.sampler(), text))
        uris.append(trainer.save_sampler_weights(f"weights.{number}"))
    for uri, expected in zip(uris, seen, strict=True):
        assert logprobs(reopen().sampler(base_model, uri), text) == pytest.approx(expected, abs=1e-4)
    # Opening old weights did nothing to the model that they are of.
    assert logprobs(trainer.sampler(), text) == pytest.approx(seen[-1], abs=1e-5)
    try:
        started = reopen().trainer(TrainingStart(weights=uris[-1]), lora_rank=RANK, seed=3)
    except CheckpointError:
        return  # a service may train from a state alone, if it says so
    assert logprobs(started.sampler(), text) == pytest.approx(seen[-1], abs=1e-4)


def test_uris_of_the_wrong_kind_or_of_nothing_are_refused(backend: Backend, trainer: Trainer, base_model: str) -> None:
    state, weights = trainer.save_state("kind"), trainer.save_sampler_weights("kind")
    with pytest.raises(CheckpointError):
        backend.sampler(base_model, state)
    with pytest.raises(CheckpointError):
        backend.trainer(TrainingStart(state=weights), lora_rank=RANK, seed=0)
    parsed = Checkpoint.parse(state)
    nothing = [
        str(Checkpoint(parsed.scheme, parsed.run, "sampler_weights", "never-saved")),
        f"elsewhere://{parsed.run}/sampler_weights/kind",
        "nonsense",
    ]
    for uri in nothing:
        with pytest.raises(CheckpointError):
            backend.sampler(base_model, uri)
        with pytest.raises(CheckpointError):
            backend.trainer(TrainingStart(state=uri), lora_rank=RANK, seed=0)
        with pytest.raises(CheckpointError):
            backend.trainer(TrainingStart(weights=uri), lora_rank=RANK, seed=0)


def test_a_deleted_checkpoint_is_gone_and_deleting_it_again_is_no_error(backend: Backend, trainer: Trainer) -> None:
    kept, removed = trainer.save_state("kept"), trainer.save_state("removed")
    backend.delete(removed)
    backend.delete(removed)
    with pytest.raises(CheckpointError):
        backend.trainer(TrainingStart(state=removed), lora_rank=RANK, seed=0)
    backend.trainer(TrainingStart(state=kept), lora_rank=RANK, seed=0)


def test_a_base_model_that_is_not_there_is_refused_by_a_usage_error(backend: Backend) -> None:
    for model in ("nobody/has-this-model", "./no-such-folder"):
        with pytest.raises(UsageError):
            backend.trainer(TrainingStart(base_model=model), lora_rank=RANK, seed=0)
        with pytest.raises(UsageError):
            backend.sampler(model)


def test_it_says_what_it_can_do(backend: Backend, base_model: str) -> None:
    capabilities = backend.capabilities(base_model)
    assert capabilities.trains
    assert {"ppo", "importance_sampling", "cispo", "cross_entropy"} == set(capabilities.losses)
    assert capabilities.default_model

import asyncio
import gc
import math
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from local_data import datum
from transformers import AutoModelForCausalLM

from alfworld_rl.backends.base import SamplingError
from alfworld_rl.backends.local import LocalBackend, LocalSampler, LocalTrainer
from alfworld_rl.backends.local.engine import draw
from alfworld_rl.types import AdamParams, Completion, LossSpec, Sampled, SamplingParams, TrainingStart

TEXT = "you are in the middle of a room looking quickly around you see a cabinet 3 a cabinet 2 and a fridge 1."


def opened(base_model: str, **options: Any) -> LocalSampler:
    return LocalBackend(Path("unused"), **options).sampler(base_model)


def prompt_of(sampler: LocalSampler, seed: int, length: int = 40) -> list[int]:
    start = seed * 3 % 50
    return sampler.tokenizer.encode((TEXT[start:] + TEXT * 10)[:length])


async def alone(sampler: LocalSampler, seed: int) -> Completion:
    answer = await sampler.sample(
        prompt_of(sampler, seed, 20 + seed * 7 % 50), SamplingParams(max_tokens=12, seed=seed)
    )
    return answer.completions[0]


def test_logprobs_equal_transformers_and_the_trainers(tmp_path: Path, base_model: str) -> None:
    trainer = LocalBackend(tmp_path).trainer(TrainingStart(base_model=base_model), lora_rank=4, seed=0)
    for _ in range(2):  # an adapter that does something
        data = [datum(prompt_of(trainer.sampler(), 1), asyncio.run(alone(trainer.sampler(), 1)), 1.0) for _ in range(1)]
        trainer.forward_backward(data, LossSpec("cross_entropy"))
        trainer.optim_step(AdamParams(learning_rate=0.01))
    sampler = trainer.sampler()

    async def play() -> list[tuple[list[int], Completion]]:
        """Many branches at once, three turns each, so that prompts are read in the company of writing."""

        async def branch(seed: int) -> list[tuple[list[int], Completion]]:
            turns, context = [], prompt_of(sampler, seed)
            for turn in range(3):
                answer = await sampler.sample(context, SamplingParams(max_tokens=5 + seed, seed=seed * 10 + turn))
                turns.append((context, answer.completions[0]))
                context = [*context, *answer.completions[0].tokens, *prompt_of(sampler, seed + turn, 9)]
            return turns

        return [turn for turns in await asyncio.gather(*map(branch, range(7))) for turn in turns]

    turns = asyncio.run(play())
    # At the weights that sampled, every ratio is 1, which the trainer's own estimate of the distance measures.
    metrics = trainer.forward_backward([datum(prompt, answer, 1.0) for prompt, answer in turns], LossSpec("ppo"))
    assert metrics["approx_kl"] < 1e-9
    for prompt, answer in turns[::5]:
        scored = asyncio.run(sampler.logprobs([*prompt, *answer.tokens]))
        assert scored[len(prompt) :] == pytest.approx(answer.logprobs, abs=1e-4)


def test_scores_equal_those_of_transformers(base_model: str) -> None:
    sampler = opened(base_model)
    tokens = prompt_of(sampler, 4, 700)
    reference = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    with torch.no_grad():
        logits = reference(torch.tensor([tokens])).logits[0]
    expected = torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(tokens[1:]).unsqueeze(1)).squeeze(1)
    assert asyncio.run(sampler.logprobs(tokens)) == pytest.approx([0.0, *expected.tolist()], abs=1e-4)


def test_a_completion_is_the_same_in_any_company_and_order(base_model: str) -> None:
    expected = [asyncio.run(alone(opened(base_model), seed)) for seed in range(8)]

    async def crowded(order: list[int], pauses: bool) -> dict[int, Completion]:
        sampler = opened(base_model)
        found = {}

        async def one(place: int, seed: int) -> None:
            for _ in range(place * 40 * pauses):
                await asyncio.sleep(0)
            found[seed] = await alone(sampler, seed)

        await asyncio.gather(*(one(place, seed) for place, seed in enumerate(order)))
        return found

    for shuffle, pauses in ((0, False), (1, True), (2, False)):
        order = list(range(8))
        random.Random(shuffle).shuffle(order)
        found = asyncio.run(crowded(order, pauses))
        assert [found[seed].tokens for seed in range(8)] == [completion.tokens for completion in expected]
        # Bit for bit: rows of one matrix product do not feel each other.
        assert [found[seed].logprobs for seed in range(8)] == [completion.logprobs for completion in expected]


def test_seeds_make_the_difference(base_model: str) -> None:
    sampler = opened(base_model)

    async def play() -> list[Sampled]:
        prompt = prompt_of(sampler, 0)
        return [
            await sampler.sample(prompt, SamplingParams(max_tokens=12, seed=seed), n=2) for seed in (1, 1, 2, -3, 2**80)
        ]

    first, again, *others = asyncio.run(play())
    assert first.completions == again.completions
    assert first.completions[0] != first.completions[1]
    assert all(other.completions != first.completions for other in others)


def test_the_next_turn_computes_only_what_is_new(base_model: str) -> None:
    sampler = opened(base_model)

    async def play() -> None:
        prompt = prompt_of(sampler, 0, 300)
        first = await sampler.sample(prompt, SamplingParams(max_tokens=10, seed=3), n=3)
        assert (first.usage.prefill, first.usage.cached) == (300, 0)
        assert first.usage.sampled == sum(len(completion.tokens) for completion in first.completions)
        contexts = [[*prompt, *completion.tokens, 1, 2, 3] for completion in first.completions]
        seconds = await asyncio.gather(*(sampler.sample(context, SamplingParams(max_tokens=4)) for context in contexts))
        for context, completion, second in zip(contexts, first.completions, seconds, strict=True):
            # All but the last token written, whose keys and values nobody has needed yet.
            assert second.usage.prefill == len(context)
            assert second.usage.cached == 300 + len(completion.tokens) - 1
        # What begins alike is shared up to the end of a piece of 128.
        shared = await sampler.sample([*prompt[:150], 7, 8, 9], SamplingParams(max_tokens=2))
        assert shared.usage.cached == 128
        again = await sampler.sample(prompt, SamplingParams(max_tokens=10, seed=3), n=3)
        assert again.usage.cached == 256
        assert again.completions == first.completions

    asyncio.run(play())


def test_a_request_shares_the_prompt_of_one_under_way(base_model: str) -> None:
    sampler = opened(base_model)

    async def play() -> None:
        prompt = prompt_of(sampler, 2, 300)
        long = asyncio.create_task(sampler.sample(prompt, SamplingParams(max_tokens=3000, temperature=0.0)))
        shorts = [await sampler.sample(prompt, SamplingParams(max_tokens=1, seed=seed)) for seed in range(2)]
        assert not long.done()
        assert shorts[1].usage.cached == 256
        long.cancel()

    asyncio.run(play())


def test_memory_is_bounded_and_eviction_changes_nothing_but_cost(base_model: str) -> None:
    async def play(sampler: LocalSampler) -> tuple[list[tuple[int, ...]], int]:
        async def branch(seed: int) -> tuple[list[tuple[int, ...]], int]:
            written, cached, context = [], 0, prompt_of(sampler, seed, 100)
            for turn in range(3):
                answer = await sampler.sample(context, SamplingParams(max_tokens=8, seed=seed + 100 * turn))
                cached += answer.usage.cached
                written.append(answer.completions[0].tokens)
                context = [*context, *answer.completions[0].tokens, *prompt_of(sampler, turn, 30)]
            return written, cached

        branches = await asyncio.gather(*map(branch, range(6)))
        return [tokens for written, _ in branches for tokens in written], sum(cached for _, cached in branches)

    roomy, reused = asyncio.run(play(opened(base_model)))
    tight, reused_tight = asyncio.run(play(opened(base_model, cache_bytes=40_000)))
    assert tight == roomy
    assert reused_tight < reused


def test_stop_strings_end_a_completion_with_the_token_that_completes_them(base_model: str) -> None:
    sampler = opened(base_model)

    async def play() -> None:
        prompt = prompt_of(sampler, 0)
        (free,) = (await sampler.sample(prompt, SamplingParams(max_tokens=40, seed=5))).completions
        text = sampler.tokenizer.decode(free.tokens)
        stop = text[7:10]
        end = text.index(stop) + len(stop)
        (held,) = (
            await sampler.sample(prompt, SamplingParams(max_tokens=40, seed=5, stop=("qqqqqq", stop)))
        ).completions
        assert held.tokens == free.tokens[:end]
        assert held.logprobs == free.logprobs[:end]
        assert held.stop_reason == "stop"
        assert sampler.tokenizer.decode(held.tokens).endswith(stop)

    asyncio.run(play())


def test_a_message_ends_with_its_end_token_which_is_included(base_model: str) -> None:
    sampler = opened(base_model)

    async def play() -> list[Completion]:
        answers = [
            await sampler.sample(prompt_of(sampler, 0), SamplingParams(max_tokens=30, seed=seed), n=8)
            for seed in range(3)
        ]
        return [completion for answer in answers for completion in answer.completions]

    end = sampler.tokenizer.eos_token_id
    completions = asyncio.run(play())
    assert {completion.stop_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        assert (completion.tokens[-1] == end) == (completion.stop_reason == "stop")
        assert end not in completion.tokens[:-1]
        assert len(completion.tokens) == 30 or completion.stop_reason == "stop"


def reference_logprobs(base_model: str, prompt: list[int], completion: Completion) -> list[torch.Tensor]:
    """Of every next token where `completion` chose its own, at temperature 1, by transformers alone."""
    reference = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    with torch.no_grad():
        logits = reference(torch.tensor([[*prompt, *completion.tokens]])).logits[0].double()
    return list(torch.log_softmax(logits, -1)[len(prompt) - 1 : -1])


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 0.01])
def test_low_temperatures_take_the_likeliest_token(base_model: str, temperature: float) -> None:
    sampler = opened(base_model)
    prompt = prompt_of(sampler, 0)
    params = SamplingParams(max_tokens=8, temperature=temperature)
    (found,) = asyncio.run(sampler.sample(prompt, params)).completions
    everything = reference_logprobs(base_model, prompt, found)
    for token, logprob, log_softmax in zip(found.tokens, found.logprobs, everything, strict=True):
        assert token == log_softmax.argmax()
        # At 0 it was certain, however unsure the policy is of itself.
        expected = behaviour(log_softmax, temperature, 1.0)[token] if temperature == 0.01 else 0
        assert logprob == pytest.approx(expected, abs=1e-3)


def behaviour(log_softmax: torch.Tensor, temperature: float, top_p: float) -> list[float]:
    """The logprobs that a policy is sampled with, token by token and in plain numbers."""
    weights = [math.exp(value / temperature) for value in log_softmax.tolist()]
    probabilities = [weight / math.fsum(weights) for weight in weights]
    kept: list[int] = []
    for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
        kept.append(token)
        if math.fsum(probabilities[one] for one in kept) >= top_p:
            break
    mass = math.fsum(probabilities[token] for token in kept)
    return [math.log(p / mass) if p and token in kept else -math.inf for token, p in enumerate(probabilities)]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (1.3, 1.0), (0.6, 1.0), (1.0, 0.7), (1.4, 0.8)])
def test_logprobs_are_those_that_tokens_were_drawn_with(
    tmp_path: Path, base_model: str, temperature: float, top_p: float
) -> None:
    trainer = LocalBackend(tmp_path).trainer(TrainingStart(base_model=base_model), lora_rank=0, seed=0)
    sampler = trainer.sampler()
    prompt = prompt_of(sampler, 3)
    params = SamplingParams(max_tokens=12, temperature=temperature, top_p=top_p, seed=4)
    completions = asyncio.run(sampler.sample(prompt, params, n=6)).completions
    log_ratios = []
    for completion in completions:
        everything = reference_logprobs(base_model, prompt, completion)
        for token, logprob, log_softmax in zip(completion.tokens, completion.logprobs, everything, strict=True):
            assert logprob == pytest.approx(behaviour(log_softmax, temperature, top_p)[token], abs=1e-4)
            log_ratios.append(log_softmax[token].item() - logprob)
    # So the trainer's ratio is that of the policy to what sampled, and 1 where that was the policy itself.
    metrics = trainer.forward_backward(
        [datum(prompt, one, 1.0) for one in completions], LossSpec("importance_sampling")
    )
    assert metrics["loss_mean"] == pytest.approx(-sum(map(math.exp, log_ratios)) / len(log_ratios), rel=1e-4)
    kl = sum(math.exp(value) - 1 - value for value in log_ratios) / len(log_ratios)
    assert metrics["approx_kl"] == pytest.approx(kl, rel=1e-3, abs=1e-8)
    assert (metrics["approx_kl"] < 1e-8) == (temperature == top_p == 1)


def test_draws_follow_temperature_and_top_p() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.0, 0.4])
    logits_BV = probabilities.log().expand(4, 4)
    uniforms = [0.0, 0.0999, 0.1001, 1 - 2**-53]
    tokens, logprobs = draw(logits_BV, [1.0] * 4, [1.0] * 4, uniforms)
    assert tokens == [0, 0, 1, 3]
    assert logprobs == pytest.approx([float(probabilities[token].log()) for token in tokens])
    # The nucleus of 0.8 is {1, 3}, of 0.5 {1}.
    tokens, logprobs = draw(logits_BV, [1.0] * 4, [0.8, 0.8, 0.5, 1.0], [0.0, 0.9, 0.99, 0.0])
    assert tokens == [1, 3, 1, 0]
    assert logprobs == pytest.approx([math.log(5 / 9), math.log(4 / 9), 0, math.log(0.1)])
    # Temperature 1/2 squares: weights 0.01, 0.25, 0.16 of 0.42.
    tokens, logprobs = draw(logits_BV[:2], [0.5] * 2, [1.0] * 2, [0.0237, 0.0239])
    assert tokens == [0, 1]
    assert logprobs == pytest.approx([math.log(1 / 42), math.log(25 / 42)])
    # The likeliest token is certain at temperature 0, whatever its neighbours in the batch ask for.
    tokens, logprobs = draw(logits_BV[:2], [0.0, 1.0], [1.0, 1.0], [0.05, 0.05])
    assert (tokens, logprobs) == ([1, 0], pytest.approx([0, math.log(0.1)]))


def test_a_sampler_keeps_its_weights_while_training_goes_on(tmp_path: Path, base_model: str) -> None:
    for rank in (0, 4):
        trainer: LocalTrainer = LocalBackend(tmp_path).trainer(
            TrainingStart(base_model=base_model), lora_rank=rank, seed=0
        )
        sampler = trainer.sampler()
        before = asyncio.run(alone(sampler, 1))
        trainer.forward_backward([datum(prompt_of(sampler, 1), before, 1.0)], LossSpec("cross_entropy"))
        trainer.optim_step(AdamParams(learning_rate=0.1))
        assert asyncio.run(alone(sampler, 1)) == before
        assert asyncio.run(alone(trainer.sampler(), 1)) != before


def test_a_cancelled_request_leaves_the_others_alone(base_model: str) -> None:
    sampler = opened(base_model)

    async def play() -> None:
        doomed = asyncio.create_task(
            sampler.sample(prompt_of(sampler, 1), SamplingParams(max_tokens=100_000, stop=("qqqqqqqq",)))
        )
        kept = asyncio.create_task(alone(sampler, 3))
        await asyncio.sleep(0)
        doomed.cancel()
        assert await kept == await alone(opened(base_model), 3)
        with pytest.raises(asyncio.CancelledError):
            await doomed

    asyncio.run(play())


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"max_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"prompt": []}, {"prompt": [10**6]}]
)
def test_wrong_requests_are_refused_in_a_sentence(base_model: str, wrong: dict[str, Any]) -> None:
    asked = {"prompt": [1, 2], "n": 1, "max_tokens": 3} | wrong
    prompt, n = asked.pop("prompt"), asked.pop("n")
    with pytest.raises(SamplingError):
        asyncio.run(opened(base_model).sample(prompt, SamplingParams(**asked), n=n))


def test_nothing_is_left_of_a_dropped_sampler(base_model: str) -> None:
    of_others = set(threading.enumerate())
    sampler = opened(base_model)
    asyncio.run(alone(sampler, 0))
    threads = [thread for thread in set(threading.enumerate()) - of_others if thread.name.startswith("sampler")]
    assert threads
    del sampler
    gc.collect()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()

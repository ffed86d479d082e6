"""The trio backend, over the unmodified SDK, against the loopback service: what it sends, and every way to fail."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import pytrio
import torch

from alfworld_rl.backends import trio
from alfworld_rl.backends.base import BackendError, BalanceError, CheckpointError, Sampler, SamplingError
from alfworld_rl.backends.local import builtin
from alfworld_rl.backends.trio import TrioBackend, TrioTrainer
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.types import AdamParams, Datum, LossSpec, Sampled, SamplingParams, TrainingStart
from trio_server import API_KEY, MODEL, LearningEngine, Model, ScriptedEngine, Service, TrioServer
from trio_server.faults import ALWAYS

FOLDER = builtin.path("alfworld-tiny")
TRAINING_ONLY_ELSEWHERE = Model("Qwen/Qwen3-8B", FOLDER, trains=False)
PROMPT = tuple(range(100, 140))
OPTIMIZE = AdamParams(learning_rate=1e-2)


@pytest.fixture(autouse=True)
def _sdk(tmp_path: Path) -> None:
    """The SDK as a fresh process has it, but that it does not wait long before it tries again."""
    torch.set_num_threads(1)
    pytrio.configure(
        home=str(tmp_path),
        retry_initial_delay_seconds=0.02,
        retry_max_delay_seconds=0.1,
        actor_capacity_poll_interval_seconds=0.02,
    )


@pytest.fixture
def service() -> Service:
    return Service(ScriptedEngine(FOLDER), [Model(MODEL, FOLDER), TRAINING_ONLY_ELSEWHERE])


@pytest.fixture
def server(service: Service) -> Iterator[TrioServer]:
    with TrioServer(service) as server:
        pytrio.configure(base_url=server.url, api_key=API_KEY)
        yield server


@pytest.fixture
def backend(server: TrioServer) -> Iterator[TrioBackend]:
    backend = TrioBackend(max_in_flight=4)
    yield backend
    backend.close()


@pytest.fixture
def trainer(backend: TrioBackend) -> TrioTrainer:
    return backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)


def sample(sampler: Sampler, prompt: Sequence[int] = PROMPT, *, n: int = 1, **options: int) -> Sampled:
    return asyncio.run(sampler.sample(prompt, SamplingParams(**{"max_tokens": 24, **options}), n=n))


def datum(sampler: Sampler, advantage: float, prompt: Sequence[int] = PROMPT, seed: int = 1) -> Datum:
    """One sampled completion, to be trained on."""
    completion = sample(sampler, prompt, seed=seed).completions[0]
    tokens = np.array([*prompt, *completion.tokens], np.int32)
    mask_T = np.arange(len(tokens) - 1) >= len(prompt) - 1
    logprobs_T = np.zeros(len(mask_T), np.float32)
    logprobs_T[mask_T] = completion.logprobs
    return Datum(tokens[:-1], tokens[1:], mask_T, logprobs_T, np.where(mask_T, advantage, 0).astype(np.float32))


# --- what is sent


@pytest.mark.parametrize("trajectories", [64, 130])  # the SDK's own limits are 16 requests and 100 connections
def test_as_many_requests_fly_as_there_are_trajectories(
    server: TrioServer, service: Service, trajectories: int
) -> None:
    backend = TrioBackend(max_in_flight=trajectories)
    sampler = backend.sampler(MODEL)
    service.faults.gather(trajectories)

    async def all_at_once() -> list[Sampled]:
        return await asyncio.gather(
            *(sampler.sample(PROMPT, SamplingParams(max_tokens=24, seed=n)) for n in range(trajectories))
        )

    assert len(asyncio.run(all_at_once())) == trajectories
    assert service.ledger.most_in_flight == trajectories
    backend.close()


def test_a_sample_carries_what_was_written_its_logprobs_and_what_it_costs(
    backend: TrioBackend, service: Service
) -> None:
    sampled = sample(backend.sampler(MODEL), n=2)
    assert len(sampled.completions) == 2
    for completion, record in zip(sampled.completions, service.ledger.samples, strict=True):
        assert completion.tokens == tuple(record.tokens)
        assert np.array_equal(np.float32(completion.logprobs), record.logprobs)
        assert completion.stop_reason == "stop"
    assert sampled.usage.prefill == len(PROMPT) == service.ledger.prefill_tokens
    assert sampled.usage.sampled == service.ledger.sampled_tokens
    assert sample(backend.sampler(MODEL), max_tokens=3).completions[0].stop_reason == "length"


def test_logprobs_of_a_prompt_start_with_0(backend: TrioBackend) -> None:
    logprobs = asyncio.run(backend.sampler(MODEL).logprobs(PROMPT))
    assert len(logprobs) == len(PROMPT)
    assert logprobs[0] == 0
    assert all(logprob < 0 for logprob in logprobs[1:])


def test_only_sampled_tokens_are_trained_on_with_the_logprobs_they_were_sampled_with(
    trainer: TrioTrainer, service: Service
) -> None:
    sampler = trainer.sampler()
    data = [datum(sampler, 1.0, seed=1), datum(sampler, -1.0, seed=2)]
    metrics = trainer.forward_backward(data, LossSpec("ppo", 0.7, 1.4))
    assert service.ledger.check_training() == 2
    (sent,) = service.ledger.trained
    assert (sent.loss, sent.config) == ("ppo", {"clip_low_threshold": 0.7, "clip_high_threshold": 1.4})
    masked = sum(int(datum.mask_T.sum()) for datum in data)
    assert metrics["token_count"] == sent.total_active_tokens == masked
    assert metrics["approx_kl"] == metrics["clip_fraction"] == 0  # the script trains nothing
    trainer.optim_step(OPTIMIZE)
    (_, adam), *_ = service.ledger.optimizer_steps
    assert adam["learning_rate"] == 1e-2
    assert adam["grad_clip_norm"] == 1.0


def test_cross_entropy_leaves_out_what_is_masked(trainer: TrioTrainer, service: Service) -> None:
    shown = datum(trainer.sampler(), 0.5)
    trainer.forward_backward([shown], LossSpec("cross_entropy"))
    (record,) = service.ledger.trained_data()
    assert np.array_equal(record.targets_T != -100, shown.mask_T)


def test_a_batch_over_the_limits_is_split_and_its_gradient_stays_the_same(
    server: TrioServer, service: Service, tmp_path: Path
) -> None:
    service.engine = LearningEngine(tmp_path)
    logprobs = []
    for limit in (64, 2):
        service.models[0] = Model(MODEL, FOLDER, max_batch_size=limit)
        service.ledger.trained.clear()
        backend = TrioBackend(max_in_flight=4)
        trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)
        base = backend.sampler(MODEL)
        data = [datum(base, (-1.0) ** n, PROMPT[: 8 + 3 * n], seed=n) for n in range(5)]
        trainer.forward_backward(data, LossSpec())
        trainer.optim_step(OPTIMIZE)
        assert [len(part.data) for part in service.ledger.trained] == ([5] if limit == 64 else [2, 2, 1])
        assert {part.total_active_tokens for part in service.ledger.trained} == {sum(d.mask_T.sum() for d in data)}
        logprobs.append(asyncio.run(trainer.sampler().logprobs(PROMPT)))
        before = asyncio.run(base.logprobs(PROMPT))
        backend.close()
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
    assert logprobs[0] != pytest.approx(before, abs=1e-3)


def test_what_is_trained_through_the_service_learns(server: TrioServer, service: Service, tmp_path: Path) -> None:
    service.engine = LearningEngine(tmp_path)
    backend = TrioBackend(max_in_flight=4)
    trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)
    rewarded = datum(trainer.sampler(), 1.0)
    sequence = [*rewarded.tokens_T.tolist(), int(rewarded.targets_T[-1])]

    def logprob() -> float:
        return sum(asyncio.run(trainer.sampler().logprobs(sequence))[len(PROMPT) :])

    before = logprob()
    trainer.forward_backward([rewarded], LossSpec())
    trainer.optim_step(AdamParams(learning_rate=1e-3))
    assert logprob() > before + 0.1
    backend.close()


def test_checkpoints_of_both_kinds_come_back(backend: TrioBackend, trainer: TrioTrainer, service: Service) -> None:
    state, weights = trainer.save_state("my run, step 20"), trainer.save_sampler_weights("my run, step 20")
    run = service.training_runs[next(iter(service.training_runs))].cuid
    assert state == f"trio://{run}/training_state/my-run-step-20"
    assert weights == f"trio://{run}/sampler_weights/my-run-step-20"
    sample(backend.sampler(MODEL, weights))
    assert service.ledger.samples[-1].weights == weights
    backend.trainer(TrainingStart(state=state), lora_rank=0, seed=0).sampler()
    assert list(service.training_runs.values())[-1].restore_optimizer
    backend.trainer(TrainingStart(weights=state), lora_rank=0, seed=1).sampler()
    assert not list(service.training_runs.values())[-1].restore_optimizer


def test_a_step_that_never_came_leaves_no_gradient_behind(server: TrioServer, service: Service, tmp_path: Path) -> None:
    """As when the process is killed between forward_backward and optim_step, and the run then goes on."""
    service.engine = LearningEngine(tmp_path)
    results = []
    for killed in (False, True):
        backend = TrioBackend(max_in_flight=4)
        trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)
        sampler = trainer.sampler()
        if killed:
            state = trainer.save_state("before")
            trainer.forward_backward([datum(sampler, -3.0, seed=9)], LossSpec())
            backend.close()
            backend = TrioBackend(max_in_flight=4)
            trainer = backend.trainer(TrainingStart(state=state), lora_rank=0, seed=0)
            sampler = trainer.sampler()
        trainer.forward_backward([datum(sampler, 1.0)], LossSpec())
        trainer.optim_step(OPTIMIZE)
        results.append(asyncio.run(trainer.sampler().logprobs(PROMPT)))
        backend.close()
    assert results[0] == pytest.approx(results[1], abs=1e-4)


def test_a_deleted_checkpoint_is_gone_from_the_service(
    backend: TrioBackend, trainer: TrioTrainer, service: Service
) -> None:
    state, weights, other = trainer.save_state("a"), trainer.save_sampler_weights("a"), trainer.save_state("b")
    backend.delete(state)
    assert set(service.checkpoints) == {weights, other}
    backend.delete(weights)
    assert set(service.checkpoints) == {other}
    # What is gone already, on its own or with its run, is no error, and nothing else is taken for it.
    backend.delete(state)
    backend.delete("trio://no-such-run/training_state/b")
    assert set(service.checkpoints) == {other}
    for wrong in ("local://run/training_state/b", "trio://run/b"):
        with pytest.raises(CheckpointError):
            backend.delete(wrong)
    backend.trainer(TrainingStart(state=other), lora_rank=0, seed=0).sampler()


def test_a_checkpoint_that_cannot_be_deleted_says_so(
    backend: TrioBackend, trainer: TrioTrainer, service: Service
) -> None:
    state = trainer.save_state("a")
    service.faults.answer("DELETE .*/checkpoints/", 403, "forbidden", "not yours")
    with pytest.raises(BackendError, match=f"deleting {state}"):
        backend.delete(state)
    assert state in service.checkpoints


def test_it_says_what_it_can_do(backend: TrioBackend) -> None:
    can = backend.capabilities(MODEL)
    assert can.billed
    assert can.trains
    assert not can.full_finetuning
    assert not can.saves_every_update
    # PyTRIO gives logprobs at temperature 1, whatever it sampled with.
    assert not can.behaviour_logprobs


def test_the_longest_sequence_is_what_the_service_says(server: TrioServer, service: Service) -> None:
    service.models[0] = Model(MODEL, FOLDER, max_seq_len=9000, max_tokens_per_request=8000)
    backend = TrioBackend(max_in_flight=1)
    assert backend.capabilities(MODEL).max_sequence_tokens == 8000
    assert backend.capabilities("another").max_sequence_tokens is None
    trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)
    long_T = np.zeros(8001, np.int32)
    too_long = Datum(long_T, long_T, long_T == 0, long_T.astype(np.float32), long_T.astype(np.float32))
    with pytest.raises(BackendError, match=r"at most 8000 tokens.*--max-trajectory-tokens"):
        trainer.forward_backward([too_long], LossSpec())
    backend.close()


# --- what can be refused before anything starts


def test_no_credentials_names_both_ways_on(server: TrioServer) -> None:
    pytrio.configure(api_key="")
    with pytest.raises(UsageError, match=r"trio login.*--backend local"):
        TrioBackend(max_in_flight=1)


def test_a_wrong_key_is_not_repeated_even_if_the_service_does(server: TrioServer, service: Service) -> None:
    pytrio.configure(api_key="sk-very-secret")
    service.faults.answer("verify", 401, "unauthorized", "no such key: sk-very-secret")
    with pytest.raises(BackendError, match="does not accept the API key") as raised:
        TrioBackend(max_in_flight=1)
    assert "sk-very-secret" not in str(raised.value)


def test_an_unknown_base_model_names_those_there_are(backend: TrioBackend) -> None:
    with pytest.raises(UsageError, match=r"choose --base-model from Qwen/Qwen3\.5-4B$"):
        backend.trainer(TrainingStart(base_model="Qwen/Qwen3-8B"), lora_rank=8, seed=0)
    with pytest.raises(UsageError, match=r"from Qwen/Qwen3-8B, Qwen/Qwen3\.5-4B$"):
        backend.sampler("Qwen/Qwen9-900B")


def test_a_rank_that_pytrio_does_not_train(backend: TrioBackend) -> None:
    with pytest.raises(UsageError, match="4 to 64"):
        backend.trainer(TrainingStart(base_model=MODEL), lora_rank=128, seed=0)


def test_checkpoints_that_are_wrong_or_not_there(backend: TrioBackend, trainer: TrioTrainer) -> None:
    state, weights = trainer.save_state("s"), trainer.save_sampler_weights("w")
    with pytest.raises(CheckpointError, match="Saved state:"):
        backend.trainer(TrainingStart(state=weights), lora_rank=0, seed=0)
    with pytest.raises(CheckpointError, match="Saved sampler weights:"):
        backend.sampler(MODEL, state)
    for missing in (
        lambda: backend.trainer(TrainingStart(state=state + "x"), lora_rank=0, seed=0),
        lambda: backend.trainer(TrainingStart(weights=state + "x"), lora_rank=0, seed=0),
        lambda: backend.sampler(MODEL, weights + "x"),
    ):
        with pytest.raises(CheckpointError, match="no checkpoint"):
            missing()
    with pytest.raises(CheckpointError, match="--backend local"):
        backend.sampler(MODEL, "local://run/sampler_weights/w")
    with pytest.raises(CheckpointError, match="not a checkpoint URI"):
        backend.trainer(TrainingStart(state="trio:/run/training_state"), lora_rank=0, seed=0)


def test_a_service_that_is_not_there_is_given_up_on_before_anything_starts(
    server: TrioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trio, "START_PATIENCE_S", 0.2)
    server.stop()
    with pytest.raises(BackendError, match=r"does not answer.*PYTRIO_BASE_URL"):
        TrioBackend(max_in_flight=1)


def test_no_balance_at_the_start(server: TrioServer, service: Service) -> None:
    service.balance = 0
    backend = TrioBackend(max_in_flight=1)
    with pytest.raises(BalanceError, match="add credit"):
        backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)
    with pytest.raises(BalanceError, match="add credit"):
        backend.sampler(MODEL)
    backend.close()


# --- what goes wrong in the middle


def test_balance_that_ends_in_mid_run_still_lets_the_last_weights_be_saved(
    backend: TrioBackend, trainer: TrioTrainer, service: Service
) -> None:
    sampler = trainer.sampler()
    data = [datum(sampler, 1.0)]
    service.balance = 0
    with pytest.raises(BalanceError):
        sample(sampler)
    with pytest.raises(BalanceError, match="last saved state"):
        trainer.forward_backward(data, LossSpec())
    state = trainer.save_state("when-the-money-ran-out")
    with pytest.raises(BackendError, match="gradient"):
        trainer.optim_step(OPTIMIZE)
    assert service.ledger.optimizer_steps == []
    service.balance = None
    go_on = backend.trainer(TrainingStart(state=state), lora_rank=0, seed=0)
    go_on.forward_backward(data, LossSpec())
    go_on.optim_step(OPTIMIZE)


def test_a_lost_part_of_a_batch_ends_the_run_without_a_step(server: TrioServer, service: Service) -> None:
    service.models[0] = Model(MODEL, FOLDER, max_batch_size=1)
    backend = TrioBackend(max_in_flight=1)
    trainer = backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)
    sampler = trainer.sampler()
    data = [datum(sampler, advantage) for advantage in (1.0, -1.0, 1.0)]
    service.faults.fail_event("trainer.forward_backward", "out_of_memory", "CUDA out of memory")
    with pytest.raises(BackendError, match="out of memory"):
        trainer.forward_backward(data, LossSpec())
    with pytest.raises(BackendError, match="last saved state"):
        trainer.optim_step(OPTIMIZE)
    assert service.ledger.optimizer_steps == []
    backend.close()


def test_after_a_step_of_unknown_outcome_nothing_is_saved_as_if_it_were_known(
    trainer: TrioTrainer, service: Service
) -> None:
    trainer.forward_backward([datum(trainer.sampler(), 1.0)], LossSpec())
    service.faults.fail_event("trainer.optimize_step", "internal_error", "worker lost")
    with pytest.raises(BackendError, match="worker lost"):
        trainer.optim_step(OPTIMIZE)
    for use in (lambda: trainer.save_state("x"), lambda: trainer.save_sampler_weights("x"), trainer.sampler):
        with pytest.raises(BackendError, match="last saved state"):
            use()


def test_a_minute_without_the_service_is_ridden_out_and_said(
    server: TrioServer,
    trainer: TrioTrainer,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trio, "NOTICE_S", 0.05)
    caplog.set_level(logging.WARNING)
    sampler = trainer.sampler()
    data = [datum(sampler, 1.0)]
    said = threading.Event()
    monkeypatch.setattr(trio.log, "warning", lambda *_: said.set())

    def come_back_once_it_was_said() -> None:
        said.wait(30)
        server.start()

    for work in (
        lambda: trainer.forward_backward(data, LossSpec()),
        lambda: trainer.optim_step(OPTIMIZE),
        lambda: sample(sampler),
        trainer.sampler,
    ):
        said.clear()
        server.stop()
        back = threading.Thread(target=come_back_once_it_was_said)
        back.start()
        work()
        back.join()
        assert said.is_set()
    assert service.ledger.check_training() == 1
    assert len(service.ledger.optimizer_steps) == 1


EVERYTHING: dict[str, Callable[[TrioBackend], object]] = {
    "GET .*/api-key/verify": lambda backend: TrioBackend(max_in_flight=1).close(),
    "POST .*/service-sessions$": lambda backend: TrioBackend(max_in_flight=1).close(),
    "POST .*/training-runs$": lambda backend: backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0),
    "POST .*/sampling-runs$": lambda backend: backend.sampler(MODEL),
    "POST .*/sample$": lambda backend: sample(backend.sampler(MODEL)),
    "POST .*/v1/events$": lambda backend: backend.trainer(
        TrainingStart(base_model=MODEL), lora_rank=8, seed=0
    ).save_state("a"),
    "GET .*/v1/events/": lambda backend: backend.trainer(
        TrainingStart(base_model=MODEL), lora_rank=8, seed=0
    ).save_state("a"),
    "GET .*/checkpoints": lambda backend: backend.delete("trio://run/training_state/a"),
    "GET .*/models$": lambda backend: backend.capabilities(MODEL),
}


@pytest.mark.parametrize("pattern", EVERYTHING)
@pytest.mark.parametrize("trouble", ["503", "dropped"])
def test_passing_trouble_with_any_call_is_not_noticed(
    backend: TrioBackend, service: Service, pattern: str, trouble: str
) -> None:
    if trouble == "503":
        service.faults.answer(pattern, 503, "service_unavailable", times=2)
    else:
        service.faults.drop(pattern, times=2)
    EVERYTHING[pattern](backend)


def test_no_free_trainer_is_waited_for(backend: TrioBackend, service: Service) -> None:
    service.faults.at_capacity(times=3)
    backend.trainer(TrainingStart(base_model=MODEL), lora_rank=8, seed=0)


def test_expired_credentials_are_renewed(trainer: TrioTrainer, service: Service) -> None:
    sampler = trainer.sampler()
    service.expire_credentials()
    sample(sampler)
    service.expire_credentials()
    trainer.save_state("a")


def test_credentials_about_to_expire_are_renewed_before_they_do(server: TrioServer, service: Service) -> None:
    service.credentials_last_s = 60
    backend = TrioBackend(max_in_flight=1)
    sample(backend.sampler(MODEL))
    assert any(request.endswith("/renew") for request in service.ledger.requests)
    backend.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_sample_that_broke_off_is_sampled_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(trio, "FIRST_RESAMPLE_DELAY_S", 0.01)
    with TrioServer(service, streamed=streamed) as server:
        pytrio.configure(base_url=server.url, api_key=API_KEY)
        backend = TrioBackend(max_in_flight=1)
        sampler = backend.sampler(MODEL)
        service.faults.cut("/sample$", times=2)
        assert sample(sampler).completions[0].tokens == tuple(service.ledger.samples[-1].tokens)
        assert len(service.ledger.samples) == 3
        service.faults.cut("/sample$", times=ALWAYS)
        with pytest.raises(SamplingError):
            sample(sampler)
        backend.close()


def test_one_refused_request_fails_alone(backend: TrioBackend, service: Service) -> None:
    sampler = backend.sampler(MODEL)
    service.faults.answer("/sample$", 400, "validation_failed", "prompt too long")
    with pytest.raises(SamplingError, match="prompt too long"):
        sample(sampler)
    sample(sampler)


def test_a_key_that_is_revoked_in_mid_run_ends_the_run(backend: TrioBackend, service: Service) -> None:
    sampler = backend.sampler(MODEL)
    service.api_keys.clear()
    service.expire_credentials()
    with pytest.raises(BackendError, match="trio login") as raised:
        sample(sampler)
    assert not isinstance(raised.value, SamplingError)
    assert API_KEY not in str(raised.value)


def test_a_service_that_forgot_its_runs_says_where_to_go_on(
    backend: TrioBackend, trainer: TrioTrainer, service: Service
) -> None:
    data = [datum(trainer.sampler(), 1.0)]
    state = trainer.save_state("a")
    service.forget_runs()
    with pytest.raises(AlfworldRLError, match="no training run"):
        trainer.forward_backward(data, LossSpec())
    with pytest.raises(AlfworldRLError, match="last saved state"):
        trainer.forward_backward(data, LossSpec())
    go_on = backend.trainer(TrainingStart(state=state), lora_rank=0, seed=0)
    go_on.forward_backward(data, LossSpec())


# --- how it ends

DYING = """
import sys
hook = sys.excepthook
from alfworld_rl.backends.trio import TrioBackend
from alfworld_rl.types import TrainingStart
backend = TrioBackend(max_in_flight=1)
trainer = backend.trainer(TrainingStart(base_model={model!r}), lora_rank=8, seed=0)
trainer.save_state("a")
assert sys.excepthook is hook, "the SDK took over the reporting of errors"
print("open", flush=True)
sys.stdin.readline()
{ending}
"""


@pytest.mark.parametrize("ending", ["", "raise KeyboardInterrupt", "backend.close()"])
def test_a_process_ends_though_the_service_is_dead(server: TrioServer, tmp_path: Path, ending: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", DYING.format(model=MODEL, ending=ending)],
        env={
            "PATH": "",
            "HOME": str(tmp_path),
            "PYTRIO_BASE_URL": server.url,
            "PYTRIO_API_KEY": API_KEY,
            "PYTHONPATH": ":".join(sys.path),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    server.stop()
    try:
        # The SDK alone would go on for 15 minutes.
        _, errors = process.communicate("\n", timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("the process hangs")
    assert (process.returncode == 0) is not ending.startswith("raise")
    assert API_KEY not in errors

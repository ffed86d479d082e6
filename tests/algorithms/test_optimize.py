"""One update against a trainer that records what it is asked."""

import numpy as np
import pytest

from alfworld_rl.algorithms.optimize import optimize
from alfworld_rl.backends.base import BackendError
from alfworld_rl.types import AdamParams, Datum, LossSpec


def datum(number, tokens=3):
    return Datum(
        tokens_T=np.arange(number, number + tokens, dtype=np.int32),
        targets_T=np.arange(number + 1, number + tokens + 1, dtype=np.int32),
        mask_T=np.arange(tokens) > 0,
        logprobs_T=np.where(np.arange(tokens) > 0, -1.0, 0).astype(np.float32),
        advantages_T=np.where(np.arange(tokens) > 0, 0.5, 0).astype(np.float32),
    )


def update(trainer, data, *, seed_path=(1, 5), **options):
    return optimize(trainer, data, LossSpec(), AdamParams(), seed_path=seed_path, **options)


class RecordingTrainer:
    def __init__(self, results=None):
        self.calls = []
        self.results = results or (lambda data: {"loss_sum": 1.0, "loss_mean": 0.5, "token_count": 2.0})

    def forward_backward(self, data, loss):
        self.calls.append(("gradient", [int(one.tokens_T[0]) for one in data], loss))
        return self.results(data)

    def optim_step(self, adam):
        self.calls.append(("step", adam))
        return {"grad_norm": float(len(self.calls))}


def test_the_documents_recipe_is_one_gradient_and_one_step():
    trainer = RecordingTrainer()
    done = update(trainer, [datum(1), datum(2, 5)])
    assert trainer.calls == [("gradient", [1, 2], LossSpec("ppo", 0.8, 1.2)), ("step", AdamParams())]
    assert (done.optimizer_steps, done.trained_tokens, done.skipped) == (1, 8, False)
    assert done.metrics == {
        "loss_sum": 1.0, "loss_mean": 0.5, "token_count": 2.0, "grad_norm": 2.0, "learning_rate": 1e-6,
    }  # fmt: skip


def test_nothing_is_sent_when_nothing_is_left_to_learn_from():
    trainer = RecordingTrainer()
    assert update(trainer, []).skipped
    assert trainer.calls == []


def test_a_failed_gradient_is_never_stepped_on():
    def fails(data):
        raise BackendError("the service lost the gradient")

    for results in (fails, lambda data: {"loss_sum": float("nan"), "loss_mean": float("nan"), "token_count": 2.0}):
        trainer = RecordingTrainer(results)
        with pytest.raises(BackendError, match=r"lost the gradient|not a finite number"):
            update(trainer, [datum(1)])
        assert [call[0] for call in trainer.calls] == ["gradient"]


def test_epochs_and_minibatches_see_every_datum_once_an_epoch():
    trainer = RecordingTrainer()
    data = [datum(number) for number in range(10)]
    done = update(trainer, data, epochs=3, minibatches=4)
    batches = [call[1] for call in trainer.calls if call[0] == "gradient"]
    assert [call[0] for call in trainer.calls] == ["gradient", "step"] * 12
    assert [len(batch) for batch in batches] == [3, 3, 2, 2] * 3
    epochs = [[one for batch in batches[start : start + 4] for one in batch] for start in (0, 4, 8)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 3
    assert epochs[0] != epochs[1]
    assert done.optimizer_steps == 12
    again = RecordingTrainer()
    update(again, data, epochs=3, minibatches=4)
    assert again.calls == trainer.calls
    other = RecordingTrainer()
    update(other, data, epochs=3, minibatches=4, seed_path=(1, 6))
    assert other.calls != trainer.calls


def test_more_minibatches_than_data_is_no_empty_step():
    trainer = RecordingTrainer()
    update(trainer, [datum(1), datum(2)], minibatches=5)
    assert sorted(call[1] for call in trainer.calls if call[0] == "gradient") == [[1], [2]]


def test_metrics_are_means_over_tokens():
    # Two trained tokens in the first minibatch, four in the second.
    by_size = {3: {"clip_fraction": 0.0, "approx_kl": 0.3}, 5: {"clip_fraction": 0.6, "approx_kl": 0.0}}
    trainer = RecordingTrainer(lambda data: by_size[len(data[0].tokens_T)])
    done = update(trainer, [datum(1), datum(2, 5)], minibatches=2)
    assert done.metrics["clip_fraction"] == pytest.approx(0.4)
    assert done.metrics["approx_kl"] == pytest.approx(0.1)
    assert done.metrics["grad_norm"] == 3.0


def test_maxima_stay_maxima_and_counts_are_sums():
    told = [
        {"loss_sum": 4.0, "loss_mean": 2.0, "token_count": 2.0, "micro_batches": 3.0, "peak_memory_mb": 100.0,
         "rows:sum": 2.0, "longest:max": 7.0, "entropy:mean": 1.0, "own": 1.0},
        {"loss_sum": 1.0, "loss_mean": 0.25, "token_count": 4.0, "micro_batches": 1.0, "peak_memory_mb": 900.0,
         "rows:sum": 5.0, "longest:max": 4.0, "entropy:mean": 0.25, "own": 0.25},
    ]  # fmt: skip
    for first in (0, 1):
        # Two trained tokens in the first, four in the second, whichever comes first.
        trainer = RecordingTrainer(lambda data: told[len(data[0].tokens_T) == 5])
        data = [datum(1), datum(2, 5)]
        metrics = update(trainer, data[first:] + data[:first], minibatches=2).metrics
        assert {name: metrics[name] for name in told[0]} == pytest.approx(
            {"loss_sum": 5, "loss_mean": 5 / 6, "token_count": 6, "micro_batches": 4, "peak_memory_mb": 900,
             "rows:sum": 7, "longest:max": 7, "entropy:mean": 0.5, "own": 0.5}
        )  # fmt: skip


def test_what_a_step_reports_is_a_mean_over_steps_or_what_its_ending_says():
    class Reporting(RecordingTrainer):
        def optim_step(self, adam):
            super().optim_step(adam)
            steps = len(self.calls) // 2
            return {"grad_norm": steps, "clipped:sum": 1.0, "update:max": 5.0 - steps, "own": steps}

    metrics = update(Reporting(), [datum(1), datum(2, 5)], minibatches=2).metrics
    assert (metrics["grad_norm"], metrics["clipped:sum"], metrics["update:max"], metrics["own"]) == (1.5, 2, 4, 1.5)

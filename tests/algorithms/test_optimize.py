"""One update against a trainer that records what it is asked."""

import numpy as np
import pytest

from alfworld_rl.types import AdamParams, Datum, LossSpec
from alfworld_rl.backends.base import BackendError
from alfworld_rl.learning import LearningSettings, update, with_kl_penalty


def datum(number, tokens=3):
    return Datum(
        tokens_T=np.arange(number, number + tokens, dtype=np.int32),
        targets_T=np.arange(number + 1, number + tokens + 1, dtype=np.int32),
        mask_T=np.arange(tokens) > 0,
        logprobs_T=np.where(np.arange(tokens) > 0, -1.0, 0).astype(np.float32),
        advantages_T=np.where(np.arange(tokens) > 0, 0.5, 0).astype(np.float32),
    )


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
    done = update(trainer, [datum(1), datum(2, 5)], LearningSettings(), number=0, seed=1)
    assert trainer.calls == [("gradient", [1, 2], LossSpec("ppo", 0.8, 1.2)), ("step", AdamParams())]
    assert (done.optimizer_steps, done.trained_tokens, done.skipped) == (1, 8, False)
    assert done.metrics == {
        "loss_sum": 1.0, "loss_mean": 0.5, "token_count": 2.0, "grad_norm": 2.0, "learning_rate": 1e-6,
    }  # fmt: skip


def test_nothing_is_sent_when_nothing_is_left_to_learn_from():
    trainer = RecordingTrainer()
    assert update(trainer, [], LearningSettings(), number=0, seed=1).skipped
    assert trainer.calls == []


def test_a_failed_gradient_is_never_stepped_on():
    def fails(data):
        raise BackendError("the service lost the gradient")

    for results in (fails, lambda data: {"loss_sum": float("nan"), "loss_mean": float("nan"), "token_count": 2.0}):
        trainer = RecordingTrainer(results)
        with pytest.raises(BackendError, match=r"lost the gradient|not a finite number"):
            update(trainer, [datum(1)], LearningSettings(), number=0, seed=1)
        assert [call[0] for call in trainer.calls] == ["gradient"]


def test_epochs_and_minibatches_see_every_datum_once_an_epoch():
    trainer = RecordingTrainer()
    settings = LearningSettings(epochs=3, minibatches=4)
    data = [datum(number) for number in range(10)]
    done = update(trainer, data, settings, number=5, seed=1)
    batches = [call[1] for call in trainer.calls if call[0] == "gradient"]
    assert [call[0] for call in trainer.calls] == ["gradient", "step"] * 12
    assert [len(batch) for batch in batches] == [3, 3, 2, 2] * 3
    epochs = [[one for batch in batches[start : start + 4] for one in batch] for start in (0, 4, 8)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 3
    assert epochs[0] != epochs[1]
    assert done.optimizer_steps == 12
    again = RecordingTrainer()
    update(again, data, settings, number=5, seed=1)
    assert again.calls == trainer.calls


def test_more_minibatches_than_data_is_no_empty_step():
    trainer = RecordingTrainer()
    update(trainer, [datum(1), datum(2)], LearningSettings(minibatches=5), number=0, seed=1)
    assert sorted(call[1] for call in trainer.calls if call[0] == "gradient") == [[1], [2]]


def test_metrics_are_means_over_tokens():
    # Two trained tokens in the first minibatch, four in the second.
    by_size = {3: {"clip_fraction": 0.0, "approx_kl": 0.3}, 5: {"clip_fraction": 0.6, "approx_kl": 0.0}}
    trainer = RecordingTrainer(lambda data: by_size[len(data[0].tokens_T)])
    done = update(trainer, [datum(1), datum(2, 5)], LearningSettings(minibatches=2), number=0, seed=1)
    assert done.metrics["clip_fraction"] == pytest.approx(0.4)
    assert done.metrics["approx_kl"] == pytest.approx(0.1)
    assert done.metrics["grad_norm"] == 3.0


def test_the_learning_rate_rises_linearly_and_stays():
    settings = LearningSettings(adam=AdamParams(learning_rate=1.0), warmup_steps=3)
    assert [settings.learning_rate(number) for number in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert LearningSettings(adam=AdamParams(learning_rate=1.0)).learning_rate(0) == 1.0
    trainer = RecordingTrainer()
    update(trainer, [datum(1)], settings, number=1, seed=1)
    assert trainer.calls[1] == ("step", AdamParams(learning_rate=0.5))


async def test_the_kl_penalty_pulls_back_to_the_reference():
    class Reference:
        async def logprobs(self, tokens):
            # Sampled at -1: the reference finds the token 5 likelier, all others less likely.
            return [0.0] + [-0.5 if token == 5 else -3.0 for token in tokens[1:]]

    before = [datum(3), datum(10)]
    after, kl = await with_kl_penalty(before, Reference(), 0.1)
    # Excess of datum(3), targets 4, 5, 6 with 4 not written: -0.5 and 2; of the other: 2 and 2.
    assert after[0].advantages_T.tolist() == pytest.approx([0, 0.5 + 0.05, 0.5 - 0.2])
    assert after[1].advantages_T.tolist() == pytest.approx([0, 0.5 - 0.2, 0.5 - 0.2])
    assert after[0].advantages_T.dtype == np.float32
    assert kl == pytest.approx((-0.5 + 2 + 2 + 2) / 4)
    assert before[0].advantages_T.tolist() == [0, 0.5, 0.5]


def test_settings_that_cannot_be_are_told_all_at_once():
    assert LearningSettings().problems() == []
    bad = LearningSettings(
        advantage="best", loss=LossSpec("cross_entropy", 1.1, 0.9), adam=AdamParams(learning_rate=0), epochs=0,
        minibatches=0, warmup_steps=-1, kl_coef=float("nan"),
    )  # fmt: skip
    assert len(bad.problems()) == 8

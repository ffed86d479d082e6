"""Training through the Tinker API."""

import contextlib
import logging
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alfworld_rl.backends.base import BackendError, Checkpoint
from alfworld_rl.backends.batch import loss_metrics, total_weight
from alfworld_rl.backends.tinker.data import Row, rows
from alfworld_rl.backends.tinker.sampler import TinkerSampler
from alfworld_rl.backends.tinker.service import Service
from alfworld_rl.backends.tinker.tokenizers import Vocabulary
from alfworld_rl.types import AdamParams, Datum, LossSpec, Metrics, Tokenizer

log = logging.getLogger(__name__)

SCHEME = "tinker"
_TEMPORARY = re.compile(r"ss\d+_seq\d+")  # SkyRL's name for weights that were saved for a sampler alone


class TinkerTrainer:
    """One model on the server.

    A gradient that failed is never stepped with: after a failed `forward_backward` only the weights of the last step
    can still be saved and sampled from; after a failed `optim_step`, whose outcome nobody knows, not even those.
    """

    def __init__(self, service: Service, client: Any, vocabulary: Vocabulary) -> None:
        self._service = service
        self._client = client
        self._vocabulary = vocabulary
        self.run = str(client.model_id)
        self._hosted = service.connection.hosted
        self._steps = 0
        self._states: dict[str, int] = {}  # names of saved states, and the steps they were saved after
        self._saved: set[str] = set()  # names of saved sampler weights
        self._temporary: set[str] = set()
        self._samplers = 0  # counts those opened and steps: only the last one opened since the last step may sample
        self._sequences = 0  # of the first forward_backward since the last step
        self._gradient_lost = False
        self._weights_unknown = False
        self._said_unclipped = False

    @property
    def tokenizer(self) -> Tokenizer:
        return self._vocabulary.tokenizer

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec) -> Metrics:
        """See `base.Trainer`. The loss is computed from the logprobs that the server returns: SkyRL returns no metrics.

        Cross-entropy on a server of one's own costs a forward pass more. Its weights are not sent as such, since
        SkyRL's JAX engine divides them out in each sequence; instead the same gradient is that of importance sampling
        with the ratio at 1, for which the logprobs of the weights as they are have to be known first.

        Calls before one step add up; on SkyRL's JAX engine to a multiple of their sum, which AdamW does not feel.
        """
        self._require(weights=True, gradient=True)
        data = [datum for datum in data if datum.mask_T.any()]
        divisor = total_weight(data, loss)
        # A second call joins the count of sequences that the JAX engine divides by: all count by the first one's.
        self._sequences = self._sequences or len(data)
        send = loss
        try:
            if loss.name == "cross_entropy" and not self._hosted:
                before = self._pass(self._client.forward, self._rows(data, divisor), LossSpec("importance_sampling"))
                data = [_at_ratio_1(datum, new) for datum, new in zip(data, before, strict=True)]
                send = LossSpec("importance_sampling")
            logprobs = self._pass(self._client.forward_backward, self._rows(data, divisor), send)
        except BaseException:
            self._gradient_lost = True
            raise
        return loss_metrics(data, logprobs, loss, divisor)

    def _rows(self, data: Sequence[Datum], divisor: float) -> list[Row]:
        return rows(data, divisor, weighted=not self._hosted, sequences=self._sequences)

    def _pass(self, call: Callable[..., Any], sent: Sequence[Row], loss: LossSpec) -> list[NDArray[np.float64]]:
        """The logprobs of all targets, from one pass of the server over `sent`."""
        config = None
        if loss.name in ("ppo", "cispo"):
            config = {"clip_low_threshold": loss.clip_low, "clip_high_threshold": loss.clip_high}
        future = call([self._datum(row, loss) for row in sent], loss.name, config)
        outputs = self._service.run(future, "forward_backward").loss_fn_outputs
        logprobs = [np.asarray(output["logprobs"].data, np.float64) for output in outputs if "logprobs" in output]
        if [len(one) for one in logprobs] != [len(row.tokens_T) for row in sent]:
            raise BackendError("the server did not return the logprobs of every target; is it one of the Tinker API?")
        if not all(np.isfinite(one).all() for one in logprobs):
            raise BackendError(
                "the server's logprobs are not finite, so its weights cannot be: go on from the last saved state with "
                "a lower learning rate"
            )
        return logprobs

    def _datum(self, row: Row, loss: LossSpec) -> Any:
        types = self._service.sdk.types

        def tensor(values: np.ndarray[Any, Any], dtype: str) -> Any:
            return types.TensorData(data=values, dtype=dtype, shape=list(values.shape))

        inputs = {"target_tokens": tensor(row.targets_T, "int64")}
        if loss.name == "cross_entropy":
            inputs["weights"] = tensor(row.advantages_T, "float32")
        else:
            inputs |= {
                "logprobs": tensor(row.logprobs_T, "float32"),
                "advantages": tensor(row.advantages_T, "float32"),
            }
            if row.weights_T is not None:
                inputs["weights"] = tensor(row.weights_T, "float32")
        return types.Datum(model_input=types.ModelInput.from_ints(row.tokens_T.tolist()), loss_fn_inputs=inputs)

    def optim_step(self, adam: AdamParams) -> Metrics:
        """See `base.Trainer`. SkyRL ignores `grad_clip_norm`, which is said once; it tells `grad_norm`."""
        self._require(weights=True, gradient=True)
        if not self._sequences:
            raise BackendError("optim_step has no gradient to apply; call forward_backward first")
        if adam.grad_clip_norm and not self._hosted and not self._said_unclipped:
            self._said_unclipped = True
            log.warning("servers of SkyRL do not clip gradients: --grad-clip-norm has no effect there")
        parameters = self._service.sdk.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.grad_clip_norm,
        )
        self._samplers += 1  # those opened before are of other weights now
        try:
            output = self._service.run(self._client.optim_step(parameters), "optim_step")
        except BaseException:
            self._weights_unknown = True
            raise
        self._sequences = 0
        self._steps += 1
        metrics = {name.rpartition("/")[2].partition(":")[0]: value for name, value in (output.metrics or {}).items()}
        if not math.isfinite(metrics.get("grad_norm", 0.0)):
            self._weights_unknown = True
            raise BackendError(
                "the gradient was not finite and the server has stepped with it: go on from the last saved state with "
                "a lower learning rate"
            )
        return {name: float(value) for name, value in metrics.items() if name == "grad_norm"}

    def abandon(self) -> None:
        """Have the server drop a gradient that no step was taken with, within seconds.

        SkyRL's JAX engine 0.4.0 would leave it to the next model that gets the place of this one.
        """
        if self._sequences and not self._hosted:
            self._sequences = 0
            nothing = self._service.sdk.AdamParams(learning_rate=0.0)
            self._service.briefly(lambda: self._client.optim_step(nothing).result())

    def sampler(self) -> TinkerSampler:
        """See `base.Trainer`.

        On a server of one's own it samples only as long as it is the newest and no step is taken: SkyRL's JAX engine
        keeps one set of weights a model, and sampling from an older save would set back the weights under training.
        """
        self._require(weights=True)
        save = self._client.save_weights_and_get_sampling_client
        client = self._service.call(save, "opening a sampler")
        self._samplers += 1
        number = self._samplers

        def check() -> None:
            if number != self._samplers:
                raise BackendError(
                    "this sampler's weights are no longer on the server, which keeps the newest alone: open another "
                    "one with trainer.sampler() after every optimizer step"
                )

        if not self._hosted:
            self._remove_temporary()
        return TinkerSampler(self._service, client, self._vocabulary, (lambda: None) if self._hosted else check)

    def _remove_temporary(self) -> None:
        """Weights that were saved for the samplers before the newest take room on the server's disk for nothing."""
        with contextlib.suppress(BackendError):  # which is no reason to end a run
            saved = {name for name in self._service.saved(self.run, "sampler_weights") if _TEMPORARY.fullmatch(name)}
            for name in saved & self._temporary:
                self._service.delete(Checkpoint(SCHEME, self.run, "sampler_weights", name))
            self._temporary = saved

    def save_state(self, name: str) -> str:
        """See `base.Trainer`. A name that this model has used already gets a number: the server takes each but once."""
        self._require(weights=True)
        return self._save_state(_free(name, lambda free: free not in self._states))

    def save_sampler_weights(self, name: str) -> str:
        """See `base.Trainer`. On a server of one's own a state of the same name is saved, too, if there is none yet.

        Such a server forgets sampler weights with the model that they belong to; `TinkerBackend.sampler` opens them
        from the state, which it keeps.
        """
        self._require(weights=True)
        name = _free(name, lambda free: free not in self._saved and self._states.get(free, self._steps) == self._steps)
        if not self._hosted and name not in self._states:
            self._save_state(name)
        self._service.run(self._client.save_weights_for_sampler(name), f"saving the sampler weights {name}")
        self._saved.add(name)
        return str(Checkpoint(SCHEME, self.run, "sampler_weights", name))

    def _save_state(self, name: str) -> str:
        self._service.run(self._client.save_state(name), f"saving the state {name}")
        self._states[name] = self._steps
        return str(Checkpoint(SCHEME, self.run, "training_state", name))

    def _require(self, *, weights: bool = False, gradient: bool = False) -> None:
        if weights and self._weights_unknown:
            raise BackendError(
                "nobody knows whether the last step was taken: go on from the last saved state in a new run"
            )
        if gradient and self._gradient_lost:
            raise BackendError("a gradient of this run was lost: go on from the last saved state in a new run")


def _free(name: str, is_free: Callable[[str], bool]) -> str:
    """`name` in the letters that a server takes, with a number where it is taken."""
    accepted = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:200] or "checkpoint"
    numbered = (accepted if number == 1 else f"{accepted}-{number}" for number in count(1))
    return next(candidate for candidate in numbered if is_free(candidate))


def _at_ratio_1(datum: Datum, logprobs: NDArray[np.float64]) -> Datum:
    """The datum as if its tokens had been sampled by the weights as they are."""
    return replace(datum, logprobs_T=logprobs[: len(datum.mask_T)].astype(np.float32))

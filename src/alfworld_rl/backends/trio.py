"""PyTRIO's remote cluster, through its own SDK's clients.

The adapter adds to the SDK what a long, paid run needs and nothing else: requests enough in flight for the
whole batch, errors that say what to do, a word to the person when the service is silent, and a process that
ends within seconds even when the service is dead. Batches are split by the SDK itself, by the limits that the
service reports; every part carries the token count of the whole batch, so the gradient does not change.

The SDK keeps the object that has to be closed to itself; `ServiceClient._runtime` is the one private name that
this file uses (its event loop, its settings and its shutdown), which the exact pin of pytrio makes safe.
"""

import asyncio
import atexit
import importlib
import logging
import math
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from alfworld_rl.backends.base import BackendError, BalanceError, Checkpoint, CheckpointError, SamplingError
from alfworld_rl.backends.batch import loss_metrics, total_weight, trained_tokens
from alfworld_rl.backends.kinds import TRIO
from alfworld_rl.errors import AlfworldRLError, UsageError, running
from alfworld_rl.types import (
    AdamParams,
    Capabilities,
    Completion,
    Datum,
    LossSpec,
    Metrics,
    Sampled,
    SamplingParams,
    Tokenizer,
    TrainingStart,
    Usage,
)

log = logging.getLogger(__name__)

IGNORED_TARGET = -100  # a position that the trainer leaves out of the loss, its mean and its token count

START_PATIENCE_S = 8.0  # a service that does not answer before anything has started
CLOSE_PATIENCE_S = 3.0  # a service that does not answer when there is nothing left to lose
NOTICE_S = 20.0  # how long a call may be silent before the person hears whether the service still answers
SAMPLE_ATTEMPTS = 4
FIRST_RESAMPLE_DELAY_S = 1.0

WAYS_ON = (
    f"log in with `{running('trio login')}` (or set PYTRIO_API_KEY), or run on this machine with `--backend local`"
)


def _sdk() -> Any:
    """Import pytrio without the hook for uncaught exceptions that it installs over ours.

    Late, because it takes a second, and because it reads PYTRIO_* variables and the saved login as it is imported.
    """
    hook = sys.excepthook
    try:
        return importlib.import_module("pytrio")
    except Exception as error:
        raise UsageError(f"pytrio does not start ({_first_line(error)}): correct the PYTRIO_* variables") from error
    finally:
        sys.excepthook = hook


def _first_line(error: BaseException) -> str:
    """What an SDK error says, without the request and the identifiers that it appends."""
    message = str(getattr(error, "message", None) or error or type(error).__name__)
    return (message.splitlines() or [type(error).__name__])[0].rstrip(" .")


class _Service:
    """One session with the service: runs the SDK's coroutines, watches over silence, explains errors."""

    def __init__(self, max_in_flight: int) -> None:
        sdk = _sdk()
        configuration = importlib.import_module("pytrio.config.config").configuration
        patience = configuration.control_retry_timeout_seconds
        sdk.configure(
            sampling_request_max_in_flight=max(max_in_flight, configuration.sampling_request_max_in_flight),
            sampling_request_queue_capacity=max(max_in_flight, configuration.sampling_request_queue_capacity),
            control_retry_timeout_seconds=min(patience, START_PATIENCE_S),
        )
        # `configure` does not know these two. Beside the samples fly events, their polls and heartbeats.
        for limit in ("actor_http_max_connections", "actor_http_max_keepalive_connections"):
            setattr(configuration, limit, max(getattr(configuration, limit), max_in_flight + 16))
        self.sdk = sdk
        self.url = str(configuration.base_url)
        self._secret = str(importlib.import_module("pytrio.config.config").auth_state.api_key)
        self._last_notice = time.monotonic()
        self._notice_lock = threading.Lock()
        self._tokenizers: dict[str, Tokenizer] = {}
        self._closed = False
        try:
            self.client = sdk.ServiceClient()
        except Exception as error:
            raise self.explained(error, "logging in") from error
        finally:
            sdk.configure(control_retry_timeout_seconds=patience)
        self._runtime = self.client._runtime
        self._runtime.configuration.control_retry_timeout_seconds = patience
        # After the SDK's own exit hook, therefore run before it: that one waits 15 minutes for a dead service.
        atexit.register(self.close)

    def run[T](self, call: Callable[[], Coroutine[Any, Any, T]], doing: str) -> T:
        """Run a coroutine of the SDK on the SDK's loop and wait for it, however long the service takes."""
        if self._closed:
            raise BackendError(f"the session with PyTRIO is closed, so {doing} is not possible")
        future = self._runtime.event_loop.run_coroutine_threadsafe(call())
        try:
            while True:
                try:
                    return cast(T, future.result(timeout=NOTICE_S))
                except TimeoutError:
                    if future.done():
                        raise
                    self.notice()
        except Exception as error:
            raise self.explained(error, doing) from error
        finally:
            future.cancel()

    async def watched[T](self, call: Awaitable[T]) -> T:
        """Await a call of the SDK; says so when the service has stopped answering meanwhile."""
        task = asyncio.ensure_future(call)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=NOTICE_S)
                if done:
                    return task.result()
                await asyncio.to_thread(self.notice)
        finally:
            task.cancel()

    def notice(self) -> None:
        """Warn, at most once every NOTICE_S however many calls wait, if the service does not answer.

        The SDK retries in silence for 15 minutes, which from outside cannot be told from slow work.
        """
        with self._notice_lock:
            if time.monotonic() - self._last_notice < NOTICE_S:
                return
            self._last_notice = time.monotonic()
        import httpx  # the SDK's own client, so proxies are treated alike

        try:
            status = httpx.head(self.url, timeout=5).status_code
            silence = "" if status < 500 else f"HTTP {status}"
        except httpx.HTTPError as error:
            silence = _first_line(error)
        if silence:
            log.warning(
                "PyTRIO at %s does not answer (%s); trying again for up to 15 minutes, Ctrl-C gives up",
                self.url,
                silence,
            )

    def tokenizer(self, client: Any) -> Tokenizer:
        """The tokenizer of a client's model, loaded once: every update makes a new sampling client."""
        if client.model_id not in self._tokenizers:
            try:
                self._tokenizers[client.model_id] = client.get_tokenizer()
            except Exception as error:
                raise BackendError(
                    f"the tokenizer of {client.model_id} cannot be loaded ({_first_line(error)}): "
                    "check the connection to the model hub, or put it into the hub's cache"
                ) from error
        return self._tokenizers[client.model_id]

    def explained(self, error: Exception, doing: str) -> AlfworldRLError:
        """One sentence for an error of the SDK: what failed and what to do; never the key."""
        if isinstance(error, AlfworldRLError):
            return error
        code = str(getattr(error, "code", ""))
        status = int(getattr(error, "status_code", 0))
        said = _first_line(error)
        if self._secret:
            said = said.replace(self._secret, "***")
        if code == "billing_insufficient_balance" or status == 402:
            return BalanceError(
                f"PyTRIO's account has no balance left for {doing}: add credit at {self.url}, then go on from the last "
                "saved state"
            )
        if code == "auth.missing_api_key":
            return UsageError(f"no PyTRIO credentials: {WAYS_ON}")
        if code == "auth.invalid_config" or code == "auth.read_config_failed":
            return UsageError(f"the saved PyTRIO login cannot be read ({said}): {WAYS_ON}")
        if status in (401, 403) or code in ("unauthorized", "forbidden") or code.startswith("api_key_"):
            return BackendError(f"PyTRIO at {self.url} does not accept the API key while {doing} ({said}): {WAYS_ON}")
        if code == "validation.invalid_lora_rank":
            return UsageError("PyTRIO trains LoRA adapters of rank 4 to 64: set --lora-rank to one of these")
        if code in ("validation.training_sample_too_long", "validation.training_sample_too_large"):
            details = getattr(error, "details", {})
            limit = details.get("max_seq_len") or details.get("max_tokens_per_request")
            return BackendError(f"PyTRIO takes at most {limit} tokens in a sequence: lower --max-trajectory-tokens")
        if code.startswith("checkpoint"):
            return CheckpointError(
                f"PyTRIO refused the checkpoint while {doing} ({said}): use a URI that a run printed"
            )
        if code == "sdk.compatibility_blocked":
            return BackendError(f"PyTRIO no longer serves pytrio {self.sdk.__version__} ({said}): update this project")
        if code == "training.run_broken":
            return BackendError(f"the training run on PyTRIO is broken ({said}): go on from the last saved state")
        if status == 0 and code in ("control.request_failed", "actor.request_failed"):
            return BackendError(
                f"PyTRIO at {self.url} does not answer ({said}): check the network and PYTRIO_BASE_URL, or try later"
            )
        return BackendError(f"PyTRIO failed at {doing}: {said}")

    def close(self) -> None:
        """End the session; within seconds, and without a word, if the service is not there to hear of it."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        runtime = self._runtime
        runtime.configuration.control_retry_timeout_seconds = 0
        runtime.control_client.http_client.timeout = CLOSE_PATIENCE_S
        # A thread, because a request that is already being retried keeps the time limits that it started with.
        closing = threading.Thread(target=runtime.shutdown, name="pytrio-close", daemon=True)
        closing.start()
        closing.join(2 * CLOSE_PATIENCE_S)


class TrioSampler:
    """Samples from one set of weights on PyTRIO."""

    def __init__(self, service: _Service, client: Any) -> None:
        self._service = service
        self._client = client

    @property
    def tokenizer(self) -> Tokenizer:
        return self._service.tokenizer(self._client)

    async def sample(self, prompt: Sequence[int], params: SamplingParams, *, n: int = 1) -> Sampled:
        """See `base.Sampler`. A response that was cut off on its way is sampled again with the same seed."""
        parameters = self._service.sdk.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed,
            stop=list(params.stop) or None,
        )
        response = await self._asked(
            lambda: self._client.sample_async(
                prompt=self._service.sdk.ModelInput.from_ints(list(prompt)),
                num_samples=n,
                sampling_params=parameters,
                return_text=False,
            ),
            "sampling",
        )
        completions = tuple(_completion(sequence) for sequence in response.sequences)
        if len(completions) != n:
            raise SamplingError(f"PyTRIO wrote {len(completions)} completions where {n} were asked for")
        written = response.output_tokens or sum(len(completion.tokens) for completion in completions)
        # 0.2.9 does not say how much of a prompt came from a cache.
        return Sampled(completions, Usage(prefill=response.input_tokens or len(prompt), sampled=written))

    async def logprobs(self, tokens: Sequence[int]) -> list[float]:
        """See `base.Sampler`. PyTRIO writes (and bills) one token to get there."""
        prompt = self._service.sdk.ModelInput.from_ints(list(tokens))
        given = await self._asked(lambda: self._client.compute_logprobs_async(prompt), "computing logprobs")
        if len(given) != len(tokens) or any(value is None for value in given[1:]):
            raise SamplingError("PyTRIO left out logprobs of the prompt")
        return [0.0, *(float(value) for value in given[1:])]

    async def _asked(self, call: Callable[[], Awaitable[Any]], doing: str) -> Any:
        delay = FIRST_RESAMPLE_DELAY_S
        for attempt in range(1, SAMPLE_ATTEMPTS + 1):
            try:
                return await self._service.watched(call())
            except Exception as error:
                if attempt < SAMPLE_ATTEMPTS and _cut_off(error):
                    log.info("a response of PyTRIO was cut off; asking again (%s of %s)", attempt, SAMPLE_ATTEMPTS - 1)
                    await asyncio.sleep(delay)
                    delay *= 2
                    continue
                explained = self._service.explained(error, doing)
                if type(explained) is BackendError and not _ends_the_run(error):
                    explained = SamplingError(str(explained))
                raise explained from error
        raise AssertionError("unreachable")


def _cut_off(error: Exception) -> bool:
    """Whether a body broke off or arrived garbled, which the SDK (that retries everything before it) hands on."""
    return getattr(error, "status_code", None) == 0 and getattr(error, "code", "") == "actor.invalid_response"


def _ends_the_run(error: Exception) -> bool:
    """Whether no other request can do better: refused credentials, or 15 minutes without an answer."""
    status, code = getattr(error, "status_code", 0), getattr(error, "code", "")
    return status in (401, 403) or code in ("control.request_failed", "actor.request_failed", "actor.client_closed")


def _completion(sequence: Any) -> Completion:
    tokens, logprobs = tuple(sequence.tokens), tuple(sequence.logprobs)
    if len(tokens) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise SamplingError(f"PyTRIO sent {len(tokens)} tokens with {len(logprobs)} logprobs, or logprobs not finite")
    cut = sequence.stop_reason.lower() in ("length", "max_tokens", "max_length")
    return Completion(tokens, logprobs, "length" if cut else "stop")


class TrioTrainer:
    """One training run on PyTRIO.

    A gradient that failed, in whole or in part, is never stepped with: after a failed `forward_backward` only the
    weights of the last step can still be saved and sampled from; after a failed `optim_step`, whose outcome nobody
    knows, not even those.
    """

    def __init__(self, service: _Service, client: Any) -> None:
        self._service = service
        self._client = client
        self._gradient_lost = False
        self._weights_unknown = False

    @property
    def tokenizer(self) -> Tokenizer:
        return self._service.tokenizer(self._client)

    def forward_backward(self, data: Sequence[Datum], loss: LossSpec) -> Metrics:
        """See `base.Trainer`."""
        self._require(weights=True, gradient=True)
        if not data:
            raise UsageError("forward_backward needs at least one datum")
        if loss.name == "cross_entropy":  # the SDK does not count tokens of no weight, so they are none here either
            data = [replace(datum, mask_T=datum.mask_T & (datum.advantages_T != 0)) for datum in data]
        # Whether the service divides by the tokens or by their weights is the same where the mean of the weights is 1.
        scale = trained_tokens(data) / total_weight(data, loss)
        sdk_data = [self._sdk_datum(datum, loss, scale) for datum in data]
        config = None
        if loss.name in ("ppo", "cispo"):
            config = {"clip_low_threshold": loss.clip_low, "clip_high_threshold": loss.clip_high}
        # The SDK loads the tokenizer inside its event loop to check token ids; loaded before, it is quick there.
        self._service.tokenizer(self._client)

        async def submit() -> Any:
            return await (await self._client.forward_backward_async(sdk_data, loss.name, config))

        try:
            output = self._service.run(submit, "forward_backward")
        except BaseException:
            self._gradient_lost = True
            raise
        metrics = {name: float(value) for name, value in output.metrics.items()}
        if "loss_sum" in metrics:
            metrics["loss_sum"] /= scale
        return {**metrics, **_ratio_metrics(data, output.loss_fn_outputs, loss)}

    def _sdk_datum(self, datum: Datum, loss: LossSpec, scale: float) -> Any:
        sdk, mask_T = self._service.sdk, datum.mask_T

        # Ready-made TensorData: from an array the SDK would import torch just to look whether it is a tensor.
        def tensor(array: np.ndarray[Any, Any], dtype: str) -> Any:
            return sdk.types.TensorData(data=array.tolist(), dtype=dtype, shape=list(array.shape))

        inputs = {"target_tokens": tensor(np.where(mask_T, datum.targets_T, IGNORED_TARGET), "int64")}
        if loss.name == "cross_entropy":
            inputs["weights"] = tensor(np.where(mask_T, datum.advantages_T * scale, 0), "float32")
        else:
            inputs["logprobs"] = tensor(np.where(mask_T, datum.logprobs_T, 0), "float32")
            inputs["advantages"] = tensor(np.where(mask_T, datum.advantages_T, 0), "float32")
        return sdk.Datum(model_input=sdk.ModelInput.from_ints(datum.tokens_T.tolist()), loss_fn_inputs=inputs)

    def optim_step(self, adam: AdamParams) -> Metrics:
        """See `base.Trainer`."""
        self._require(weights=True, gradient=True)
        parameters = self._service.sdk.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.grad_clip_norm,
        )

        async def submit() -> Any:
            return await (await self._client.optim_step_async(parameters))

        try:
            output = self._service.run(submit, "optim_step")
        except BaseException:
            self._weights_unknown = True
            raise
        return {name: float(value) for name, value in output.metrics.items()}

    def sampler(self) -> TrioSampler:
        """See `base.Trainer`. The weights go to a temporary checkpoint, which PyTRIO drops after six hours."""
        self._require(weights=True)
        client = self._service.run(self._client.save_weights_and_get_sampling_client_async, "opening a sampler")
        return TrioSampler(self._service, client)

    def save_state(self, name: str) -> str:
        """See `base.Trainer`. Characters that PyTRIO does not take in a name become '-'."""
        return self._saved(self._client.save_state_async, name, "saving the state")

    def save_sampler_weights(self, name: str) -> str:
        """See `base.Trainer`. Characters that PyTRIO does not take in a name become '-'."""
        return self._saved(self._client.save_weights_for_sampler_async, name, "saving sampler weights")

    def _saved(self, save: Callable[[str], Awaitable[Any]], name: str, doing: str) -> str:
        self._require(weights=True)
        accepted = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "checkpoint"

        async def submit() -> Any:
            return await (await save(accepted))

        return str(self._service.run(submit, doing).path)

    def _require(self, *, weights: bool = False, gradient: bool = False) -> None:
        if weights and self._weights_unknown:
            raise BackendError(
                "nobody knows whether the last step was taken: go on from the last saved state in a new run"
            )
        if gradient and self._gradient_lost:
            raise BackendError("a gradient of this run was lost: go on from the last saved state in a new run")


def _ratio_metrics(data: Sequence[Datum], outputs: Sequence[Any], loss: LossSpec) -> dict[str, float]:
    """How far the policy has moved from the one that sampled, where the service returns the new logprobs."""
    logprobs = [np.asarray(output["logprobs"].data, dtype=np.float64) for output in outputs if "logprobs" in output]
    if [new.shape for new in logprobs] != [datum.mask_T.shape for datum in data]:
        return {}
    told = loss_metrics(data, logprobs, loss, total_weight(data, loss))
    return {name: value for name, value in told.items() if name in ("clip_fraction", "approx_kl")}


class TrioBackend:
    """Opens trainers and samplers on PyTRIO. Raises at once, and in seconds, when the service cannot be used.

    `max_in_flight` is the number of trajectories that sample at the same time.
    """

    def __init__(self, *, max_in_flight: int) -> None:
        self._service = _Service(max_in_flight)

    def capabilities(self, base_model: str) -> Capabilities:
        """See `base.Backend`. The longest sequence is what the service both samples and trains on."""
        limits: list[int | None] = []
        for model in self._models():
            if model.model_name == base_model:
                limits += [model.max_context_length, model.training.max_seq_len, model.sampling.max_seq_len]
                limits += [model.training.max_tokens_per_request]
        longest = min((limit for limit in limits if limit is not None), default=None)
        return replace(TRIO, max_sequence_tokens=longest)

    def trainer(self, start: TrainingStart, *, lora_rank: int, seed: int) -> TrioTrainer:
        """See `base.Backend`. Raises UsageError, naming the models there are, for one that PyTRIO does not know.

        PyTRIO keeps the seed of the run that a checkpoint comes from.
        """
        client, service = self._service.client, self._service
        if (base_model := start.base_model) is not None:
            create = client.create_lora_training_client_async
            opened = self._opened(lambda: create(base_model, rank=lora_rank, seed=seed), base_model, "training")
            return TrioTrainer(service, opened)
        if (state := start.state) is not None:
            _require_kind(state, "training_state", "to go on with training, use the URI after `Saved state:`")
            resume = client.create_training_client_from_state_with_optimizer_async
            return TrioTrainer(service, self._from_checkpoint(lambda: resume(state), state))
        weights = str(start.weights)
        _require_kind(weights)
        begin = client.create_training_client_from_state_async
        return TrioTrainer(service, self._from_checkpoint(lambda: begin(weights), weights))

    def sampler(self, base_model: str, weights: str | None = None) -> TrioSampler:
        """See `base.Backend`. Raises UsageError, naming the models there are, for one that PyTRIO does not know."""
        create = self._service.client.create_sampling_client_async
        if weights is None:
            client = self._opened(lambda: create(base_model), base_model, "sampling")
        else:
            _require_kind(weights, "sampler_weights", "to sample, use the URI after `Saved sampler weights:`")
            client = self._from_checkpoint(lambda: create(base_model, weights), weights)
        return TrioSampler(self._service, client)

    def delete(self, uri: str) -> None:
        """See `base.Backend`."""
        _require_kind(uri)
        rest, run = self._service.client.create_rest_client(), Checkpoint.parse(uri).run

        async def delete() -> None:
            try:
                for saved in (await rest.list_checkpoints_async(run)).checkpoints:
                    if saved.path == uri:
                        await rest.delete_checkpoint_async(run, saved.checkpoint_id)
            except Exception as error:
                if getattr(error, "status_code", 0) != 404:  # gone already, or its whole run is
                    raise

        self._service.run(delete, f"deleting {uri}")

    def close(self) -> None:
        """See `base.Backend`."""
        self._service.close()

    def _models(self) -> list[Any]:
        found = self._service.run(self._service.client.get_server_capabilities_async, "listing the models")
        return list(found.supported_models)

    def _opened(self, create: Callable[[], Coroutine[Any, Any, Any]], base_model: str, use: str) -> Any:
        try:
            return self._service.run(create, f"opening {base_model} for {use}")
        except BackendError as error:
            cause = error.__cause__
            if getattr(cause, "code", "") != "model_not_found" and getattr(cause, "status_code", 0) != 404:
                raise
            usable = "training" if use == "training" else "sampling"
            names = sorted(model.model_name for model in self._models() if getattr(model, usable).available)
            there_are = f"choose --base-model from {', '.join(names)}" if names else "it offers none to this account"
            raise UsageError(f"PyTRIO has no base model {base_model!r} for {use}: {there_are}") from cause

    def _from_checkpoint(self, create: Callable[[], Coroutine[Any, Any, Any]], uri: str) -> Any:
        try:
            return self._service.run(create, f"opening {uri}")
        except BackendError as error:
            if isinstance(error, CheckpointError) or getattr(error.__cause__, "status_code", 0) == 404:
                raise CheckpointError(
                    f"PyTRIO has no checkpoint for this at {uri}: use a URI that one of this account's runs printed, "
                    "of the kind that this asks for; it may also have expired"
                ) from error.__cause__
            raise


def _require_kind(uri: str, kind: str | None = None, hint: str = "") -> None:
    checkpoint = Checkpoint.parse(uri)
    if checkpoint.scheme != "trio":
        raise CheckpointError(
            f"{uri} is not PyTRIO's but of the {checkpoint.scheme} backend: add --backend {checkpoint.scheme}"
        )
    if kind is not None and checkpoint.kind != kind:
        raise CheckpointError(f"{uri} is of the kind {checkpoint.kind}, not {kind}: {hint}")

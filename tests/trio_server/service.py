"""The state of the service and what each of its endpoints does. `http.py` carries it over the wire."""

import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from pydantic import BaseModel, ValidationError
from pytrio.protocol.actor.events.codec import decode_payload
from pytrio.protocol.actor.events.event import (
    EVENT_PROTOCOL_VERSION,
    EventAcceptedResponse,
    EventEnvelope,
    EventError,
    EventFailedResponse,
    EventResponse,
    EventRunningResponse,
    EventStatus,
    EventSucceededResponse,
    EventType,
    EventUsage,
)
from pytrio.protocol.actor.events.tensor import WireTensorData
from pytrio.protocol.actor.events.trainer.forward import TrainerForwardBackwardPayload, TrainerForwardDatum
from pytrio.protocol.actor.events.trainer.init_run import TrainerInitRunPayload
from pytrio.protocol.actor.events.trainer.optimize_step import TrainerOptimizeStepPayload
from pytrio.protocol.actor.events.trainer.save import TrainerSavePayload
from pytrio.protocol.actor.model_input import WireEncodedTextChunk, WireModelInput
from pytrio.protocol.actor.sampling_run.sample import ActorSampleResponse, ActorSampleSequence, SampleRequest
from pytrio.protocol.actor.sampling_run.sample import Usage as SampleUsage
from pytrio.protocol.control.actor.credentials import ActorConnectionInfo, ActorJWT
from pytrio.protocol.control.api_key.verify import APIKeyInfo
from pytrio.protocol.control.checkpoint.list import CheckpointListResponse, CheckpointResponse
from pytrio.protocol.control.common import ControlCursor
from pytrio.protocol.control.model.list import ModelInfo, ModelListResponse, ModelRunnerCapability
from pytrio.protocol.control.platform.bootstrap import SDKBootstrapResponse, SDKCompatibilityResponse
from pytrio.protocol.control.sampling_run.create import (
    SamplingRunCreateRequest,
    SamplingRunCreateResponse,
    SamplingRunnerCapability,
)
from pytrio.protocol.control.sampling_run.get import SamplingRunGetResponse
from pytrio.protocol.control.sampling_run.renew import SamplingRunRenewResponse
from pytrio.protocol.control.service_session.close import ServiceSessionCloseRequest
from pytrio.protocol.control.service_session.create import ServiceSessionCreateRequest, ServiceSessionCreateResponse
from pytrio.protocol.control.service_session.get import ServiceSessionGetResponse, ServiceSessionListItemResponse
from pytrio.protocol.control.service_session.list import ServiceSessionListResponse
from pytrio.protocol.control.service_session.renew import ServiceSessionRenewResponse
from pytrio.protocol.control.training_run.create import (
    TrainingRunCreateRequest,
    TrainingRunCreateResponse,
    TrainingRunnerCapability,
)
from pytrio.protocol.control.training_run.find_by_checkpoint_uri import TrainingRunFindByCheckpointURIResponse
from pytrio.protocol.control.training_run.get import TrainingRunGetResponse, TrainingRunParamsResponse
from pytrio.protocol.control.training_run.list import TrainingRunListResponse
from pytrio.protocol.control.training_run.renew import TrainingRunRenewResponse
from pytrio.protocol.control.training_run.update import TrainingRunUpdateRequest, TrainingRunUpdateResponse

from alfworld_rl.backends.base import Checkpoint
from alfworld_rl.types import AdamParams, Datum, LossSpec, SamplingParams
from trio_server.engines import Engine, EngineSampler, EngineTrainer
from trio_server.faults import Faults
from trio_server.ledger import DatumRecord, Ledger, SampleRecord, TrainRecord

API_KEY = "trio-loopback-key"
MODEL = "Qwen/Qwen3.5-4B"
WORKSPACE, USER = "workspace_loopback", "user_loopback"
LONGEST_POLL_S = 20.0
INSUFFICIENT_BALANCE = "billing_insufficient_balance"


@dataclass(frozen=True)
class Model:
    """One entry of the catalogue. `folder` is what clients load the tokenizer from."""

    name: str
    folder: Path
    trains: bool = True
    max_batch_size: int | None = 64
    max_tokens_per_request: int | None = 1 << 20
    max_seq_len: int | None = 32768

    def limits[T: BaseModel](self, kind: type[T]) -> T:
        return kind(
            max_batch_size=self.max_batch_size,
            max_tokens_per_request=self.max_tokens_per_request,
            max_seq_len=self.max_seq_len,
        )


class Refusal(Exception):
    """An error response."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class SavedCheckpoint:
    uri: str
    engine_source: str
    run: "TrainingRun"
    temporary: bool
    step: int
    cuid: str = field(default_factory=lambda: _cuid("ckpt"))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Event:
    envelope: EventEnvelope
    response: EventResponse


@dataclass
class TrainingRun:
    cuid: str
    session: str
    index: int
    model: Model
    rank: int
    seed: int
    source: str = ""
    restore_optimizer: bool = False
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    trainer: EngineTrainer | None = None
    last_index: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    # One worker a run: its events happen one after another, in the order in which they were submitted.
    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="trainer"))


@dataclass
class SamplingRun:
    cuid: str
    session: str
    index: int
    model: Model
    source: str
    sampler: EngineSampler
    created: datetime = field(default_factory=lambda: datetime.now(UTC))


class Service:
    """Accounts, runs, checkpoints and events.

    `balance` is how many tokens, sampled or trained on, the account can still pay for; None: any number.
    """

    def __init__(
        self,
        engine: Engine,
        models: list[Model],
        *,
        api_keys: tuple[str, ...] = (API_KEY,),
        balance: int | None = None,
        credentials_last_s: float = 3600,
    ) -> None:
        self.engine = engine
        self.models = models
        self.api_keys = set(api_keys)
        self.balance = balance
        self.credentials_last_s = credentials_last_s
        self.faults = Faults()
        self.ledger = Ledger()
        self.actor_url = ""
        self.sessions: dict[str, str] = {}
        self.training_runs: dict[str, TrainingRun] = {}
        self.sampling_runs: dict[str, SamplingRun] = {}
        self.checkpoints: dict[str, SavedCheckpoint] = {}
        self.events: dict[str, Event] = {}
        self.telemetry = 0
        self._tokens: set[str] = set()
        self._lock = threading.RLock()
        self._samplers: dict[str, EngineSampler] = {}
        self._trained_steps: dict[str, int] = {}

    # What a test can do to the service.

    def expire_credentials(self) -> None:
        """Every credential that an actor accepted is refused from now on; renewing them works."""
        with self._lock:
            self._tokens.clear()

    def forget_runs(self) -> None:
        """As after a restart that lost what was in memory: checkpoints stay, runs and events are gone."""
        with self._lock:
            for run in self.training_runs.values():
                run.worker.shutdown(wait=False, cancel_futures=True)
            self.training_runs.clear()
            self.sampling_runs.clear()
            self.events.clear()

    def forget_samplers(self) -> None:
        """Needed after `engine` was exchanged for another."""
        with self._lock:
            self._samplers.clear()

    def saved(self, kind: str) -> list[str]:
        """The URIs of the checkpoints of a kind that were saved to stay, in order."""
        return [
            uri
            for uri, checkpoint in self.checkpoints.items()
            if not checkpoint.temporary and Checkpoint.parse(uri).kind == kind
        ]

    # Control plane: JSON.

    def control(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, headers: Mapping[str, str]
    ) -> BaseModel | None:
        if path == "telemetry/event":
            self.telemetry += 1
            return None
        if headers.get("x-api-key", "") not in self.api_keys:
            raise Refusal(401, "unauthorized", "the API key is not valid")
        for route_method, pattern, handler in _CONTROL_ROUTES:
            if route_method == method and (match := pattern.fullmatch(path)):
                data = json.loads(body) if body else {}
                with self._lock:
                    return handler(self, *match.groups(), data=data, query=query)
        raise Refusal(404, "not_found", f"there is no {method} {path}")

    def verify_api_key(self, *, data: Any, query: Any) -> BaseModel:
        return APIKeyInfo(
            api_key_tid="key_loopback",
            api_key_name="loopback",
            user_cuid=USER,
            username="loopback",
            display_name="Loopback",
            workspace_cuid=WORKSPACE,
            workspace_name="loopback",
            workspace_type="PERSONAL",
            expires_at=None,
        )

    def bootstrap(self, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        compatibility = SDKCompatibilityResponse(status="compatible", sdk_version=query["sdk_version"])
        return SDKBootstrapResponse(compatibility=compatibility, notices=[])

    def list_models(self, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        offset, limit = _page(query)
        items = [
            ModelInfo(
                cuid=f"model_{number}",
                alias=model.name,
                model_id=model.name,
                context_length=model.max_seq_len,
                train_available=model.trains,
                sample_available=True,
                trainer=model.limits(ModelRunnerCapability),
                sampler=model.limits(ModelRunnerCapability),
                created_at=_START,
                updated_at=_START,
            )
            for number, model in enumerate(self.models)
        ]
        return ModelListResponse(items=items[offset : offset + limit], total=len(items), limit=limit, offset=offset)

    def create_session(self, *, data: Any, query: Any) -> BaseModel:
        ServiceSessionCreateRequest.model_validate(data)
        cuid = _cuid("session")
        self.sessions[cuid] = "RUNNING"
        return ServiceSessionCreateResponse(
            service_session_cuid=cuid, workspace_cuid=WORKSPACE, status="RUNNING", created_at=datetime.now(UTC)
        )

    def list_sessions(self, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        offset, limit = _page(query)
        items = [
            ServiceSessionListItemResponse(
                service_session_cuid=cuid,
                workspace_cuid=WORKSPACE,
                status=status,
                created_at=_START,
                updated_at=_START,
            )
            for cuid, status in self.sessions.items()
        ]
        cursor = ControlCursor(offset=offset, limit=limit, total=len(items))
        return ServiceSessionListResponse(service_sessions=items[offset : offset + limit], cursor=cursor)

    def get_session(self, cuid: str, *, data: Any, query: Any) -> BaseModel:
        return ServiceSessionGetResponse(
            service_session_cuid=cuid,
            workspace_cuid=WORKSPACE,
            status=self._session(cuid),
            training_run_cuids=[run.cuid for run in self.training_runs.values() if run.session == cuid],
            sampling_run_cuids=[run.cuid for run in self.sampling_runs.values() if run.session == cuid],
            created_at=_START,
            updated_at=_START,
        )

    def renew_session(self, cuid: str, *, data: Any, query: Any) -> BaseModel:
        status = self._session(cuid)
        return ServiceSessionRenewResponse(
            service_session_cuid=cuid, workspace_cuid=WORKSPACE, status=status, updated_at=datetime.now(UTC)
        )

    def close_session(self, cuid: str, *, data: Any, query: Any) -> None:
        self._session(cuid)
        self.sessions[cuid] = ServiceSessionCloseRequest.model_validate(data).status

    def create_training_run(self, session: str, *, data: Any, query: Any) -> BaseModel:
        self._session(session)
        self._require_balance()
        request = TrainingRunCreateRequest.model_validate(data)
        if request.source_checkpoint_uri:
            checkpoint = self._checkpoint(request.source_checkpoint_uri, "training_state")
            model, seed = checkpoint.run.model, checkpoint.run.seed
        else:
            model, seed = self._model(request.base_model, training=True), request.seed or 0
        run = TrainingRun(
            cuid=_cuid("run"),
            session=session,
            index=len(self.training_runs),
            model=model,
            rank=request.lora_rank,
            seed=seed,
            source=request.source_checkpoint_uri,
            restore_optimizer=request.restore_optimizer,
        )
        self.training_runs[run.cuid] = run
        return TrainingRunCreateResponse(
            training_run_cuid=run.cuid,
            service_session_cuid=session,
            workspace_cuid=WORKSPACE,
            status="RUNNING",
            run_index=run.index,
            model_spec_cuid="spec_loopback",
            model_alias=model.name,
            model_id=str(model.folder),
            trainer=model.limits(TrainingRunnerCapability),
            actor=self._actor(),
            actor_jwt=self._jwt(),
            created_at=run.created,
        )

    def update_training_run(self, session: str, cuid: str, *, data: Any, query: Any) -> BaseModel:
        run, request = self._training_run(cuid), TrainingRunUpdateRequest.model_validate(data)
        self._checkpoint(request.source_checkpoint_uri, "training_state")
        run.source, run.restore_optimizer = request.source_checkpoint_uri, request.restore_optimizer
        return TrainingRunUpdateResponse(
            source_checkpoint_uri=run.source,
            restore_optimizer=run.restore_optimizer,
            trainer=run.model.limits(TrainingRunnerCapability),
            actor=self._actor(),
            actor_jwt=self._jwt(),
        )

    def renew_training_run(self, cuid: str, *, data: Any, query: Any) -> BaseModel:
        run = self._training_run(cuid)
        return TrainingRunRenewResponse(
            training_run_cuid=cuid,
            service_session_cuid=run.session,
            workspace_cuid=WORKSPACE,
            actor=self._actor(),
            actor_jwt=self._jwt(),
        )

    def find_training_run(self, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        run = self._checkpoint(query["checkpoint_uri"]).run
        return TrainingRunFindByCheckpointURIResponse(
            base_model=run.model.name,
            lora_rank=run.rank,
            seed=run.seed,
            train_mlp=True,
            train_attn=True,
            train_unembed=True,
        )

    def list_training_runs(self, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        offset, limit = _page(query)
        items = [_run_info(run) for run in self.training_runs.values()]
        cursor = ControlCursor(offset=offset, limit=limit, total=len(items))
        return TrainingRunListResponse(training_runs=items[offset : offset + limit], cursor=cursor)

    def get_training_run(self, cuid: str, *, data: Any, query: Any) -> BaseModel:
        return _run_info(self._training_run(cuid))

    def list_run_checkpoints(self, cuid: str, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        found = [checkpoint for checkpoint in self.checkpoints.values() if checkpoint.run.cuid == cuid]
        if not found:
            self._training_run(cuid)  # refused where there never was one
        return self._listed(found, query)

    def list_checkpoints(self, *, data: Any, query: Mapping[str, str]) -> BaseModel:
        return self._listed(list(self.checkpoints.values()), query)

    def delete_checkpoint(self, cuid: str, *, data: Any, query: Any) -> None:
        uri = next((uri for uri, checkpoint in self.checkpoints.items() if checkpoint.cuid == cuid), None)
        if uri is None:
            raise Refusal(404, "checkpoint_not_found", f"there is no checkpoint {cuid}")
        del self.checkpoints[uri]

    def create_sampling_run(self, session: str, *, data: Any, query: Any) -> BaseModel:
        self._session(session)
        self._require_balance()
        request = SamplingRunCreateRequest.model_validate(data)
        model = self._model(request.base_model, training=False)
        source = request.source_checkpoint_uri
        if source and self._checkpoint(source).run.model != model:
            raise Refusal(400, "validation_failed", f"{source} was not trained from {model.name}")
        run = SamplingRun(
            _cuid("sampling"), session, len(self.sampling_runs), model, source, self._engine_sampler(source)
        )
        self.sampling_runs[run.cuid] = run
        return SamplingRunCreateResponse(
            sampling_run_cuid=run.cuid,
            service_session_cuid=session,
            workspace_cuid=WORKSPACE,
            status="RUNNING",
            run_index=run.index,
            model_spec_cuid="spec_loopback",
            model_alias=model.name,
            model_id=str(model.folder),
            sampler=model.limits(SamplingRunnerCapability),
            actor=self._actor(),
            actor_jwt=self._jwt(),
            created_at=run.created,
        )

    def get_sampling_run(self, cuid: str, *, data: Any, query: Any) -> BaseModel:
        run = self._sampling_run(cuid)
        return SamplingRunGetResponse(
            sampling_run_cuid=cuid,
            service_session_cuid=run.session,
            workspace_cuid=WORKSPACE,
            status="RUNNING",
            base_model=run.model.name,
            model_id=str(run.model.folder),
            alias=run.model.name,
            source_checkpoint_uri=run.source or None,
            created_at=run.created,
            updated_at=run.created,
        )

    def renew_sampling_run(self, cuid: str, *, data: Any, query: Any) -> BaseModel:
        run = self._sampling_run(cuid)
        return SamplingRunRenewResponse(
            sampling_run_cuid=cuid,
            service_session_cuid=run.session,
            workspace_cuid=WORKSPACE,
            actor=self._actor(),
            actor_jwt=self._jwt(),
        )

    # Actor: sampling in JSON, events in MessagePack.

    def authorize_actor(self, headers: Mapping[str, str]) -> None:
        with self._lock:
            if headers.get("authorization", "").removeprefix("Bearer ") not in self._tokens:
                raise Refusal(401, "token_expired", "the credential has expired")

    def sample(self, cuid: str, body: bytes) -> ActorSampleResponse:
        request = SampleRequest.model_validate_json(body)
        with self._lock:
            run = self._sampling_run(cuid)
            self._require_balance()
        prompt = _tokens(request.prompt)
        with self.ledger.lock:
            self.ledger.in_flight += 1
            self.ledger.most_in_flight = max(self.ledger.most_in_flight, self.ledger.in_flight)
        try:
            self.faults.hold_sampling(request.num_samples)
            return self._sampled(run, request, prompt)
        finally:
            with self.ledger.lock:
                self.ledger.in_flight -= 1

    def _sampled(self, run: SamplingRun, request: SampleRequest, prompt: list[int]) -> ActorSampleResponse:
        given: dict[str, Any] = request.sampling_params
        if run.model.max_seq_len is not None and len(prompt) + given["max_tokens"] > run.model.max_seq_len:
            raise Refusal(400, "validation_failed", f"prompt and completion exceed {run.model.max_seq_len} tokens")
        parameters = SamplingParams(
            max_tokens=given["max_tokens"],
            temperature=given.get("temperature", 1.0),
            top_p=given.get("top_p", 1.0),
            seed=given.get("seed", secrets.randbelow(1 << 31)),
            stop=tuple(given.get("stop", ())),
        )
        completions = run.sampler.sample(prompt, request.num_samples, parameters)
        prompt_logprobs: list[float | None] | None = None
        if request.return_prompt_logprobs:
            prompt_logprobs = [None, *run.sampler.logprobs(prompt)[1:]]
        written = sum(len(completion.tokens) for completion in completions)
        with self.ledger.lock:
            self.ledger.prefill_tokens += len(prompt)
        if request.return_token_logprobs:  # else the SDK only wants the logprobs of the prompt
            for completion in completions:
                record = SampleRecord(
                    run.source,
                    np.asarray(prompt, np.int32),
                    np.asarray(completion.tokens, np.int32),
                    np.asarray(completion.logprobs, np.float32),
                )
                self.ledger.add_sample(record)
        self._pay(written)
        return ActorSampleResponse(
            request_id=request.request_id,
            sampling_run=run.cuid,
            sequences=[
                ActorSampleSequence(
                    tokens=list(completion.tokens),
                    logprobs=list(completion.logprobs) if request.return_token_logprobs else [],
                    stop_reason=completion.stop_reason,
                )
                for completion in completions
            ],
            prompt_logprobs=prompt_logprobs,
            usage=SampleUsage(input_tokens=len(prompt), output_tokens=written),
        )

    def submit_event(self, body: bytes) -> EventResponse:
        try:
            envelope = EventEnvelope.model_validate(msgpack.unpackb(body, raw=False))
        except (ValidationError, ValueError) as error:
            raise Refusal(400, "invalid_request_body", str(error)) from error
        with self._lock:
            run = self._training_run(envelope.metadata.run_id)
            if envelope.event_id in self.events:
                raise Refusal(409, "event_exists", f"{envelope.event_id} was submitted before")
            if envelope.metadata.index != run.last_index + 1:
                raise Refusal(409, "event_out_of_order", f"event {run.last_index + 1} of the run is next")
            run.last_index += 1
            common = {"version": EVENT_PROTOCOL_VERSION, "event_id": envelope.event_id, "type": envelope.type}
            event = Event(envelope, EventAcceptedResponse(**common, status=EventStatus.ACCEPTED))
            self.events[envelope.event_id] = event
        run.worker.submit(self._execute, run, event, common)
        return event.response

    def get_event(self, event_id: str, wait_s: float) -> EventResponse:
        with self._lock:
            if event_id not in self.events:
                raise Refusal(404, "event_not_found", f"there is no event {event_id}")
            event = self.events[event_id]
            run = self._training_run(event.envelope.metadata.run_id)
        with run.changed:
            run.changed.wait_for(
                lambda: event.response.status in (EventStatus.SUCCEEDED, EventStatus.FAILED),
                timeout=min(wait_s, LONGEST_POLL_S),
            )
            return event.response

    def _execute(self, run: TrainingRun, event: Event, common: dict[str, Any]) -> None:
        envelope = event.envelope
        event.response = EventRunningResponse(**common, status=EventStatus.RUNNING)
        trained = 0
        try:
            if self.faults.before_event is not None:
                self.faults.before_event(envelope.type.value)
            if (fault := self.faults.next_event_fault(envelope.type.value)) is not None:
                raise Refusal(0, fault.code, fault.message)
            payload = decode_payload(envelope.type, msgpack.packb(envelope.payload))
            match payload:
                case TrainerInitRunPayload():
                    result = self._init(run, payload)
                case TrainerForwardBackwardPayload():
                    result, trained = self._forward(run, envelope, payload)
                case TrainerOptimizeStepPayload():
                    adam = AdamParams(**payload.adam_params.model_dump())
                    metrics = self._trainer(run).optim_step(adam)
                    self.ledger.optimizer_steps.append((run.cuid, payload.adam_params.model_dump()))
                    self._trained_steps[run.cuid] = self._trained_steps.get(run.cuid, 0) + 1
                    result = {"metrics": dict(metrics)}
                case TrainerSavePayload():
                    result = self._save(run, envelope.type, payload)
                case _:
                    result = {}
        except Exception as error:
            code = error.code if isinstance(error, Refusal) else "internal_error"
            usage = EventUsage(input_tokens=0, output_tokens=0)
            response: EventResponse = EventFailedResponse(
                **common, status=EventStatus.FAILED, error=EventError(code=code, message=str(error)), usage=usage
            )
        else:
            usage = EventUsage(input_tokens=trained, output_tokens=0, train_tokens=trained)
            response = EventSucceededResponse(**common, status=EventStatus.SUCCEEDED, result=result, usage=usage)
        with run.changed:
            event.response = response
            run.changed.notify_all()

    def _init(self, run: TrainingRun, payload: TrainerInitRunPayload) -> dict[str, object]:
        lora = payload.lora_config
        source = None
        if payload.checkpoint_uri:
            source = self._checkpoint(payload.checkpoint_uri, "training_state").engine_source
        run.trainer = self.engine.trainer(run.cuid, lora.rank, run.seed, source, payload.load_optimizer)
        return {}

    def _forward(
        self, run: TrainingRun, envelope: EventEnvelope, payload: TrainerForwardBackwardPayload
    ) -> tuple[dict[str, object], int]:
        if envelope.type is EventType.TRAINER_FORWARD:
            raise Refusal(0, "validation_failed", "the loopback service does not do a forward alone")
        if payload.auto_shift:
            raise Refusal(0, "validation_failed", "the loopback service wants its data already shifted")
        self._require_balance()
        model, data = run.model, [_datum(datum) for datum in payload.data]
        tokens = sum(len(datum.tokens_T) for datum in data)
        if (
            len(data) > (model.max_batch_size or len(data))
            or tokens > (model.max_tokens_per_request or tokens)
            or any(len(datum.tokens_T) > (model.max_seq_len or tokens) for datum in data)
        ):
            raise Refusal(0, "validation_failed", "the part exceeds the limits of the model")
        active, total = sum(int(datum.mask_T.sum()) for datum in data), payload.gradient_accumulation
        if not active:
            raise Refusal(0, "validation_failed", "nothing to train on: every target is -100")
        config = payload.loss.config
        loss = LossSpec(
            payload.loss.type,  # type: ignore[arg-type]
            float(config.get("clip_low_threshold", 0.8)),  # type: ignore[arg-type]
            float(config.get("clip_high_threshold", 1.2)),  # type: ignore[arg-type]
        )
        part = self._trainer(run).forward_backward(data, loss, active / total.total_active_tokens)
        self.ledger.add_training(
            TrainRecord(
                run=run.cuid,
                step=envelope.metadata.step,
                loss=payload.loss.type,
                config=dict(config),
                total_samples=total.total_samples,
                total_active_tokens=total.total_active_tokens,
                data=[_record(datum) for datum in payload.data],
            )
        )
        self._pay(tokens)
        outputs: list[dict[str, object]] = [{} for _ in data]
        if part.logprobs is not None:
            outputs = [
                {"logprobs": WireTensorData.from_numpy(logprobs_T).to_wire_value()} for logprobs_T in part.logprobs
            ]
        metrics = {"loss_sum": part.loss_sum, "loss_mean": part.loss_sum / active, "token_count": active}
        return {"loss_fn_outputs": outputs, "metrics": metrics}, tokens

    def _save(self, run: TrainingRun, kind: EventType, payload: TrainerSavePayload) -> dict[str, object]:
        folder = "training_state" if kind is EventType.TRAINER_SAVE_STATE else "sampler_weights"
        uri = f"trio://{run.cuid}/{folder}/{payload.name}"
        if uri in self.checkpoints and not payload.overwrite:
            raise Refusal(0, "checkpoint_exists", f"{uri} is already there")
        source = self._trainer(run).save(folder, payload.name)
        checkpoint = SavedCheckpoint(
            uri, source, run, payload.visibility == "TEMPORARY", self._trained_steps.get(run.cuid, 0)
        )
        with self._lock:
            self.checkpoints[uri] = checkpoint
        stored = {"uri": uri, "checkpoint_cuid": checkpoint.cuid, "model_id": run.model.name, "size_bytes": 1}
        return {"checkpoint": stored}

    # What the handlers share.

    def _engine_sampler(self, source: str) -> EngineSampler:
        # One engine sampler a checkpoint, so that runs on the same weights share its cache.
        if source not in self._samplers:
            self._samplers = {
                source: self.engine.sampler(self._checkpoint(source).engine_source if source else None),
                **({"": self._samplers[""]} if "" in self._samplers else {}),
            }
        return self._samplers[source]

    def _trainer(self, run: TrainingRun) -> EngineTrainer:
        if run.trainer is None:
            raise Refusal(0, "run_not_initialized", "trainer.init_run must come first")
        return run.trainer

    def _model(self, name: str, *, training: bool) -> Model:
        for model in self.models:
            if model.name == name and (model.trains or not training):
                return model
        raise Refusal(404, "model_not_found", f"the model {name} is not published")

    def _checkpoint(self, uri: str, kind: str | None = None) -> SavedCheckpoint:
        if uri not in self.checkpoints:
            raise Refusal(404, "checkpoint_not_found", f"there is no checkpoint {uri}")
        if kind is not None and Checkpoint.parse(uri).kind != kind:
            raise Refusal(400, "checkpoint_invalid_type", f"{uri} is not a {kind}")
        return self.checkpoints[uri]

    def _training_run(self, cuid: str) -> TrainingRun:
        if cuid not in self.training_runs:
            raise Refusal(404, "training_run_not_found", f"there is no training run {cuid}")
        return self.training_runs[cuid]

    def _sampling_run(self, cuid: str) -> SamplingRun:
        if cuid not in self.sampling_runs:
            raise Refusal(404, "sampling_run_not_found", f"there is no sampling run {cuid}")
        return self.sampling_runs[cuid]

    def _session(self, cuid: str) -> str:
        if cuid not in self.sessions:
            raise Refusal(404, "service_session_not_found", f"there is no session {cuid}")
        return self.sessions[cuid]

    def _require_balance(self) -> None:
        if self.balance is not None and self.balance <= 0:
            raise Refusal(402, INSUFFICIENT_BALANCE, "the balance of the workspace is exhausted")

    def _pay(self, tokens: int) -> None:
        with self._lock:
            if self.balance is not None:
                self.balance -= tokens

    def _actor(self) -> ActorConnectionInfo:
        return ActorConnectionInfo(
            actor_cuid="actor_loopback", endpoint=self.actor_url, connect_mode="DIRECT", tls_enabled=False
        )

    def _jwt(self) -> ActorJWT:
        token = secrets.token_hex(16)
        self._tokens.add(token)
        return ActorJWT(token=token, expires_at=datetime.now(UTC) + timedelta(seconds=self.credentials_last_s))

    def _listed(self, checkpoints: list[SavedCheckpoint], query: Mapping[str, str]) -> BaseModel:
        offset, limit = _page(query)
        shown = [_checkpoint_info(checkpoint) for checkpoint in checkpoints if not checkpoint.temporary]
        cursor = ControlCursor(offset=offset, limit=limit, total=len(shown))
        return CheckpointListResponse(checkpoints=shown[offset : offset + limit], cursor=cursor)


_START = datetime.now(UTC)
_CONTROL_ROUTES: list[tuple[str, re.Pattern[str], Callable[..., BaseModel | None]]] = [
    (method, re.compile(pattern), handler)
    for method, pattern, handler in (
        ("GET", "openapi/v1/api-key/verify", Service.verify_api_key),
        ("GET", "sdk/bootstrap", Service.bootstrap),
        ("GET", "models", Service.list_models),
        ("POST", "openapi/v1/service-sessions", Service.create_session),
        ("GET", "openapi/v1/service-sessions", Service.list_sessions),
        ("GET", "openapi/v1/service-sessions/([^/]+)", Service.get_session),
        ("POST", "openapi/v1/service-sessions/([^/]+)/renew", Service.renew_session),
        ("POST", "openapi/v1/service-sessions/([^/]+)/close", Service.close_session),
        ("POST", "openapi/v1/service-sessions/([^/]+)/training-runs", Service.create_training_run),
        ("PATCH", "openapi/v1/service-sessions/([^/]+)/training-runs/([^/]+)", Service.update_training_run),
        ("POST", "openapi/v1/service-sessions/([^/]+)/sampling-runs", Service.create_sampling_run),
        ("GET", "openapi/v1/training-runs/by-checkpoint-uri", Service.find_training_run),
        ("GET", "openapi/v1/training-runs", Service.list_training_runs),
        ("GET", "openapi/v1/training-runs/([^/]+)", Service.get_training_run),
        ("POST", "openapi/v1/training-runs/([^/]+)/renew", Service.renew_training_run),
        ("GET", "openapi/v1/training-runs/([^/]+)/checkpoints", Service.list_run_checkpoints),
        ("GET", "openapi/v1/sampling-runs/([^/]+)", Service.get_sampling_run),
        ("POST", "openapi/v1/sampling-runs/([^/]+)/renew", Service.renew_sampling_run),
        ("GET", "openapi/v1/checkpoints", Service.list_checkpoints),
        ("DELETE", "openapi/v1/checkpoints/([^/]+)", Service.delete_checkpoint),
    )
]


def _page(query: Mapping[str, str]) -> tuple[int, int]:
    return int(query.get("offset", 0)), int(query.get("limit", 100))


def _cuid(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(6)}"


def _tokens(model_input: WireModelInput) -> list[int]:
    if not all(isinstance(chunk, WireEncodedTextChunk) for chunk in model_input.chunks):
        raise Refusal(400, "validation_failed", "the loopback service reads text only")
    return [token for chunk in model_input.chunks for token in chunk.tokens]  # type: ignore[union-attr]


def _datum(wire: TrainerForwardDatum) -> Datum:
    targets_T = np.asarray(wire.target_ids, np.int32)
    mask_T = targets_T != -100
    if wire.weights is not None:
        mask_T &= np.asarray(wire.weights) != 0
    nothing = np.zeros(len(targets_T), np.float32)
    advantages = wire.weights if wire.weights is not None else wire.advantages
    return Datum(
        tokens_T=np.asarray(_tokens(wire.model_input), np.int32),
        targets_T=np.where(mask_T, targets_T, 0).astype(np.int32),
        mask_T=mask_T,
        logprobs_T=nothing if wire.logprobs is None else np.asarray(wire.logprobs, np.float32),
        advantages_T=nothing if advantages is None else np.asarray(advantages, np.float32),
    )


def _record(wire: TrainerForwardDatum) -> DatumRecord:
    return DatumRecord(
        tokens_T=np.asarray(_tokens(wire.model_input), np.int32),
        targets_T=np.asarray(wire.target_ids, np.int32),
        logprobs_T=None if wire.logprobs is None else np.asarray(wire.logprobs, np.float32),
        advantages_T=None if wire.advantages is None else np.asarray(wire.advantages, np.float32),
    )


def _run_info(run: TrainingRun) -> TrainingRunGetResponse:
    settings: dict[str, Any] = {
        "restore_optimizer": run.restore_optimizer,
        "lora_rank": run.rank,
        "seed": run.seed,
        "train_mlp": True,
        "train_attn": True,
        "train_unembed": True,
    }
    return TrainingRunGetResponse(
        training_run_cuid=run.cuid,
        base_model=run.model.name,
        service_session_cuid=run.session,
        workspace_cuid=WORKSPACE,
        status="RUNNING",
        run_index=run.index,
        model_spec_cuid="spec_loopback",
        is_lora=True,
        source_checkpoint_uri=run.source or None,
        corrupted=False,
        training_params=TrainingRunParamsResponse(**settings),
        created_at=run.created,
        updated_at=run.created,
        **settings,
    )


def _checkpoint_info(checkpoint: SavedCheckpoint) -> CheckpointResponse:
    parsed, run = Checkpoint.parse(checkpoint.uri), checkpoint.run
    return CheckpointResponse(
        cuid=checkpoint.cuid,
        checkpoint_cuid=checkpoint.cuid,
        training_run_cuid=run.cuid,
        workspace_cuid=WORKSPACE,
        name=parsed.name,
        checkpoint_type="TRAINING" if parsed.kind == "training_state" else "SAMPLER",
        status="READY",
        checkpoint_uri=checkpoint.uri,
        model=run.model.name,
        base_model=run.model.name,
        model_spec_cuid="spec_loopback",
        task_id=run.cuid,
        task_created_at=run.created,
        task_status="RUNNING",
        step=checkpoint.step,
        path=checkpoint.uri,
        created_at=checkpoint.created,
        size_bytes=1,
        lora_rank=run.rank,
        is_uploaded=True,
    )

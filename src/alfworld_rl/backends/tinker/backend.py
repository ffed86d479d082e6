"""Any server of the Tinker API, behind the same contract as the other backends."""

import logging
from pathlib import Path
from typing import Any

from alfworld_rl.backends.base import BaseModelError, Checkpoint, CheckpointError, Weights
from alfworld_rl.backends.local import builtin
from alfworld_rl.backends.tinker.archive import unpack
from alfworld_rl.backends.tinker.sampler import TinkerSampler
from alfworld_rl.backends.tinker.service import Connection, Service
from alfworld_rl.backends.tinker.tokenizers import Vocabulary
from alfworld_rl.backends.tinker.trainer import SCHEME, TinkerTrainer
from alfworld_rl.errors import UsageError
from alfworld_rl.types import Capabilities, TrainingStart

log = logging.getLogger(__name__)


class TinkerBackend:
    """Opens trainers and samplers on a server of the Tinker API.

    `base_url` is the server's, else that of TINKER_BASE_URL, else Thinking Machines' service; the key comes from
    TINKER_API_KEY alone, and a server of one's own needs none. Raises at once, and in seconds, when the server cannot
    be used.

    Checkpoints are `tinker://<model>/weights/<name>` (a training state) and `tinker://<model>/sampler_weights/<name>`,
    as all programs of this API know them.
    """

    def __init__(self, base_url: str | None = None) -> None:
        self._service = Service(Connection.find(base_url))
        self._hosted = self._service.connection.hosted
        self._vocabularies: dict[str, Vocabulary] = {}
        self._trainers: list[TinkerTrainer] = []
        self._models: dict[str, int | None] = {}

    def capabilities(self, base_model: str) -> Capabilities:
        """See `base.Backend`. A server of one's own has one base model, which is the default."""
        models = self.models()
        lengths = [length for name, length in models.items() if length and name == base_model]
        return Capabilities(
            default_model=next(iter(models), base_model),
            saves_every_update=not self._hosted,
            billed=self._hosted,
            max_sequence_tokens=min(lengths, default=None),
        )

    def models(self) -> dict[str, int | None]:
        """The base models that the server has, with the longest context of each where it says so."""
        if not self._models:
            found = self._service.call(self._service.client.get_server_capabilities, "listing the models")
            self._models = {str(model.model_name): model.max_context_length for model in found.supported_models}
        return self._models

    def trainer(self, start: TrainingStart, *, lora_rank: int, seed: int) -> TinkerTrainer:
        """See `base.Backend`. The rank of a checkpoint stays; the seed matters to new weights alone."""
        client, service = self._service.client, self._service
        if start.base_model is not None:
            if lora_rank < 1:
                raise UsageError("the Tinker API trains LoRA adapters: set --lora-rank to 1 or more")
            model = self._served(start.base_model)
            opened = service.call(
                lambda: client.create_lora_training_client(model, rank=lora_rank, seed=seed), f"opening {model}"
            )
        elif start.state is not None:
            state = _parsed(start.state, "training_state", "to go on with training, use the URI after `Saved state:`")
            model = self._served(service.base_model_of(state))
            create = client.create_training_client_from_state_with_optimizer
            opened = service.call(lambda: create(str(state)), f"opening {state}")
        else:
            state = self._state_behind(_parsed(str(start.weights)))
            model = self._served(service.base_model_of(state))
            opened = service.call(lambda: client.create_training_client_from_state(str(state)), f"opening {state}")
        trainer = TinkerTrainer(service, opened, self._vocabulary(model))
        self._trainers.append(trainer)
        self._check_model(opened, model)
        return trainer

    def sampler(self, base_model: str, weights: str | None = None) -> TinkerSampler:
        """See `base.Backend`.

        On a server of one's own, sampler weights are opened from the state that was saved with them, as a model of
        their own: sampling from the save itself would set back the weights of a model that is still in training, and
        is impossible once the server has forgotten it.
        """
        model, client = self._served(base_model), self._service.client
        if weights is None:
            opened = self._service.call(lambda: client.create_sampling_client(base_model=model), f"opening {model}")
            return TinkerSampler(self._service, opened, self._vocabulary(model), _always)
        checkpoint = _parsed(weights, "sampler_weights", "to sample, use the URI after `Saved sampler weights:`")
        if not self._hosted:
            state = self._state_behind(checkpoint)
            trained_from = self._service.base_model_of(state)
            if trained_from != model:
                raise CheckpointError(
                    f"{weights} was trained from {trained_from}, not from {model}; give --base-model {trained_from}"
                )
            return self.trainer(TrainingStart(weights=str(state)), lora_rank=1, seed=0).sampler()
        opened = self._service.call(lambda: client.create_sampling_client(str(checkpoint)), f"opening {checkpoint}")
        return TinkerSampler(self._service, opened, self._vocabulary(model), _always)

    def download(self, uri: str, folder: Path) -> Weights:
        """See `base.WeightsSource`. Of a training state, the sampler weights that were saved under the same name."""
        checkpoint = _parsed(uri)
        if checkpoint.name not in self._service.saved(checkpoint.run, "sampler_weights"):
            raise CheckpointError(
                f"the server has no sampler weights {checkpoint.name} of {checkpoint.run}, and gives away no other; "
                "use a URI that a run printed after `Saved sampler weights:`"
            )
        archive = self._service.archive(checkpoint.run, f"sampler_weights/{checkpoint.name}")
        return unpack(archive, folder)

    def delete(self, uri: str) -> None:
        """See `base.Backend`."""
        self._service.delete(_parsed(uri))

    def close(self) -> None:
        """See `base.Backend`. The models that were opened here are given up; their checkpoints stay."""
        if not self._hosted:
            for trainer in self._trainers:
                trainer.abandon()
                self._service.unload(trainer.run)
        self._trainers.clear()
        self._service.close()

    def _state_behind(self, checkpoint: Checkpoint) -> Checkpoint:
        """The training state that holds the weights of a checkpoint of either kind. Raises CheckpointError for none."""
        state = Checkpoint(SCHEME, checkpoint.run, "training_state", checkpoint.name)
        if checkpoint.kind == "training_state" or checkpoint.name in self._service.saved(state.run, "training_state"):
            return state
        raise CheckpointError(
            f"the server has no training state {state} beside {checkpoint}, without which it cannot open these "
            "weights; use a URI that a run printed on this server"
        )

    def _served(self, base_model: str) -> str:
        """The name by which the server knows a base model, which it does not check itself. Raises BaseModelError."""
        models = self.models()
        if base_model in models:
            return base_model
        if base_model in builtin.NAMES:  # a server is started with a folder, wherever that lies on its machine
            for name in models:
                if Path(name).name == base_model:
                    return name
        there_are = f"give --base-model {' or '.join(models)}" if models else "it has none at all"
        raise BaseModelError(f"the server at {self._service.connection.url} does not have {base_model!r}; {there_are}")

    def _check_model(self, opened: Any, model: str) -> None:
        """Raises BaseModelError where the server says that it has opened another model than was asked for."""
        data = self._service.call(opened.get_info, f"opening {model}").model_data
        if data.model_name not in (None, model):
            raise BaseModelError(
                f"the server opened {data.model_name} where {model} was asked for; give --base-model {data.model_name}"
            )

    def _vocabulary(self, model: str) -> Vocabulary:
        if model not in self._vocabularies:
            # A server's folder of a built-in policy need not be on this machine, which has its own copy.
            name = Path(model).name
            here = str(builtin.path(name)) if name in builtin.NAMES and not Path(model).is_dir() else model
            self._vocabularies[model] = Vocabulary.of(here)
        return self._vocabularies[model]


def _always() -> None:
    """What a sampler whose weights nothing changes has to check."""


def _parsed(uri: str, kind: str | None = None, instead: str = "") -> Checkpoint:
    checkpoint = Checkpoint.parse(uri)
    if checkpoint.scheme != SCHEME:
        raise CheckpointError(
            f"{uri!r} is a checkpoint of the {checkpoint.scheme!r} backend (--backend {checkpoint.scheme} opens it); "
            "--backend tinker opens tinker:// URIs"
        )
    if kind is not None and checkpoint.kind != kind:
        raise CheckpointError(f"{uri} is of the wrong kind: {instead}")
    return checkpoint

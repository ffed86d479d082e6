"""Whatever holds the model: PyTRIO's cluster, a server of the Tinker API, or an engine in this process."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from alfworld_rl.backends.base import Backend
from alfworld_rl.backends.kinds import BACKENDS, OpenOptions, open_kind
from alfworld_rl.config import Config, Name, option
from alfworld_rl.errors import UsageError
from alfworld_rl.types import Capabilities

__all__ = ["BACKENDS", "BackendConfig", "TrainingBackendConfig", "check_length", "open_backend"]


class BackendConfig(Config):
    """Which model, and behind which backend."""

    backend: Annotated[str, Name(BACKENDS)] = option("trio", "where the model lives")
    base_model: str | None = option(
        None,
        "the model to start from (default: "
        + "; ".join(f"with {name} {BACKENDS[name].capabilities.default_model}" for name in BACKENDS.names())
        + ")",
    )
    base_url: str | None = option(
        None,
        "tinker backend: address of the server (default: TINKER_BASE_URL, else Thinking Machines' service)",
        metavar="URL",
    )

    @property
    def capabilities(self) -> Capabilities:
        """What the backend can do, as far as it is known before it is opened."""
        kind = BACKENDS[self.backend]
        if kind.billed_at is None:
            return kind.capabilities
        return replace(kind.capabilities, billed=kind.billed_at(self.base_url))

    @property
    def model(self) -> str:
        """The base model's name, given or implied by the backend."""
        return self.base_model or self.capabilities.default_model


class TrainingBackendConfig(BackendConfig):
    """Which model, and behind which backend; training on this computer."""

    micro_batch_tokens: int = option(8192, "local backend: tokens that go through the model at once", ge=1)
    bfloat16: bool = option(
        False, "local backend: train with bfloat16 matrix products, faster where the processor has them"
    )


def open_backend(
    config: BackendConfig, *, runs_dir: Path, run_name: str | None = None, max_in_flight: int = 64
) -> Backend:
    """The backend that `config` names; see `OpenOptions`. Raises UsageError where its libraries are missing."""
    training = config if isinstance(config, TrainingBackendConfig) else TrainingBackendConfig()
    return open_kind(
        config.backend,
        OpenOptions(
            runs_dir=runs_dir,
            run_name=run_name,
            max_in_flight=max_in_flight,
            micro_batch_tokens=training.micro_batch_tokens,
            bfloat16=training.bfloat16,
            base_url=config.base_url,
        ),
    )


def check_length(backend: Backend, base_model: str, tokens: int) -> None:
    """Refuse trajectories longer than the service takes, where it names a limit. Raises UsageError."""
    limit = backend.capabilities(base_model).max_sequence_tokens
    if limit is not None and tokens > limit:
        raise UsageError(f"{base_model} takes sequences of {limit} tokens: set --max-trajectory-tokens to that or less")

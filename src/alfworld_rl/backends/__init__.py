"""Whatever holds the model: a service, a server, or an engine in this process."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from alfworld_rl.backends.base import Backend
from alfworld_rl.backends.kinds import BACKENDS, Api, OpenOptions, open_kind
from alfworld_rl.config import Check, Config, Name, option
from alfworld_rl.errors import UsageError
from alfworld_rl.types import Capabilities

__all__ = [
    "BACKENDS",
    "BackendConfig",
    "EvaluationBackendConfig",
    "TrainingBackendConfig",
    "check_length",
    "open_backend",
]


def _address(text: str) -> str | None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"must be an address such as http://127.0.0.1:8000/v1, not {text!r}"
    # It goes into settings and messages; a key comes from the environment and goes nowhere.
    return "must not hold a user or a password" if parts.username or parts.password else None


def _json_object(text: str) -> str | None:
    try:
        wrong = not isinstance(json.loads(text), dict)
    except ValueError:
        wrong = True
    return f"must be a JSON object, not {text!r}" if wrong else None


_NAMED = [name for name in BACKENDS.names() if BACKENDS[name].capabilities.default_model]


class BackendConfig(Config):
    """Which model, and behind which backend."""

    backend: Annotated[str, Name(BACKENDS)] = option("trio", "where the model lives")
    base_model: str | None = option(
        None,
        "the model to start from (default: "
        + "; ".join(f"with {name} {BACKENDS[name].capabilities.default_model}" for name in _NAMED)
        + ")",
    )
    base_url: Annotated[str, Check(_address)] | None = option(
        None,
        "tinker and openai backends: address of the server (default: TINKER_BASE_URL, else Thinking Machines' service; "
        "OPENAI_BASE_URL, else OpenAI's)",
        metavar="URL",
    )

    def conflicts(self) -> list[str]:
        if not self.model:
            return [f"--backend {self.backend} needs --base-model, the name by which the server knows the model"]
        return []

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

    def conflicts(self) -> list[str]:
        if not self.capabilities.trains:
            able = [name for name in BACKENDS.names() if BACKENDS[name].capabilities.trains]
            return [
                f"--backend {self.backend} can be measured but not trained, for it gives no gradients; "
                f"take --backend {' or '.join(able)}"
            ]
        return super().conflicts()


class EvaluationBackendConfig(BackendConfig):
    """Which model, and behind which backend; how a service is asked that can only be measured."""

    api: Api = option(
        "chat",
        "openai backend: send messages (chat); token ids, by which a score is as exact as a local one (completions: "
        "vLLM, SGLang); or the text of token ids (text-completions)",
    )
    tool_calls: Literal["native", "text"] = option(
        "native", "--api chat: let the service present the tool and read calls, or explain and read calls in the text"
    )
    send_reasoning: bool = option(
        False, "--api chat: send the model's own thoughts back to it, as some services demand"
    )
    tokenizer: str | None = option(
        None, "other --api: folder or name of the model's tokenizer (default: --base-model)", metavar="NAME"
    )
    extra_body: Annotated[str, Check(_json_object)] = option(
        "{}", "openai backend: more fields of every request, as a JSON object; null leaves one of ours out"
    )

    @property
    def more_fields(self) -> dict[str, Any]:
        """`extra_body` as a mapping."""
        return dict(json.loads(self.extra_body))

    def of_the_score(self) -> dict[str, Any]:
        """What changes a score, as it goes into results; empty where a score is as exact as a local one."""
        if self.capabilities.trains:
            return {}
        said: dict[str, Any] = {"extra_body": self.more_fields} if self.more_fields else {}
        if self.api == "completions":
            return said
        said |= {"api": self.api, "token_exact": False}
        return (
            said
            if self.api != "chat"
            else said
            | {
                "tool_calls": self.tool_calls,
                "send_reasoning": self.send_reasoning,
            }
        )


def open_backend(
    config: BackendConfig, *, runs_dir: Path, run_name: str | None = None, max_in_flight: int = 64
) -> Backend:
    """The backend that `config` names; see `OpenOptions`. Raises UsageError where its libraries are missing."""
    training = config if isinstance(config, TrainingBackendConfig) else TrainingBackendConfig()
    measured = config if isinstance(config, EvaluationBackendConfig) else EvaluationBackendConfig()
    return open_kind(
        config.backend,
        OpenOptions(
            runs_dir=runs_dir,
            run_name=run_name,
            max_in_flight=max_in_flight,
            micro_batch_tokens=training.micro_batch_tokens,
            bfloat16=training.bfloat16,
            base_url=config.base_url,
            api=measured.api,
            tokenizer=measured.tokenizer,
            extra_body=measured.more_fields,
        ),
    )


def check_length(backend: Backend, base_model: str, tokens: int) -> None:
    """Refuse trajectories longer than the service takes, where it names a limit. Raises UsageError."""
    limit = backend.capabilities(base_model).max_sequence_tokens
    if limit is not None and tokens > limit:
        raise UsageError(f"{base_model} takes sequences of {limit} tokens: set --max-trajectory-tokens to that or less")

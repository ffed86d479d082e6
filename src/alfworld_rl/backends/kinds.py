"""The backends by name: what each can do, and how it is opened. Nothing heavy is imported before one is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from alfworld_rl.backends.base import Backend
from alfworld_rl.errors import UsageError, checkout, installing
from alfworld_rl.registry import Registry
from alfworld_rl.types import Capabilities

LOCAL = Capabilities(
    default_model="alfworld-tiny",
    full_finetuning=True,
    saves_every_update=True,
    billed=False,
    behaviour_logprobs=True,
)
TRIO = Capabilities(default_model="Qwen/Qwen3.5-4B")
# What holds of any server; TinkerBackend.capabilities tells the rest when it has asked the one that is meant.
TINKER = Capabilities(default_model="Qwen/Qwen3.5-4B")
OPENAI = Capabilities(default_model="", trains=False, losses=())

Api = Literal["chat", "completions", "text-completions"]
"""How a service that speaks OpenAI's protocol is spoken to: in messages, in token ids, or in the text of token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """What a backend may be told when it is opened; each takes what concerns it.

    - runs_dir, run_name: where the local backend reads checkpoints, and the run whose checkpoints it writes.
    - max_in_flight: sampling requests that a remote one should let fly at once.
    - micro_batch_tokens, bfloat16: the local trainer's.
    - base_url: the address of a server that is not the service's usual one.
    - api, tokenizer, extra_body: the openai backend's, as its flags explain them.
    """

    runs_dir: Path
    run_name: str | None = None
    max_in_flight: int = 64
    micro_batch_tokens: int = 8192
    bfloat16: bool = False
    base_url: str | None = None
    api: Api = "chat"
    tokenizer: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """A backend that can be chosen: `modules` of the package's `extra` have to be installed to open it.

    `training_presets` tells which flat settings suit training a base model (None: none was given) better than the
    quick start's defaults do, where they are not given. `billed_at` tells whether a server costs money where only some
    do. `check` tells `doctor` what works of it now: whether it is
    good, what it is about, what was found.
    """

    capabilities: Capabilities
    billed_at: Callable[[str | None], bool] | None = None
    open: Callable[[OpenOptions], Backend]
    extra: str = ""
    modules: tuple[str, ...] = ()
    training_presets: Callable[[str | None], Mapping[str, object]] = lambda base_model: {}
    check: Callable[[OpenOptions], Iterable[tuple[bool, str, str]]] | None = None


BACKENDS: Registry[BackendKind] = Registry("backend")


def open_kind(name: str, options: OpenOptions) -> Backend:
    """The backend `name`. Raises UsageError where its libraries are missing."""
    return _installed(name).open(options)


def check_kind(name: str, options: OpenOptions) -> Iterable[tuple[bool, str, str]]:
    """What works of the backend `name` now. Raises UsageError where its libraries are missing, or it cannot tell."""
    check = _installed(name).check
    if check is None:
        raise UsageError(f"doctor has nothing more to say of --backend {name}; leave it out")
    return check(options)


def _installed(name: str) -> BackendKind:
    kind = BACKENDS[name]
    missing = [module for module in kind.modules if find_spec(module) is None]
    if missing:
        otherwise = "" if checkout() is None else f", or put `--extra {kind.extra}` behind `uv run`"
        raise UsageError(
            f"--backend {name} needs {', '.join(missing)}; install the extra with `{installing(kind.extra)}`{otherwise}"
        )
    return kind


def _open_local(options: OpenOptions) -> Backend:
    from alfworld_rl.backends.local import LocalBackend

    return LocalBackend(
        options.runs_dir,
        run_name=options.run_name,
        micro_batch_tokens=options.micro_batch_tokens,
        bfloat16=options.bfloat16,
    )


def _local_presets(base_model: str | None) -> Mapping[str, object]:
    """The quick start's recipe for the built-in policy, which learns in minutes; else no login is demanded."""
    if base_model is not None and not base_model.startswith(LOCAL.default_model):
        return {"swanlab_mode": "disabled"}
    return {
        "base_model": "alfworld-tiny-start",
        "lora_rank": 0,
        "advantage": "gigpo",
        "learning_rate": 1e-4,
        "warmup_steps": 2,
        "minibatches": 2,
        "max_steps": 15,
        "games_per_batch": 12,
        "admissible_commands": "none",
        "max_episode_steps": 30,
        "max_assistant_tokens": 32,
        "max_trajectory_tokens": 8000,
        "swanlab_mode": "disabled",
    }


def _open_trio(options: OpenOptions) -> Backend:
    from alfworld_rl.backends.trio import TrioBackend

    return TrioBackend(max_in_flight=options.max_in_flight)


def _open_tinker(options: OpenOptions) -> Backend:
    from alfworld_rl.backends.tinker import TinkerBackend

    return TinkerBackend(options.base_url)


def _tinker_billed_at(base_url: str | None) -> bool:
    from alfworld_rl.backends.tinker.service import is_hosted, server_url

    return is_hosted(server_url(base_url))


def _check_tinker(options: OpenOptions) -> Iterable[tuple[bool, str, str]]:
    from alfworld_rl.backends.tinker.check import check

    return check(options.base_url)


def _open_openai(options: OpenOptions) -> Backend:
    from alfworld_rl.backends.openai import ChatService, CompletionsService

    if options.api == "chat":
        return ChatService(options.base_url, extra_body=options.extra_body)
    return CompletionsService(
        options.base_url,
        texts=options.api == "text-completions",
        tokenizer=options.tokenizer,
        extra_body=options.extra_body,
    )


BACKENDS.add("trio", BackendKind(capabilities=TRIO, open=_open_trio), "PyTRIO's remote cluster, paid")
BACKENDS.add(
    "local",
    BackendKind(
        capabilities=LOCAL,
        open=_open_local,
        extra="local",
        modules=("torch", "transformers", "peft", "safetensors"),
        training_presets=_local_presets,
    ),
    "an engine in this process, free",
)
BACKENDS.add(
    "tinker",
    BackendKind(
        capabilities=TINKER,
        billed_at=_tinker_billed_at,
        open=_open_tinker,
        extra="tinker",
        modules=("tinker", "transformers"),
        training_presets=lambda base_model: {"swanlab_mode": "disabled"},
        check=_check_tinker,
    ),
    "any server of the Tinker API, such as SkyRL on a cluster of your own",
)
BACKENDS.add(
    "openai",
    BackendKind(capabilities=OPENAI, open=_open_openai, extra="openai", modules=("openai",)),
    "any service or server that speaks OpenAI's protocol, to be measured only",
)

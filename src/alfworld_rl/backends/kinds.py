"""The backends by name: what each can do, and how it is opened. Nothing heavy is imported before one is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """What a backend may be told when it is opened; each takes what concerns it.

    - runs_dir, run_name: where the local backend reads checkpoints, and the run whose checkpoints it writes.
    - max_in_flight: sampling requests that a remote one should let fly at once.
    - micro_batch_tokens, bfloat16: the local trainer's.
    """

    runs_dir: Path
    run_name: str | None = None
    max_in_flight: int = 64
    micro_batch_tokens: int = 8192
    bfloat16: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """A backend that can be chosen: `modules` of the package's `extra` have to be installed to open it.

    `training_presets` tells which flat settings suit training a base model (None: none was given) better than the
    quick start's defaults do, where they are not given.
    """

    capabilities: Capabilities
    open: Callable[[OpenOptions], Backend]
    extra: str = ""
    modules: tuple[str, ...] = ()
    training_presets: Callable[[str | None], Mapping[str, object]] = lambda base_model: {}


BACKENDS: Registry[BackendKind] = Registry("backend")


def open_kind(name: str, options: OpenOptions) -> Backend:
    """The backend `name`. Raises UsageError where its libraries are missing."""
    kind = BACKENDS[name]
    missing = [module for module in kind.modules if find_spec(module) is None]
    if missing:
        otherwise = "" if checkout() is None else f", or put `--extra {kind.extra}` behind `uv run`"
        raise UsageError(
            f"--backend {name} needs {', '.join(missing)}; install the extra with `{installing(kind.extra)}`{otherwise}"
        )
    return kind.open(options)


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

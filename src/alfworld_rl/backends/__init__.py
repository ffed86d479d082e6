"""Whatever holds the model: PyTRIO's cluster, a server of the Tinker API, or an engine in this process."""

from importlib.util import find_spec
from pathlib import Path
from typing import cast

from alfworld_rl.backends.protocol import Backend
from alfworld_rl.errors import UsageError, installing

__all__ = ["check_length", "open_backend"]


def open_backend(
    name: str,
    *,
    runs_dir: Path,
    run_name: str | None = None,
    max_in_flight: int = 64,
    micro_batch_tokens: int = 8192,
    bfloat16: bool = False,
) -> Backend:
    """The backend `name`: trio, local or tinker. Only its own libraries are imported.

    A local backend reads checkpoints under `runs_dir` and writes those of `run_name`. `max_in_flight` is the number
    of sampling requests that a remote one should let fly at once. Raises UsageError where its libraries are missing.
    """
    if name == "local":
        _need("torch", "transformers", "peft", "safetensors", extra="local", backend=name)
        from alfworld_rl.backends.local import LocalBackend

        local = LocalBackend(runs_dir, run_name=run_name, micro_batch_tokens=micro_batch_tokens, bfloat16=bfloat16)
        return cast(Backend, local)
    if name == "trio":
        from alfworld_rl.backends.trio import TrioBackend

        return cast(Backend, TrioBackend(max_in_flight=max_in_flight))
    raise UsageError(f"--backend {name} is not in this version; use trio or local")


def check_length(backend: Backend, base_model: str, tokens: int) -> None:
    """Refuse trajectories longer than the service takes, where it names a limit. Raises UsageError."""
    limit_of = getattr(backend, "max_sequence_tokens", None)
    limit = limit_of(base_model) if limit_of is not None else None
    if limit is not None and tokens > limit:
        raise UsageError(f"{base_model} takes sequences of {limit} tokens: set --max-trajectory-tokens to that or less")


def _need(*modules: str, extra: str, backend: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"--backend {backend} needs {', '.join(missing)}; install the extra with "
            f"`{installing(extra)}`, or put `--extra {extra}` behind `uv run`"
        )

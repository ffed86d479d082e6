"""An engine in this process: any causal language model that transformers loads, on the CPU or on CUDA.

What needs PyTorch is imported when it is used: the folders of the built-in policies are of use without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alfworld_rl.backends.local.backend import LocalBackend
    from alfworld_rl.backends.local.engine import LocalSampler
    from alfworld_rl.backends.local.trainer import LocalTrainer

__all__ = ["LocalBackend", "LocalSampler", "LocalTrainer"]

_MODULES = {"LocalBackend": "backend", "LocalSampler": "engine", "LocalTrainer": "trainer"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

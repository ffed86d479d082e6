"""An engine in this process: any causal language model that transformers loads, on the CPU or on CUDA."""

from alfworld_rl.backends.local.backend import LocalBackend
from alfworld_rl.backends.local.engine import LocalSampler
from alfworld_rl.backends.local.trainer import LocalTrainer

__all__ = ["LocalBackend", "LocalSampler", "LocalTrainer"]

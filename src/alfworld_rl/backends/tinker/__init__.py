"""Any server of the Tinker API: Thinking Machines' service, or SkyRL on machines of one's own (docs/own-cluster.md)."""

from alfworld_rl.backends.tinker.backend import TinkerBackend

__all__ = ["TinkerBackend"]

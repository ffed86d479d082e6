"""PyTRIO on loopback: a service that the unmodified SDK takes for PyTRIO.

The SDK's own protocol models say what travels; this project's local engine does the learning, a script of tool
calls the playing where nothing has to be learned. By hand: `PYTHONPATH=tests python -m trio_server --help`.
"""

from trio_server.engines import Engine, LearningEngine, ScriptedEngine
from trio_server.faults import Faults
from trio_server.http import TrioServer
from trio_server.ledger import Ledger
from trio_server.service import API_KEY, MODEL, Model, Service

__all__ = [
    "API_KEY",
    "MODEL",
    "Engine",
    "Faults",
    "LearningEngine",
    "Ledger",
    "Model",
    "ScriptedEngine",
    "Service",
    "TrioServer",
]

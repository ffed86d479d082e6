"""ALFWorld's own interface on the fast world: change one import, keep the code.

    from alfworld_rl.compat import AlfredTWEnv, get_environment   # was: alfworld.agents.environment

`environment` says where it differs from the official classes. Where Gymnasium is installed (extra `gym`), importing
this package also registers `alfworld_rl/ALFWorld-v0`; `gymnasium.make("alfworld_rl.compat:alfworld_rl/ALFWorld-v0")`
does both at once.
"""

from importlib.util import find_spec

from alfworld_rl.compat.batch import BatchEnv, SingleEnv
from alfworld_rl.compat.environment import TASK_TYPES, AlfredTWEnv, get_environment

__all__ = ["TASK_TYPES", "AlfredTWEnv", "BatchEnv", "SingleEnv", "get_environment"]

if find_spec("gymnasium") is not None:
    from alfworld_rl.compat.gymnasium import register

    register()

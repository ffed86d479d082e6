"""`vf-eval alfworld-verifiers`: verifiers finds an environment by the name of a module that is in no package."""

from alfworld_rl.compat.verifiers import ALFWorldEnv, ALFWorldTaskset, load_environment

__all__ = ["ALFWorldEnv", "ALFWorldTaskset", "load_environment"]

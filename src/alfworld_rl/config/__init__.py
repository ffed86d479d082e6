"""Settings of every command and room: declared once as fields, used as flags, TOML, JSON and arguments.

Its names are imported when they are first used: whoever asks only `config.workspace` where the games are, such as the
world, does not wait for pydantic.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alfworld_rl.config.base import Config, differences
    from alfworld_rl.config.fields import Check, Name, flag_name, option
    from alfworld_rl.config.flags import add_flags, flags_table, read_config, read_flags
    from alfworld_rl.config.parameters import ParametersConfig, parameters_config

__all__ = [
    "Check",
    "Config",
    "Name",
    "ParametersConfig",
    "add_flags",
    "differences",
    "flag_name",
    "flags_table",
    "option",
    "parameters_config",
    "read_config",
    "read_flags",
]

_MODULES = {
    "base": ("Config", "differences"),
    "fields": ("Check", "Name", "flag_name", "option"),
    "flags": ("add_flags", "flags_table", "read_config", "read_flags"),
    "parameters": ("ParametersConfig", "parameters_config"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Settings of every command and room: declared once as fields, used as flags, TOML, JSON and arguments."""

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

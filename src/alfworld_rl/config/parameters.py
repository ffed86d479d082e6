"""The parameters of registered functions as settings: a new estimator's `discount` is a flag by being written down."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import create_model

from alfworld_rl.config.base import Config
from alfworld_rl.config.fields import flag_name, option
from alfworld_rl.registry import Registry


class ParametersConfig(Config):
    """Parameters of functions that are chosen by name."""

    #: For each name, the function's parameters and the flat names of their settings.
    flat_names: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def unused(self, chosen: str) -> list[str]:
        """A sentence for each parameter that was set of another function than the chosen one: it would do nothing."""
        return [
            f"{flag_name(flat)} is a parameter of {name}, which is not chosen"
            for name, flats in self.flat_names.items()
            for flat in flats.values()
            if name != chosen and getattr(self, flat) != self.settings[flat].default
        ]

    def of(self, name: str) -> dict[str, Any]:
        """The parameters of the function called `name`, for `Registry.bind`; none for one that was not registered."""
        return {parameter: getattr(self, flat) for parameter, flat in self.flat_names.get(name, {}).items()}


def parameters_config(
    registry: Registry[Any], prefix_of: Callable[[str], str] = lambda name: name
) -> type[ParametersConfig]:
    """A config of every keyword-only parameter of the functions that are registered now.

    `discount` of the function `gigpo` is the flag --gigpo-discount; `prefix_of` chooses another prefix than the
    function's name. Limits come from an annotation such as `Annotated[float, Field(ge=0, le=1)]`, the help from a line
    `discount: what it is` of the function's docstring.
    """
    flat_names: dict[str, dict[str, str]] = {}
    fields: dict[str, Any] = {}
    for name in registry:
        function = registry[name]
        for parameter, default in registry.parameters(name).items():
            flat = f"{prefix_of(name)}_{parameter}".replace("-", "_")
            if flat in fields:
                raise TypeError(f"two {registry.what}s have the parameter {flat}")
            flat_names.setdefault(name, {})[parameter] = flat
            help = _documented(function, parameter) or f"{parameter.replace('_', ' ')} of the {registry.what} {name}"
            fields[flat] = (_annotation(function, parameter) or type(default), option(default, help))
    config: type[ParametersConfig] = create_model(
        "".join(word.capitalize() for word in registry.what.split()) + "Parameters",
        __base__=ParametersConfig,
        __doc__=f"Parameters of the {registry.what}s.",
        **fields,
    )
    config.flat_names = flat_names
    return config


def _annotation(function: Any, parameter: str) -> Any:
    """A parameter's type with what is annotated to it, or None where it has none or names what is not imported."""
    try:
        return typing.get_type_hints(function, include_extras=True).get(parameter)
    except (NameError, TypeError):
        return None


def _documented(function: Any, parameter: str) -> str | None:
    found = re.search(rf"^\W*{re.escape(parameter)}`?: *(.+)$", inspect.getdoc(function) or "", re.MULTILINE)
    return found[1].rstrip(".") if found else None

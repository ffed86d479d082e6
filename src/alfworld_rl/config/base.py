"""Settings: frozen pydantic models whose fields are flags, TOML keys, JSON and arguments at once.

Configs nest: a command's config holds those of the rooms it calls (`play: PlayConfig = PlayConfig()`), and all their
fields together are its flat names, each of which exists once. A room is given its own part and knows no command.

Everything wrong is said in one UsageError, in the words of the flags, however a config comes to be: `TrainConfig(...)`,
`TrainConfig.from_flat({...})`, `config.replace(...)`.
"""

import dataclasses
import inspect
import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from alfworld_rl.config.fields import Setting, flag_name, setting
from alfworld_rl.errors import UsageError
from alfworld_rl.registry import did_you_mean


class Config(BaseModel):
    """A part of a command's settings. The first line of a subclass's docstring is the title of its flags in help."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    #: Every flat name's setting, in the order of declaration, with the default that holds in this class.
    settings: ClassVar[Mapping[str, Setting]] = {}

    def __init__(self, /, **values: Any) -> None:
        _refuse(list(_fill(self, values).values()) or self._all_conflicts())

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Look through the fields once. Raises TypeError where they cannot all be flags."""
        super().__pydantic_init_subclass__(**kwargs)
        found: dict[str, Setting] = {}
        for name, info in cls.model_fields.items():
            if isinstance(part := info.default, Config):
                values = part._values()
                new = {one.name: dataclasses.replace(one, default=values[one.name]) for one in part.settings.values()}
            else:
                new = {name: setting(name, info, _title(cls, name))}
            if twice := found.keys() & new.keys():
                raise TypeError(f"{cls.__name__} has {', '.join(map(flag_name, sorted(twice)))} twice")
            found |= new
        if "config" in found:
            raise TypeError(f"{cls.__name__}: --config is the settings file of every command")
        cls.settings = found

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        return value if isinstance(cls.model_fields[name].default, Config) else cls.settings[name].read(value)

    def conflicts(self) -> list[str]:
        """What cannot be together, a sentence each. To be overridden; the parts of a config are asked by themselves."""
        return []

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Self:
        """The config in which the flat names of `values` are given, as texts of a command line or as JSON or TOML.

        Raises UsageError naming every value that cannot be, every unknown name and, with the wrong values replaced by
        their defaults, every conflict.
        """
        return cls._made(values, frozenset(values), None)

    def replace(self, **values: Any) -> Self:
        """This config with other values for some flat names, which count as given. Raises as `from_flat` does."""
        return self._made(values, self.given | values.keys(), self)

    def with_defaults(self, values: Mapping[str, Any]) -> Self:
        """This config with other values for those flat names of `values` that were not given; they still are not."""
        given = self.given
        return self._made({name: value for name, value in values.items() if name not in given}, given, self)

    def to_flat(self) -> dict[str, Any]:
        """Every flat name's value as JSON knows it, in the order of declaration; `from_flat` reads it back."""
        return {name: _plain(value) for name, value in self._values().items()}

    @property
    def given(self) -> frozenset[str]:
        """The flat names that were given, not left to their defaults."""
        names: set[str] = set()
        for name in self.model_fields_set:
            value = getattr(self, name)
            names |= value.given if isinstance(value, Config) else {name}
        return frozenset(names)

    def _values(self) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for name, value in self:
            flat |= value._values() if isinstance(value, Config) else {name: value}
        return flat

    def _all_conflicts(self) -> list[str]:
        parts = [part for _, part in self if isinstance(part, Config)]
        return [line for part in parts for line in part._all_conflicts()] + self.conflicts()

    @classmethod
    def _made(cls, values: Mapping[str, Any], given: Set[str], base: Self | None) -> Self:
        config, problems = cls._assembled(values, given, base)
        lines = [problems[name] for name in cls.settings if name in problems]
        lines += [_unknown(cls, name) for name in values if name not in cls.settings]
        _refuse(lines + (config._all_conflicts() if config is not None else []))
        return cast(Self, config)  # None comes with a problem

    @classmethod
    def _assembled(
        cls, values: Mapping[str, Any], given: Set[str], base: Self | None
    ) -> tuple[Self | None, dict[str, str]]:
        """A config of the right ones among the flat `values`, all else as in `base` or as declared, and the problems.

        Conflicts are not looked at. There is no config where a value that is needed lacks.
        """
        problems: dict[str, str] = {}
        old: dict[str, Any] = {} if base is None else dict(base)
        new: dict[str, Any] = {}
        for name, info in cls.model_fields.items():
            part = old.get(name, info.default)
            if not isinstance(part, Config):
                new |= {name: values[name]} if name in values else {}
            elif part.settings.keys() & values.keys():
                # A part has no needed values, since it has a default: there always is a config of it.
                new[name], wrong = part._assembled(values, given, part)
                problems |= wrong
        config = cls.__new__(cls)
        if wrong := _fill(config, old | new):
            problems |= wrong
            config = cls.__new__(cls)
            if _fill(config, old | {name: value for name, value in new.items() if name not in wrong}):
                return None, problems
        names = {
            name
            for name, value in config
            if (value.settings.keys() & given if isinstance(value, Config) else name in given)
        }
        return cast(Self, cls.model_construct(_fields_set=names, **dict(config))), problems


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`--name was X, not Y` for every flat name whose values, as JSON knows them, differ."""
    return [
        f"{flag_name(name)} was {json.dumps(before.get(name))}, not {json.dumps(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _fill(config: Config, values: Mapping[str, Any]) -> dict[str, str]:
    """Give `config` its fields, or say in a sentence each what is wrong with which."""
    try:
        BaseModel.__init__(config, **values)
    except ValidationError as error:
        problems: dict[str, str] = {}
        for one in error.errors(include_url=False):
            name = str(one["loc"][0])
            if one["type"] == "extra_forbidden":
                sentence = _unknown(type(config), name)
            elif isinstance(type(config).model_fields[name].default, Config):
                sentence = f"{name} must be a part of the settings, not {one['input']!r}"
            else:
                sentence = f"{flag_name(name)} {type(config).settings[name].complaint(one)}"
            problems[name] = f"{problems[name]}; {sentence}" if name in problems else sentence
        return problems
    return {}


def _unknown(config: type[Config], name: str) -> str:
    return f"there is no {flag_name(name)}{did_you_mean(flag_name(name), map(flag_name, config.settings))}"


def _refuse(problems: list[str]) -> None:
    if problems:
        raise UsageError("; ".join(problems))


def _title(config: type[Config], name: str) -> str:
    """What the settings that a field is declared with are about."""
    owner = next(one for one in config.__mro__ if name in inspect.get_annotations(one))
    return (owner.__doc__ or "").partition("\n")[0]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value

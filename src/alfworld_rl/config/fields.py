"""One setting: what kind of value it takes, how a text becomes that value, and what is said of a wrong one."""

import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from alfworld_rl.registry import Registry

LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
NOUNS = {int: "a whole number", float: "a number", bool: "on or off", str: "text", Path: "a path"}


def option(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    metavar: str | None = None,
    positional: bool = False,
    short: str | None = None,
) -> Any:
    """A field of a Config: its default (`...` where it is needed), its help, the limits of a number, what help calls
    the value, whether it stands on a command line without its flag, and a short form of the flag ("-o")."""
    limits: dict[str, Any] = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    extra: dict[str, Any] = {"metavar": metavar} if metavar else {}
    extra |= {"positional": True} if positional else {}
    extra |= {"short": short} if short else {}
    return Field(default, description=help, json_schema_extra=extra or None, **limits)


class Check:
    """A check of a text or path, part of its type: `RunName = Annotated[str, Check(run_name_problem)]`.

    `complaint(value)` is None, or the rest of a sentence that starts with the flag ("must not be empty").
    """

    def __init__(self, complaint: Callable[[Any], str | None]) -> None:
        self.complaint = complaint

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any) -> Any:
            if problem := self.complaint(value):
                raise ValueError(problem)
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))


class Name(Check):
    """A name that a registry knows: `EstimatorName = Annotated[str, Name(ESTIMATORS)]`. The help lists the names."""

    def __init__(self, registry: Registry[Any]) -> None:
        super().__init__(registry.complaint)
        self.registry = registry


@dataclass(frozen=True)
class Setting:
    """A field that is a flag.

    - element: the type of one value: bool, int, float, str or Path; the type of the choices where there are `choices`.
    - many, optional: it is a tuple of such values; it may be None.
    - limits: what a number must satisfy, as words and bounds.
    - default: None with `required` where it must be given.
    - group: what the settings that it is declared with are about.
    """

    name: str
    help: str
    element: type
    many: bool
    optional: bool
    choices: tuple[Any, ...]
    limits: Mapping[str, float]
    registry: Registry[Any] | None
    default: Any
    required: bool
    metavar: str
    group: str
    positional: bool
    short: str | None

    @property
    def flag(self) -> str:
        return flag_name(self.name)

    def full_help(self, *, default: bool = True) -> str:
        """The help with the names that can be chosen and the default."""
        names = f": {', '.join(self.registry)}, or MODULE:FUNCTION" if self.registry is not None else ""
        shown = self.shown_default() if default else ""
        return self.help + names + (f" (default: {shown})" if shown else "")

    def shown_default(self) -> str:
        if self.default is True:
            return "on"
        if self.default is None or self.default is False or self.default == ():
            return ""
        return " ".join(map(str, self.default)) if self.many else str(self.default)

    def read(self, value: Any) -> Any:
        """`value` as this setting's type where it is its text, JSON or TOML; anything else as it is."""
        if self.many and isinstance(value, list | tuple):
            return tuple(self._read_one(part) for part in value)
        return value if self.many else self._read_one(value)

    def _read_one(self, value: Any) -> Any:
        if self.choices:
            return next((choice for choice in self.choices if str(choice) == value), value)
        if self.element is Path and isinstance(value, str | Path):
            if not str(value):
                raise ValueError("must name a path, not nothing")
            return Path(value).expanduser()
        if self.element in (int, float) and isinstance(value, str):
            try:
                return self.element(value)
            except ValueError:
                return value
        return value

    def complaint(self, error: Mapping[str, Any]) -> str:
        """What is wrong by an error of pydantic's, as the rest of a sentence that starts with the flag."""
        value = error["input"]
        match error["type"]:
            case "missing":
                return "is needed"
            case "value_error":
                return str(error["ctx"]["error"])
            case "finite_number":
                return f"must be a finite number, not {value}"
            case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than":
                wanted = " and ".join(f"{words} {_number(bound)}" for words, bound in self.limits.items())
                return f"must be {wanted}, not {_number(value)}"
            case "literal_error":
                return f"must be one of {', '.join(map(str, self.choices))}, not {value}"
            case "tuple_type":
                return f"must be a list, not {value!r}"
            case _:
                return f"must be {NOUNS[self.element]}, not {value!r}"


def _number(value: float) -> str:
    # A whole number in full: 2147483648 is not "2.14748e+09", which is what it should be at most.
    return str(value) if isinstance(value, int) else f"{value:g}"


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def setting(name: str, info: FieldInfo, group: str) -> Setting:
    """What a field is. Raises TypeError where its type is none that a flag can have."""
    metadata = list(info.metadata)
    optional = many = False
    kind: Any = info.annotation
    while True:
        if isinstance(kind, typing.TypeAliasType):
            kind = kind.__value__
        elif typing.get_origin(kind) is typing.Annotated:
            metadata += kind.__metadata__
            kind = kind.__origin__
        elif typing.get_origin(kind) in (types.UnionType, typing.Union):
            parts = [part for part in typing.get_args(kind) if part is not type(None)]
            optional = True
            kind = parts[0] if len(parts) == 1 else None
        elif typing.get_origin(kind) is tuple and typing.get_args(kind)[1:] == (...,):
            many = True
            kind = typing.get_args(kind)[0]
        else:
            break
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    element = type(choices[0]) if choices else kind
    if element not in NOUNS:
        raise TypeError(f"{name}: a setting is a bool, int, float, str, Path or Literal, None or a tuple of it")
    found = list(_flat(metadata))
    registry = next((item.registry for item in found if isinstance(item, Name)), None)
    limits = {
        words: bound
        for key, words in LIMITS.items()
        for item in found
        if (bound := getattr(item, key, None)) is not None
    }
    extra = info.json_schema_extra
    default = info.get_default(call_default_factory=True, validated_data={})
    return Setting(
        name=name,
        help=info.description or "",
        element=element,
        many=many,
        optional=optional,
        choices=choices,
        limits=limits,
        registry=registry,
        default=None if default is PydanticUndefined else default,
        required=default is PydanticUndefined,
        metavar=_metavar(extra, choices, registry, element),
        group=group,
        positional=isinstance(extra, dict) and bool(extra.get("positional")),
        short=str(extra["short"]) if isinstance(extra, dict) and "short" in extra else None,
    )


def _flat(metadata: list[Any]) -> Iterator[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _flat(item.metadata)
        else:
            yield item


def _metavar(extra: Any, choices: tuple[Any, ...], registry: Registry[Any] | None, element: type) -> str:
    if isinstance(extra, dict) and "metavar" in extra:
        return str(extra["metavar"])
    if choices:
        return "{" + ",".join(map(str, choices)) + "}"
    return "NAME" if registry is not None else {int: "N", float: "X", Path: "PATH"}.get(element, "TEXT")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`--name was X, not Y` for every name whose values differ."""
    return [
        f"{flag_name(name)} was {json.dumps(before.get(name))}, not {json.dumps(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]

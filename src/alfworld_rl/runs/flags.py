"""A command's flags are the fields of its settings dataclass; nothing is written down twice.

A field `games_per_batch: int = flag(8, "games of one update", low=1)` is the flag `--games-per-batch N`.
Values are read and checked here rather than by argparse, which would stop at the first mistake: a person
who mistyped three flags learns of all three at once.
"""

import argparse
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from alfworld_rl.errors import UsageError


@dataclass(frozen=True, slots=True)
class Flag:
    """What a field's metadata holds: its help and what its value must satisfy."""

    help: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    metavar: str | None = None
    check: Callable[[Any], str | None] | None = None

    def complaint(self, value: Any) -> str | None:
        """Why `value` cannot be, or None."""
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number, not {value}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            wanted = [f"at least {self.low:g}"] if self.low is not None else []
            wanted += [f"above {self.above:g}"] if self.above is not None else []
            wanted += [f"at most {self.high:g}"] if self.high is not None else []
            if (
                (self.low is not None and value < self.low)
                or (self.above is not None and value <= self.above)
                or (self.high is not None and value > self.high)
            ):
                return f"must be {' and '.join(wanted)}, not {value:g}"
        return self.check(value) if self.check else None


def flag(default: Any, help: str, **constraints: Any) -> Any:
    """A settings field with its default, its help text and its limits (`low`, `high`, `above`, `check`)."""
    return field(default=default, metadata={"flag": Flag(help, **constraints)})


def add_flags(parser: argparse.ArgumentParser, settings: type) -> None:
    """Give `parser` one flag for every field of the dataclass `settings`, grouped by the class it comes from."""
    hints = typing.get_type_hints(settings)
    parser.usage = "%(prog)s [flags]"
    left = _flagged(settings)
    for owner in settings.__mro__:
        own = [item for item in left if item.name in inspect.get_annotations(owner)]
        left = [item for item in left if item not in own]
        group = parser.add_argument_group(description=(owner.__doc__ or "").partition("\n")[0]) if own else parser
        for item in own:
            _add_flag(group, item, hints[item.name])


def _add_flag(group: Any, item: Field[Any], kind: Any) -> None:
    spec, element = _spec(item), _element(kind)
    help = spec.help + (f" (default: {_shown(item.default)})" if _shown(item.default) else "")
    options: dict[str, Any] = {"dest": item.name, "default": argparse.SUPPRESS, "help": help.replace("%", "%%")}
    if element is bool:
        # What is off unless asked for needs no way to be turned off.
        action = "store_true" if item.default is False else argparse.BooleanOptionalAction
        group.add_argument(option(item.name), action=action, **options)
        return
    choices = typing.get_args(element) if typing.get_origin(element) is Literal else ()
    options["metavar"] = spec.metavar or ("{" + ",".join(map(str, choices)) + "}" if choices else _metavar(kind))
    if typing.get_origin(kind) is tuple:
        options["nargs"] = "+"
    group.add_argument(option(item.name), **options)


def read_flags[S](settings: type[S], given: Mapping[str, Any]) -> S:
    """The settings that the parsed flags ask for. Raises UsageError naming every value that cannot be."""
    hints = typing.get_type_hints(settings)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in _flagged(settings):
        if item.name not in given:
            if item.default is MISSING and item.default_factory is MISSING:
                problems.append(f"{option(item.name)} is needed")
            continue
        try:
            values[item.name] = _read(given[item.name], hints[item.name])
        except ValueError as error:
            problems.append(f"{option(item.name)} {error}")
            continue
        parts = values[item.name] if isinstance(values[item.name], tuple) else (values[item.name],)
        for part in parts:
            if part is not None and (complaint := _spec(item).complaint(part)):
                problems.append(f"{option(item.name)} {complaint}")
    # Rules across fields look at whole settings, so that the wrong values give way to defaults for the moment.
    bad = {problem.split(" ", 1)[0] for problem in problems}
    usable = {name: value for name, value in values.items() if option(name) not in bad}
    if not any(problem.endswith(" is needed") for problem in problems):
        instance = settings(**usable)
        conflicts = getattr(instance, "conflicts", None)
        if conflicts is not None:
            problems += list(cast(Callable[[], Sequence[str]], conflicts)())
        if not problems:
            return instance
    raise UsageError("; ".join(problems))


def option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _flagged(settings: type) -> list[Field[Any]]:
    return [item for item in fields(settings) if "flag" in item.metadata]


def _spec(item: Field[Any]) -> Flag:
    spec: Flag = item.metadata["flag"]
    return spec


def _element(kind: Any) -> Any:
    """The type of one value: `X | None` and `tuple[X, ...]` are X."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = [part for part in typing.get_args(kind) if part is not type(None)]
    if typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)[0]
    return kind


def _metavar(kind: Any) -> str:
    return {int: "N", float: "X", Path: "PATH"}.get(_element(kind), "TEXT")


def _shown(default: Any) -> str:
    if default is True:
        return "on"
    return "" if default is None or default is False or default == () or default is MISSING else str(default)


def _read(text: Any, kind: Any) -> Any:
    if typing.get_origin(kind) is tuple:
        return tuple(_read(part, _element(kind)) for part in text)
    kind = _element(kind)
    if kind is bool:
        if not isinstance(text, bool):
            raise ValueError(f"must be on or off, not {text!r}")
        return text
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(map(str, choices))}, not {text}")
        return text
    if kind is Path:
        if not text:
            raise ValueError("must name a path, not nothing")
        return Path(text).expanduser()
    if kind is str:
        return text
    name = "a whole number" if kind is int else "a number"
    try:
        return kind(text)
    except (ValueError, TypeError):
        raise ValueError(f"must be {name}, not {text!r}") from None

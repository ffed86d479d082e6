"""Names that stand for things, such as rewards and estimators. Flags, checks, help and docs read them from here.

Where a name is asked for, `package.module:attribute` is one, too: an idea needs no change to this package to be tried.
"""

import difflib
import functools
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from alfworld_rl.errors import UsageError

type Parameter = bool | int | float | str

_PARAMETER_TYPES = (bool, int, float, str)


class Registry[T]:
    """Things of one kind by name, in the order in which they were added. `what` says the kind, such as "reward"."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, tuple[T, str]] = {}

    def add(self, name: str, thing: T, summary: str) -> None:
        """Add `thing` under `name`; `summary` is its line in help and docs."""
        if name in self._entries or ":" in name or not name:
            raise ValueError(f"{name!r} cannot be the name of another {self.what}")
        self._entries[name] = (thing, summary)

    def register[F](self, name: str, summary: str) -> Callable[[F], F]:
        """`add` as a decorator; what is decorated keeps its own type, parameters and all."""

        def decorate(thing: F) -> F:
            self.add(name, cast(T, thing), summary)
            return thing

        return decorate

    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def summaries(self) -> dict[str, str]:
        return {name: summary for name, (_, summary) in self._entries.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> T:
        """The thing called `name`. Raises UsageError for a name that is neither known nor importable."""
        try:
            return self._find(name)
        except ValueError as error:
            raise UsageError(f"the {self.what} {error}") from None

    def complaint(self, name: str) -> str | None:
        """Why `name` cannot be chosen, as the rest of a sentence that starts with the flag; None where it can."""
        try:
            self._find(name)
        except ValueError as error:
            return str(error)
        return None

    def parameters(self, name: str) -> dict[str, Parameter]:
        """Name and default of what a registered function can be told: its keyword-only parameters of plain types."""
        thing = self[name]
        if not callable(thing):
            return {}
        return {
            parameter.name: parameter.default
            for parameter in inspect.signature(thing).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, _PARAMETER_TYPES)
        }

    def bind(self, name: str, /, **values: Any) -> T:
        """The function called `name` with some of its parameters set (a `functools.partial`).

        Raises UsageError for a parameter that it does not have and for a value of another type than the default's.
        """
        known = self.parameters(name)
        problems = []
        for parameter, value in values.items():
            if parameter not in known:
                there = f"it has {', '.join(known)}" if known else "it has none"
                problems.append(f"has no parameter {parameter}{did_you_mean(parameter, known)}, {there}")
            elif wanted := _wanted(known[parameter], value):
                problems.append(f"needs {wanted} as its {parameter}, not {value!r}")
        if problems:
            raise UsageError("; ".join(f"the {self.what} {name} {problem}" for problem in problems))
        return cast(T, functools.partial(cast(Callable[..., Any], self[name]), **values))

    def _find(self, name: str) -> T:
        if name in self._entries:
            return self._entries[name][0]
        if ":" not in name:
            raise ValueError(f"must be one of {', '.join(self)}, not {name}{did_you_mean(name, self)}")
        thing = _imported(name)
        if not callable(thing) and all(callable(known) for known, _ in self._entries.values()):
            raise ValueError(f"{name} is not a function")
        return cast(T, thing)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` (did you mean NEAREST?)`, or nothing where no name is near."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _imported(place: str) -> Any:
    """What `package.module:attribute` names. Raises ValueError, the rest of a sentence, where there is none."""
    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"{place} must be written as MODULE:NAME")
    # A console script, other than `python -m`, does not look for modules where it was started. Last in line, so that
    # nothing is shadowed; for good, so that processes started from this one find the module, too.
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        thing: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module of a stranger does
        raise ValueError(f"{place} cannot be imported ({type(error).__name__}: {error})") from error
    try:
        return functools.reduce(getattr, attribute.split("."), thing)
    except AttributeError:
        names = [name for name in vars(thing) if not name.startswith("_")]
        raise ValueError(
            f"{place} cannot be imported (module {module_name} has no {attribute!r}{did_you_mean(attribute, names)})"
        ) from None


def _wanted(default: Parameter, value: Any) -> str | None:
    """What `value` would have to be to take the place of `default`, or None where it can."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "True or False"
    if isinstance(default, int):
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    if isinstance(default, float):
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return None if number else "a finite number"
    return None if isinstance(value, str) else "text"

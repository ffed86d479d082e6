"""A config's settings as the flags of a command, as a settings file, and as a table for the docs."""

import argparse
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from alfworld_rl.config.base import Config
from alfworld_rl.config.fields import Setting, flag_name
from alfworld_rl.errors import UsageError

_FILE_HELP = "settings from a TOML file (max-steps = 40), or those of a run folder; flags go before them"


def add_flags(parser: argparse.ArgumentParser, config: type[Config], *, completing: bool = False) -> None:
    """Give `parser` one flag for every setting of `config`, and --config for a file of them.

    Values are not read or checked here, since argparse would stop at the first mistake: `read_flags` does it. What is
    not given is not in the namespace. A parser for shell completion (`completing`) also knows what can be given.
    """
    parser.usage = "%(prog)s [flags]"
    file = parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=_FILE_HELP)
    if completing:
        _complete_files(file)
    for title, settings in _groups(config):
        group = parser.add_argument_group(description=title.replace("%", "%%"))
        for setting in settings:
            action = _add_flag(group, setting)
            if completing and setting.element is Path:
                _complete_files(action)
            elif completing and (names := setting.choices or setting.registry):
                action.choices = tuple(names)


def read_flags[C: Config](config: type[C], given: Mapping[str, Any], unknown: Sequence[str] = ()) -> C:
    """The config that the parsed flags ask for: flags go before the file of --config, which goes before defaults.

    `unknown` is what `parse_known_args` left over, so that a mistyped flag is refused together with wrong values.
    Raises UsageError naming everything that cannot be.
    """
    flags = dict(given)
    values = read_config(Path(flags.pop("config"))) if "config" in flags else {}
    if unknown and not unknown[0].startswith("--"):
        raise UsageError(f"{unknown[0]!r} belongs to no flag")
    # Words after a flag that is unknown are taken for its values.
    flags |= {_name(word.partition("=")[0]): None for word in unknown if word.startswith("--")}
    return config.from_flat(values | flags)


def read_config(path: Path) -> dict[str, Any]:
    """The flat names and values of a TOML file, of a run's settings.json, or of the run folder that holds one.

    Keys may be written as flags are (max-steps) or with underscores. Nulls of a settings.json were not set, and its
    `command` is no setting. Raises UsageError where the file cannot be read; names and values are checked by
    `Config.from_flat`.
    """
    path = path.expanduser()
    if path.is_dir():
        path = path / "settings.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"the settings file {path} cannot be read ({reason})") from error
    try:
        values = json.loads(text) if path.suffix == ".json" else _toml(text)
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(f"the settings file {path} is not {kind} ({error})") from error
    if not isinstance(values, dict):
        raise UsageError(f"the settings file {path} must hold names and values")
    if tables := [name for name, value in values.items() if isinstance(value, dict)]:
        raise UsageError(
            f"the settings file {path} has the section {tables[0]}; settings have no sections, "
            "write each as a line of its own at the top"
        )
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = _name(key)
        if name in flat:
            raise UsageError(f"the settings file {path} has {key} twice")
        if value is not None and name != "command":
            flat[name] = value
    return flat


def flags_table(config: type[Config]) -> str:
    """The settings as Markdown: under each group's title a table of flag, default and help."""
    parts = []
    for title, settings in _groups(config):
        rows = [
            f"| `{_synopsis(one)}` | {_code(one.shown_default())} | {_cell(one.full_help(default=False))} |"
            for one in settings
        ]
        parts.append("\n".join([title, "", "| flag | default | what |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _groups(config: type[Config]) -> Iterator[tuple[str, list[Setting]]]:
    """Title and settings of each class that settings come from: the command's own first, then those it is made of."""
    parts = {name for name, info in config.model_fields.items() if isinstance(info.default, Config)}
    owners = [inspect.get_annotations(one).keys() - parts for one in config.__mro__]

    def place(setting: Setting) -> int:
        return next((number for number, names in enumerate(owners) if setting.name in names), len(owners))

    for title, group in groupby(sorted(config.settings.values(), key=place), key=lambda one: one.group):
        yield title, list(group)


def _add_flag(group: Any, setting: Setting) -> Any:
    if setting.positional:
        count: dict[str, Any] = {"nargs": "+"} if setting.many else {}
        help = setting.help.replace("%", "%%")
        return group.add_argument(setting.name, metavar=setting.name.upper(), help=help, **count)
    options: dict[str, Any] = {
        "dest": setting.name,
        "default": argparse.SUPPRESS,
        "help": setting.full_help().replace("%", "%%"),
    }
    if setting.element is bool:
        # What is off unless asked for needs no way to be turned off.
        options["action"] = "store_true" if setting.default is False else argparse.BooleanOptionalAction
    else:
        options["metavar"] = setting.metavar
        if setting.many:
            options["nargs"] = "+"
    return group.add_argument(*([setting.short] if setting.short else []), setting.flag, **options)


def _complete_files(action: Any) -> None:
    import shtab

    action.complete = shtab.FILE


def _synopsis(setting: Setting) -> str:
    if setting.positional:
        return setting.name.upper() + (" ..." if setting.many else "")
    if setting.element is bool:
        return setting.flag if setting.default is False else f"{setting.flag}, {flag_name('no_' + setting.name)}"
    short = f"{setting.short}, " if setting.short else ""
    return f"{short}{setting.flag} {setting.metavar}" + (" ..." if setting.many else "")


def _name(written: str) -> str:
    """The flat name of what is written as a flag or a key."""
    return written.removeprefix("--").replace("-", "_")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)

"""The official `AlfredTWEnv` (alfworld 0.4.2), with worlds of our own behind it.

The same for the same config and disk: the games and their order, the order they are played in for every `seed`,
observations, scores, dones and infos with their types, the step limit, what happens after a game is done.

Different, on purpose:

- `infos` never holds `facts`; the official class sends TextWorld's internal facts where it sends an expert plan.
- The games of a batch are played in this process; nothing is forked and nothing has to be closed.
- `extra.expert_plan` (sent with training_method "dagger" on the train split only) is the official hand-coded
  expert's where the extra `alfworld` is installed, whatever `expert_type` says, as in the official class, which loses
  that setting on the way. Without the extra, or with `expert_type: demonstrator`, it is the next command of
  `alfworld_rl.imitation.expert`, from the first observation on.
- `domain_randomization` shuffles the numbers of objects with Python's `random` at every reset, as the official class
  does, but not into the same permutation.
- `extra.expert_plan` is `["look"]` where the expert cannot make a plan; the official class lets its error end the game.
- Importing nothing of alfworld, it does not set ALFWORLD_DATA. Where that is not set, `$ALFWORLD_DATA` in the config
  stands for `~/.cache/alfworld`, as in the official class, if games lie there, else for the folder that
  `config.workspace.alfworld_games` finds.
- A mistake in the config is one sentence; `config` may also be the path of a YAML file (extra `gym`).
- `get_game_logic` takes this package's copy, and warns, where a file is not there. `is_solvable`, a tool for making
  games, is not here: see `alfworld-rl games generate`.
"""

import json
import os
import re
import warnings
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, overload

from alfworld_rl import games
from alfworld_rl.compat.batch import BatchEnv, SingleEnv
from alfworld_rl.config.workspace import alfworld_games, download_cache, has_games
from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games import discover

TASK_TYPES = dict(enumerate(games.TASK_TYPES, 1))
"""Task types by the number that `env.task_types` gives them."""

_DATA = {
    "train": ("data_path", "num_train_games"),
    "eval_in_distribution": ("eval_id_data_path", "num_eval_games"),
    "eval_out_of_distribution": ("eval_ood_data_path", "num_eval_games"),
}


def get_environment(env_type: str) -> type["AlfredTWEnv"]:
    """The class of that name, as `alfworld.agents.environment.get_environment` gives it."""
    if env_type == "AlfredTWEnv":
        return AlfredTWEnv
    raise NotImplementedError(
        f"{env_type!r} is not here: alfworld_rl plays the text games only. "
        "For AI2-THOR use alfworld.agents.environment.get_environment."
    )


class AlfredTWEnv:
    """A pool of ALFWorld's text games; `init_env` makes the environment that plays them.

    `config` is a mapping with the official keys or the path of such a YAML file; `train_eval` is "train",
    "eval_in_distribution" or "eval_out_of_distribution". Raises UsageError for a config that cannot be used and for a
    folder without games.
    """

    def __init__(self, config: Mapping[str, Any] | str | os.PathLike[str], train_eval: str = "train") -> None:
        if not isinstance(config, Mapping | str | os.PathLike):
            raise UsageError(f"config is {config!r}; it has to be a dict or the path of a YAML file.")
        self.config = config if isinstance(config, Mapping) else _read_yaml(Path(config))
        if not isinstance(train_eval, str) or train_eval not in _DATA:
            raise UsageError(f"train_eval is {train_eval!r}; it can be {', '.join(_DATA)}.")
        self.train_eval = train_eval
        self.game_files: list[str] = []
        self.num_games = 0
        self.collect_game_files()

    def collect_game_files(self, verbose: bool = False) -> None:
        """Fill `game_files` and `num_games`, in the order in which the official class finds them on this disk."""
        path_key, limit_key = _DATA[self.train_eval]
        data_path = _expanded(_path(self.config, f"dataset.{path_key}"))
        wanted = {TASK_TYPES[number] for number in _numbers(self.config, "env.task_types") if number in TASK_TYPES}
        limit = _number(self.config, f"dataset.{limit_key}", "-1 for all games")
        task_types = _task_types(Path(data_path))
        self.game_files = []
        # The order of os.walk is that of the file system; the official class relies on it, so it is taken from there.
        for root, _, _ in os.walk(data_path, topdown=False):
            if "movable" in root or "Sliced" in root:
                continue
            game_file = os.path.join(root, "game.tw-pddl")
            task_type = task_types.get(os.path.normpath(game_file))
            if task_type in wanted:
                self.game_files.append(game_file)
            elif verbose and task_type:
                print(f"Skipping {task_type}: {game_file}")
        if not self.game_files:
            raise UsageError(f"No game in {data_path} is of the types that env.task_types asks for.")
        if limit > 0:
            self.game_files = self.game_files[:limit]
        self.num_games = len(self.game_files)

    def get_game_logic(self) -> None:
        """Fill `game_logic` with the texts that `logic.domain` and `logic.grammar` of the config name.

        Subclasses made for the official class call it; the games played here hold their own domain and grammar.
        """
        self.game_logic = {
            "pddl_domain": _logic(self.config, "logic.domain", "domain.pddl"),
            "grammar": _logic(self.config, "logic.grammar", "grammar.twl2"),
        }

    @overload
    def init_env(self, batch_size: int) -> BatchEnv: ...
    @overload
    def init_env(self, batch_size: None) -> SingleEnv: ...
    def init_env(self, batch_size: int | None) -> BatchEnv:
        """An environment that plays `batch_size` games at once; None plays one, without the lists around it."""
        method = _setting(self.config, "general.training_method")
        training = self.train_eval == "train"
        if method == "dqn":
            max_steps = _limit(self.config, "rl.training.max_nb_steps_per_episode")
            expert: Literal["handcoded", "demonstrator"] | None = None
        elif method == "dagger":
            max_steps = _limit(self.config, "dagger.training.max_nb_steps_per_episode")
            expert = self._expert() if training else None
        else:
            raise NotImplementedError(f"general.training_method is {method!r}; it can be 'dagger' or 'dqn'.")
        kind = SingleEnv if batch_size is None else BatchEnv
        return kind(
            self.game_files,
            batch_size=1 if batch_size is None else batch_size,
            max_episode_steps=max_steps,
            expert=expert,
            shuffle_numbers=training and bool(_setting(self.config, "env.domain_randomization")),
        )

    def _expert(self) -> Literal["handcoded", "demonstrator"]:
        expert_type = _setting(self.config, "env.expert_type")
        if expert_type not in ("handcoded", "planner", "demonstrator"):
            raise UsageError(f"env.expert_type is {expert_type!r}; it can be handcoded, planner or demonstrator.")
        if expert_type == "demonstrator" or find_spec("alfworld") is None:
            return "demonstrator"
        return "handcoded"


def _setting(config: Mapping[str, Any], name: str) -> Any:
    value: Any = config
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise UsageError(f"The config has no {name}; ALFWorld's base_config.yaml shows all settings.")
        value = value[key]
    return value


def _path(config: Mapping[str, Any], name: str) -> str:
    value = _setting(config, name)
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise _wrong(name, value, "the path of a folder" if name.startswith("dataset.") else "the path of a file")
    return os.fspath(value)


def _number(config: Mapping[str, Any], name: str, hint: str) -> int:
    value = _setting(config, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value, f"a whole number, {hint}")
    return value


def _numbers(config: Mapping[str, Any], name: str) -> list[int]:
    value = _setting(config, name)
    if not isinstance(value, list | tuple) or not value or not all(isinstance(number, int) for number in value):
        raise _wrong(name, value, f"a list of numbers from 1 to {len(TASK_TYPES)}")
    return list(value)


def _limit(config: Mapping[str, Any], name: str) -> int | None:
    """A number of steps; None or 0: no limit."""
    if _setting(config, name) is None:
        return None
    limit = _number(config, name, "0 or null for no limit")
    if limit < 0:
        raise _wrong(name, limit, "a whole number, 0 or null for no limit")
    return limit


def _wrong(name: str, value: object, wanted: str) -> UsageError:
    said = "null" if value is None else repr(value)
    return UsageError(f"{name} of the config is {said}; it has to be {wanted}.")


def _expanded(path: str) -> str:
    """`path` with the values of the environment variables in it. Without ALFWORLD_DATA, see this module's docstring."""
    if not os.environ.get("ALFWORLD_DATA"):
        root = download_cache() if has_games(download_cache()) else alfworld_games()
        path = re.sub(r"\$(ALFWORLD_DATA\b|\{ALFWORLD_DATA\})", lambda _: str(root), path)
    return os.path.expandvars(path)


def _logic(config: Mapping[str, Any], name: str, ours: str) -> str:
    path = _expanded(_path(config, name))
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        warnings.warn(f"{name} of the config, {path}, is not there; ALFWorld's own text stands in.", stacklevel=3)
        return files("alfworld_rl.games").joinpath("data", ours).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} of the config, {path}, cannot be read: {error}") from None


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UsageError(f"A YAML config needs PyYAML: run `{installing('gym')}`, or pass a dict.") from None
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The config {path} cannot be read: {error}") from None
    if not isinstance(config, Mapping):
        raise UsageError(f"The config {path} holds no settings.")
    return config


def _task_types(data_path: Path) -> dict[str, str]:
    """The task type of every solvable game below `data_path`, by the normalized path of its file."""
    if not data_path.is_dir():
        raise UsageError(
            f"There is no folder {data_path}: download ALFWorld's games with alfworld-download and set "
            "ALFWORLD_DATA, or correct the path in the config."
        )
    if data_path.parent.name == "json_2.1.1" and data_path.name in ("train", "valid_seen", "valid_unseen"):
        # The listing of a split is kept in an index; reading 3,553 games takes seconds each time.
        games = discover(data_path.parent.parent, data_path.name).games
        return {os.path.normpath(game.path): game.task_type for game in games}
    found: dict[str, str] = {}
    for root, _, names in os.walk(data_path):
        if "traj_data.json" in names and "game.tw-pddl" in names:
            game_file = os.path.join(root, "game.tw-pddl")
            try:
                game = json.loads(Path(game_file).read_bytes())
                task_type = json.loads(Path(root, "traj_data.json").read_bytes())["task_type"]
                solvable = game.get("solvable")
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise UsageError(
                    f"The game in {root} cannot be read ({error!r}): remove it or download it again."
                ) from None
            if solvable:
                found[os.path.normpath(game_file)] = task_type
    return found

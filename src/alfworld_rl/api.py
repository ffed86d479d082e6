"""The front door for notebooks and programs: the rooms' own functions, with the defaults of a person who tries.

Nothing here prints or needs a folder. What is awaited can be awaited in a notebook as it is.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

from alfworld_rl.agents import FORMATS, AgentFormat, CommandsShown
from alfworld_rl.algorithms.advantages import ESTIMATORS
from alfworld_rl.algorithms.data import GroupAdvantages, TrainingData, estimate
from alfworld_rl.algorithms.data import make_data as _make_data
from alfworld_rl.algorithms.optimize import Update, optimize
from alfworld_rl.algorithms.rewards import REWARDS, Reward, StepRewards, score_groups
from alfworld_rl.backends import BackendConfig, open_backend
from alfworld_rl.backends.base import Backend, Sampler, Trainer
from alfworld_rl.config.workspace import alfworld_games, home
from alfworld_rl.envs import ENVIRONMENTS, EnvironmentFamily
from alfworld_rl.evaluation.compare import compare
from alfworld_rl.evaluation.evaluate import Evaluation
from alfworld_rl.evaluation.evaluate import evaluate as _evaluate
from alfworld_rl.rollouts import DEFAULT_LIMITS, NEAR_GREEDY, Group, Limits, Sampling
from alfworld_rl.rollouts import rollout as _rollout
from alfworld_rl.types import AdamParams, LossName, LossSpec, Task, TrainingStart

__all__ = [
    "Games",
    "compare",
    "evaluate",
    "load_games",
    "make_agent",
    "make_data",
    "open_sampler",
    "open_trainer",
    "rollout",
    "update",
]


class Games(Sequence[Task]):
    """Tasks together with the environments they are played in; a slice of it is another."""

    def __init__(self, tasks: Sequence[Task], family: EnvironmentFamily) -> None:
        self._tasks = tuple(tasks)
        self.family = family

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "Games": ...
    def __getitem__(self, index: int | slice) -> "Task | Games":
        if isinstance(index, slice):
            return Games(self._tasks[index], self.family)
        return self._tasks[index]

    def __repr__(self) -> str:
        kinds = sorted({task.task_type for task in self._tasks})
        return f"Games({len(self)} games of {len(kinds)} task types)"


def load_games(data_root: str | Path | None = None, split: str = "train", *, environment: str = "fast") -> Games:
    """The games of a split under `data_root` (the folder that holds json_2.1.1; default: where they usually lie).

    `environment` is a name of `--environment`, or `module:function`. Raises UsageError where there are no games.
    """
    family = ENVIRONMENTS[environment](alfworld_games(data_root))
    return Games(family.tasks(split), family)


def open_trainer(
    base_model: str | None = None,
    *,
    backend: str = "local",
    weights: str | None = None,
    state: str | None = None,
    lora_rank: int = 32,
    seed: int = 42,
    runs_dir: Path | None = None,
) -> Trainer:
    """A trainer of a base model, of a checkpoint's `weights` (with a fresh optimizer), or of a saved `state`.

    `lora_rank` 0 trains all weights. Checkpoints are written under `runs_dir` (default: 08-alfworld/runs) when they
    are saved and not before.
    """
    opened, model = _open(backend, base_model, runs_dir)
    given = {"weights": weights, "state": state}
    start = TrainingStart(**given) if weights or state else TrainingStart(base_model=model)
    return opened.trainer(start, lora_rank=lora_rank, seed=seed)


def open_sampler(
    base_model: str | None = None, *, backend: str = "local", weights: str | None = None, runs_dir: Path | None = None
) -> Sampler:
    """A sampler of a base model, or of the sampler weights that a run saved."""
    opened, model = _open(backend, base_model, runs_dir)
    return opened.sampler(model, weights)


def _open(backend: str, base_model: str | None, runs_dir: Path | None) -> tuple[Backend, str]:
    config = BackendConfig(backend=backend, base_model=base_model)
    return open_backend(config, runs_dir=runs_dir or home() / "runs"), config.model


def make_agent(
    model: Trainer | Sampler, format: str = "tool-call", *, commands: CommandsShown = "full", **options: Any
) -> AgentFormat:
    """How the model of a trainer or sampler reads and acts; `commands` says how admissible commands are shown.

    Raises ChatTemplateError where the model's chat template cannot carry the format.
    """
    return FORMATS[format](model.tokenizer, commands, **options)


async def rollout(
    games: Games,
    sampler: Sampler,
    agent: AgentFormat,
    *,
    group_size: int = 8,
    limits: Limits = DEFAULT_LIMITS,
    sampling: Sampling | None = None,
    seed: int = 0,
    in_flight: int | None = None,
) -> list[Group]:
    """Play `group_size` trajectories of each game; the groups come back in the order of `games`."""
    return await _rollout(
        games,
        sampler,
        agent,
        games.family,
        group_size=group_size,
        limits=limits,
        sampling=sampling or Sampling(),
        seed_path=(seed,),
        in_flight=in_flight,
    )


def make_data(groups: Sequence[Group], advantages: Sequence[GroupAdvantages]) -> TrainingData:
    """One training sequence for each trajectory that has an advantage in some step; see `algorithms.data`."""
    return _make_data(groups, advantages)


def update(
    trainer: Trainer,
    data: TrainingData,
    *,
    loss: LossName | LossSpec = "ppo",
    learning_rate: float = 1e-6,
    epochs: int = 1,
    minibatches: int = 1,
    seed: int = 0,
    **adam: float,
) -> Update:
    """Change the trainer's weights; nothing happens where `data` is empty. `adam`: other fields of `AdamParams`."""
    spec = loss if isinstance(loss, LossSpec) else LossSpec(loss)
    params = AdamParams(learning_rate=learning_rate, **adam)
    return optimize(trainer, data.data, spec, params, epochs=epochs, minibatches=minibatches, seed_path=(seed,))


async def evaluate(
    games: Games,
    sampler: Sampler,
    agent: AgentFormat,
    *,
    samples_per_game: int = 1,
    limits: Limits = DEFAULT_LIMITS,
    sampling: Sampling = NEAR_GREEDY,
    reward: str | Reward = "document",
    seed: int = 42,
    in_flight: int = 16,
    on_finished: Callable[[Any], None] | None = None,
) -> Evaluation:
    """Play each game `samples_per_game` times and count; see `evaluation.evaluate`."""
    return await _evaluate(
        games,
        sampler,
        agent,
        games.family,
        samples_per_task=samples_per_game,
        limits=limits,
        sampling=sampling,
        reward=REWARDS[reward] if isinstance(reward, str) else reward,
        seed=seed,
        in_flight=in_flight,
        on_finished=on_finished,
    )


class _Named:
    """The entries of a registry as attributes: `rewards.penalized_success` is the entry `penalized-success`."""

    def __init__(self, registry: Any, wrap: Callable[[str], Any]) -> None:
        self._registry = registry
        self._wrap = wrap

    def __getattr__(self, name: str) -> Any:
        entry = name.replace("_", "-")
        if entry not in self._registry:
            raise AttributeError(f"there is no {self._registry.what} {name}; there are {', '.join(self.__dir__())}")
        return self._wrap(entry)

    def __dir__(self) -> list[str]:
        return [name.replace("-", "_") for name in self._registry.names()]


def _reward(name: str) -> Callable[..., list[list[StepRewards]]]:
    def of(groups: Sequence[Group], **parameters: Any) -> list[list[StepRewards]]:
        return score_groups(groups, REWARDS.bind(name, **parameters))

    of.__name__, of.__doc__ = name, REWARDS[name].__doc__
    return of


def _advantage(name: str) -> Callable[..., list[GroupAdvantages]]:
    def of(
        groups: Sequence[Group], rewards: Sequence[Sequence[StepRewards]], **parameters: Any
    ) -> list[GroupAdvantages]:
        return estimate(groups, rewards, ESTIMATORS.bind(name, **parameters))

    of.__name__, of.__doc__ = name, ESTIMATORS[name].__doc__
    return of


rewards = _Named(REWARDS, _reward)
"""`rewards.NAME(groups, **parameters)`: the rewards of every step of every trajectory of every group."""

advantages = _Named(ESTIMATORS, _advantage)
"""`advantages.NAME(groups, rewards, **parameters)`: the advantages of the steps of every group."""

"""What each command can be asked for. The flags, their defaults, their help and their limits all come from here."""

# ruff: noqa: RUF009  (flag() is dataclasses.field() with checks)

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from alfworld_rl.errors import UsageError
from alfworld_rl.runs.flags import flag, option, read_flags

if TYPE_CHECKING:
    from alfworld_rl.learning.updates import LearningSettings
    from alfworld_rl.rollouts.settings import RolloutSettings

BackendName = Literal["trio", "local", "tinker"]
AdvantageName = Literal["mean", "standardized", "leave-one-out", "gigpo"]
SwanLabMode = Literal["online", "local", "offline", "disabled"]
EvaluationSplit = Literal["valid_seen", "valid_unseen", "all"]

BUILT_IN_MODEL = "alfworld-tiny"
DOCUMENT_MODEL = "Qwen/Qwen3.5-4B"


def project_root() -> Path:
    """The folder that holds `08-alfworld`: here or above, else this checkout's, else here."""
    here = Path.cwd()
    checkout = Path(__file__).resolve().parents[3]
    for folder in (here, *here.parents, checkout):
        if (folder / "08-alfworld").is_dir():
            return folder
    return here


def home() -> Path:
    """`08-alfworld`: where datasets, runs, results and images lie unless a flag says otherwise."""
    return project_root() / "08-alfworld"


def alfworld_games() -> Path:
    """The data root that is read unless a flag says otherwise; `alfworld-download` fills it."""
    return home() / "datasets" / "alfworld"


def generated_games() -> Path:
    """The data root of the games that the quick start makes where there are none of ALFWorld's."""
    return home() / "datasets" / "generated"


def run_name_problem(name: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        return None
    return f"must be letters, digits, '.', '_' and '-' (it names a folder), not {name!r}"


def _not_empty(text: str) -> str | None:
    return None if text.strip() else "must not be empty"


def _labelled(text: str) -> str | None:
    label, separator, path = text.partition("=")
    return None if separator and label and path else f"must be LABEL=PATH, not {text!r}"


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """What every command knows."""

    debug: bool = flag(False, "show the traceback of an error")


@dataclass(frozen=True, kw_only=True)
class BackendSettings:
    """Which model, and behind which backend."""

    backend: BackendName = flag("trio", "where the model lives")
    base_model: str | None = flag(
        None,
        f"the model to start from (default: {DOCUMENT_MODEL}; with --backend local the built-in {BUILT_IN_MODEL})",
        check=_not_empty,
    )

    @property
    def model(self) -> str:
        """The base model's name, given or implied by the backend."""
        return self.base_model or (BUILT_IN_MODEL if self.backend == "local" else DOCUMENT_MODEL)


@dataclass(frozen=True, kw_only=True)
class ModelSettings(BackendSettings):
    """Training on this computer."""

    micro_batch_tokens: int = flag(8192, "local backend: tokens that go through the model at once", low=1)
    bfloat16: bool = flag(
        False, "local backend: train with bfloat16 matrix products, faster where the processor has them"
    )


@dataclass(frozen=True, kw_only=True)
class RunSettings(CommandSettings, ModelSettings):
    """A run: a folder of checkpoints that can be gone on with."""

    lora_rank: int = flag(32, "rank of the LoRA adapters; 0 trains all weights (local backend)", low=0)
    beta1: float = flag(0.9, "Adam's first decay", low=0, high=0.999999)
    weight_decay: float = flag(0.0, "decoupled weight decay", low=0)
    grad_clip_norm: float = flag(1.0, "bound on the norm of the gradient; 0: none", low=0)
    run_name: str = flag("alfworld-agent-rl", "name of the run folder under 08-alfworld/runs", check=run_name_problem)
    init_from: str | None = flag(None, "start from the weights of this checkpoint URI", metavar="URI", check=_not_empty)
    resume: str | None = flag(
        None, "go on with this run (a name under 08-alfworld/runs)", metavar="RUN", check=run_name_problem
    )
    swanlab_project: str = flag("alfworld-agent-rl", "SwanLab project", check=_not_empty)
    swanlab_mode: SwanLabMode = flag("online", "where SwanLab keeps the metrics")

    #: The command that makes such a run.
    command: ClassVar[str]
    #: What may change when a run goes on, since it does not change what is learned.
    changeable_on_resume: ClassVar[frozenset[str]] = frozenset(
        {"resume", "save_every", "data_root", "micro_batch_tokens", "swanlab_project", "swanlab_mode", "debug"}
    )

    def run_conflicts(self) -> list[str]:
        problems = []
        if self.lora_rank == 0 and self.backend != "local":
            problems.append("--lora-rank 0 (all weights) needs --backend local")
        if self.init_from is not None and self.resume is not None:
            problems.append("--init-from starts a new run and --resume goes on with an old one; give one of them")
        return problems


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """How a game is played; what changes the score of a model belongs here."""

    data_root: Path | None = flag(None, "folder that holds json_2.1.1 (default: 08-alfworld/datasets/alfworld)")
    environment: Literal["fast", "textworld"] = flag("fast", "this project's engine, or the official stack")
    environment_asynchronous: bool = flag(True, "textworld only: step the worlds in processes of their own")
    max_episode_steps: int = flag(50, "steps a game may take", low=1)
    admissible_commands: Literal["full", "changes", "none"] | None = flag(
        None, "list the admissible commands in every answer, only what changed, or never (default: full)"
    )
    include_admissible_actions: bool | None = flag(None, "the same as --admissible-commands full, or none")
    max_trajectory_tokens: int = flag(12000, "tokens of a whole trajectory", low=256)
    max_assistant_tokens: int = flag(2048, "tokens of one message of the model", low=1)
    temperature: float = flag(1.0, "sampling temperature", low=0)
    top_p: float = flag(1.0, "sample from the smallest set of tokens that holds this much probability", above=0, high=1)

    @property
    def commands_shown(self) -> Literal["full", "changes", "none"]:
        if self.admissible_commands is not None:
            return self.admissible_commands
        return "none" if self.include_admissible_actions is False else "full"

    @property
    def rollout(self) -> "RolloutSettings":
        """How games are played, for the rollout room."""
        from alfworld_rl.rollouts.settings import RolloutSettings

        return RolloutSettings(
            environment=self.environment,
            environment_asynchronous=self.environment_asynchronous,
            max_episode_steps=self.max_episode_steps,
            admissible_commands=self.commands_shown,
            max_trajectory_tokens=self.max_trajectory_tokens,
            max_assistant_tokens=self.max_assistant_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
        )

    @property
    def games_folder(self) -> Path:
        return self.data_root or alfworld_games()

    def episode_conflicts(self) -> list[str]:
        problems = []
        if self.admissible_commands is not None and self.include_admissible_actions is not None:
            implied = "full" if self.include_admissible_actions else "none"
            if (self.admissible_commands == "none") != (implied == "none"):
                no = "" if self.include_admissible_actions else "no-"
                problems.append(
                    f"--admissible-commands {self.admissible_commands} contradicts --{no}include-admissible-actions"
                )
        if self.max_assistant_tokens >= self.max_trajectory_tokens:
            problems.append(
                f"--max-assistant-tokens {self.max_assistant_tokens} must be below "
                f"--max-trajectory-tokens {self.max_trajectory_tokens}, or no prompt fits"
            )
        return problems


@dataclass(frozen=True, kw_only=True)
class TrainSettings(EpisodeSettings, RunSettings):
    """Reinforcement learning. The defaults are those of the document's formal run."""

    train_split: Literal["train", "valid_seen", "valid_unseen"] = flag("train", "split whose games are trained on")
    max_train_games: int | None = flag(None, "train on this many games, drawn by --seed (default: all)", low=1)
    max_steps: int = flag(80, "updates", low=1)
    games_per_batch: int = flag(8, "games of one update", low=1)
    group_size: int = flag(8, "trajectories of one game, all from its initial state", low=2)
    learning_rate: float = flag(1e-6, "learning rate", above=0)
    warmup_steps: int = flag(0, "updates over which the learning rate rises to its full value", low=0)
    beta2: float = flag(0.95, "Adam's second decay", low=0, high=0.999999)
    loss: Literal["ppo", "importance_sampling", "cispo"] = flag("ppo", "policy loss")
    ppo_clip_low: float = flag(0.8, "lower bound of the probability ratio", low=0, high=1)
    ppo_clip_high: float = flag(1.2, "upper bound of the probability ratio", low=1)
    advantage: AdvantageName = flag("mean", "advantage estimator")
    epochs: int = flag(1, "passes over the data of one update", low=1)
    minibatches: int = flag(1, "optimizer steps of one pass", low=1)
    kl_coef: float = flag(0.0, "weight of the penalty for leaving the starting policy", low=0)
    dynamic_sampling: int = flag(
        0, "replace groups whose rewards are all equal by up to this many more games an update", low=0
    )
    save_every: int = flag(20, "save state and sampler weights every N updates; 0: only at the end", low=0)
    seed: int = flag(42, "seed of the order of games, of sampling and of new weights", low=0, high=2**31 - 1)
    prices: Path | None = flag(None, "price file (default: the estimate shipped with the package)")
    max_cost: float | None = flag(None, "end the run, everything saved, before it costs more than this", above=0)
    dry_run: bool = flag(False, "print what the run would use and cost, and stop")

    command: ClassVar[str] = "train"
    changeable_on_resume: ClassVar[frozenset[str]] = RunSettings.changeable_on_resume | {
        "max_steps",
        "prices",
        "max_cost",
        "dry_run",
    }

    @property
    def learning(self) -> "LearningSettings":
        """How the model is updated, for the learning room."""
        from alfworld_rl.types import AdamParams, LossSpec
        from alfworld_rl.learning.updates import LearningSettings

        return LearningSettings(
            advantage=self.advantage,
            loss=LossSpec(self.loss, self.ppo_clip_low, self.ppo_clip_high),
            adam=AdamParams(
                learning_rate=self.learning_rate,
                beta1=self.beta1,
                beta2=self.beta2,
                weight_decay=self.weight_decay,
                grad_clip_norm=self.grad_clip_norm,
            ),
            warmup_steps=self.warmup_steps,
            epochs=self.epochs,
            minibatches=self.minibatches,
            kl_coef=self.kl_coef,
        )

    def conflicts(self) -> list[str]:
        problems = self.episode_conflicts() + self.run_conflicts()
        if self.temperature == 0:
            problems.append("--temperature must be above 0 for training: without chance a group has nothing to compare")
        return problems


@dataclass(frozen=True, kw_only=True)
class EvalSettings(CommandSettings, EpisodeSettings, BackendSettings):
    """Evaluation: how often a model wins games it was not trained on."""

    temperature: float = flag(0.01, "sampling temperature", low=0)
    model_path: str | None = flag(None, "sampler weights to evaluate (default: the base model)", metavar="URI")
    split: EvaluationSplit = flag("all", "games to play")
    limit_per_split: int | None = flag(None, "only N games of each split, spread over its list", low=1)
    games_per_batch: int = flag(16, "games in flight at once", low=1)
    samples_per_game: int = flag(1, "trajectories of each game, for pass@k", low=1)
    seed: int = flag(42, "seed of sampling", low=0, high=2**31 - 1)
    output: Path | None = flag(None, "results file (default: 08-alfworld/eval_results/MODEL.jsonl)")
    overwrite_output: bool = flag(False, "replace an existing results file")
    resume_output: bool = flag(False, "play only the games that an unfinished results file lacks")
    prices: Path | None = flag(None, "price file (default: the estimate shipped with the package)")
    swanlab_project: str = flag("alfworld-agent-rl", "SwanLab project", check=_not_empty)
    swanlab_mode: SwanLabMode = flag("disabled", "where SwanLab keeps the metrics")

    @property
    def splits(self) -> tuple[str, ...]:
        return ("valid_seen", "valid_unseen") if self.split == "all" else (self.split,)

    @property
    def results_file(self) -> Path:
        if self.output is not None:
            return self.output
        name = self.model if self.model_path is None else self.model_path.partition("://")[2]
        return home() / "eval_results" / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".jsonl")

    def conflicts(self) -> list[str]:
        problems = self.episode_conflicts()
        if self.overwrite_output and self.resume_output:
            problems.append("--overwrite-output starts again and --resume-output goes on; give one of them")
        if self.output is not None and self.output.suffix != ".jsonl":
            problems.append(f"--output must end in .jsonl, not {self.output.name!r}")
        return problems


DEFAULT_RESULTS = ("base-qwen35-4b-eval", "checkpoint-40steps", "checkpoint-80steps")


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings(CommandSettings):
    """The figure, and paired comparisons in words."""

    results: tuple[str, ...] = flag(
        (),
        "results files and their names in the figure (default: Base, Step 40 and Step 80 of the document)",
        metavar="LABEL=PATH",
        check=_labelled,
    )
    output: Path | None = flag(None, "figure (default: 08-alfworld/images/alfworld_checkpoint_evaluation.png)")

    @property
    def inputs(self) -> tuple[tuple[str, Path], ...]:
        """Label and path of every results file, in the order of the figure."""
        if self.results:
            pairs = (text.partition("=") for text in self.results)
            return tuple((label, Path(path).expanduser()) for label, _, path in pairs)
        folder = home() / "eval_results"
        labels = ("Base", "Step 40", "Step 80")
        return tuple((label, folder / f"{name}.jsonl") for label, name in zip(labels, DEFAULT_RESULTS, strict=True))

    @property
    def figure(self) -> Path:
        return self.output or home() / "images" / "alfworld_checkpoint_evaluation.png"

    def conflicts(self) -> list[str]:
        return _label_conflicts([label for label, _ in self.inputs]) + _figure_conflicts(self.output)


@dataclass(frozen=True, kw_only=True)
class CurvesSettings(CommandSettings):
    """The figure of how runs learned."""

    runs: tuple[str, ...] = flag(
        (),
        "runs under 08-alfworld/runs by label; several of a label are its seeds",
        metavar="LABEL=RUN[,RUN]",
        check=_labelled,
    )
    output: Path | None = flag(None, "figure (default: 08-alfworld/images/learning_curves.png)")

    @property
    def labelled(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each label with the names of its runs."""
        pairs = (text.partition("=") for text in self.runs)
        return tuple((label, tuple(names.split(","))) for label, _, names in pairs)

    @property
    def figure(self) -> Path:
        return self.output or home() / "images" / "learning_curves.png"

    def conflicts(self) -> list[str]:
        problems = [] if self.runs else ["--runs is needed: LABEL=RUN, or LABEL=RUN,RUN,RUN for seeds"]
        return problems + _label_conflicts([label for label, _ in self.labelled]) + _figure_conflicts(self.output)


def _label_conflicts(labels: Sequence[str]) -> list[str]:
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    return [f"the label {', '.join(repeated)} is given twice"] if repeated else []


def _figure_conflicts(output: Path | None) -> list[str]:
    if output is not None and output.suffix.lower() not in (".png", ".svg", ".pdf"):
        return [f"--output must end in .png, .svg or .pdf, not {output.name!r}"]
    return []


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings(CommandSettings):
    """The whole line on this computer, with no account and no download."""

    short: bool = flag(False, "a few games and one update: does everything work here?")
    seed: int = flag(42, "seed of everything", low=0, high=2**31 - 1)


@dataclass(frozen=True, kw_only=True)
class DoctorSettings(CommandSettings):
    """What works on this computer now."""

    data_root: Path | None = flag(None, "folder that holds json_2.1.1 (default: 08-alfworld/datasets/alfworld)")


def as_json(settings: Any) -> dict[str, Any]:
    """The settings as plain values for a file."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(part) for part in value]
        return str(value) if isinstance(value, Path) else value

    return {item.name: plain(getattr(settings, item.name)) for item in fields(settings)}


def from_json[S](settings: type[S], values: Mapping[str, Any]) -> S:
    """The inverse of `as_json`; unknown names are an older or newer program's and are left out."""
    known = {item.name for item in fields(settings)}  # type: ignore[arg-type]
    given = {
        name: value
        if isinstance(value, bool)
        else [str(part) for part in value]
        if isinstance(value, list)
        else str(value)
        for name, value in values.items()
        if name in known and value is not None
    }
    return read_flags(settings, given)


def resumed[S: RunSettings](saved: S, asked: S, given: Iterable[str]) -> S:
    """The settings of a run that goes on: as saved, with the changeable flags that were given now.

    Raises UsageError naming every given flag that would make it a different run.
    """
    given = set(given)
    changeable = saved.changeable_on_resume
    fixed = [name for name in sorted(given - changeable) if getattr(saved, name) != getattr(asked, name)]
    if fixed:
        raise UsageError(
            f"run {asked.resume} cannot go on with other settings: "
            + "; ".join(f"{option(name)} was {getattr(saved, name)}, not {getattr(asked, name)}" for name in fixed)
        )
    return replace(saved, **{name: getattr(asked, name) for name in given & changeable})


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`name was X, not Y` for every name whose values differ."""
    return [
        f"{option(name)} was {json.dumps(before.get(name))}, not {json.dumps(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def writable(folder: Path) -> str | None:
    """Why no file can be written in `folder` (made if it is not there), or None."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror or error})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written to; change its permissions or choose another"
    return None

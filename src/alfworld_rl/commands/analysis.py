"""`analysis`: read results files, check that they can be compared, draw them and say what changed."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from alfworld_rl.algorithms.config import RewardConfig
from alfworld_rl.algorithms.rewards import score
from alfworld_rl.analysis.compare import comparisons, mismatches, table_rows
from alfworld_rl.commands.common import CommandConfig, Labelled, figure_conflicts, label_conflicts
from alfworld_rl.config import option
from alfworld_rl.config.workspace import home
from alfworld_rl.console import print_table
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.record import ResultsError
from alfworld_rl.evaluation.results import Results, read_results
from alfworld_rl.files import writable

DEFAULT_RESULTS = ("base-qwen35-4b-eval", "checkpoint-40steps", "checkpoint-80steps")


class AnalysisConfig(CommandConfig):
    """The figure, and paired comparisons in words."""

    results: tuple[Labelled, ...] = option(
        (),
        "results files and their names in the figure (default: Base, Step 40 and Step 80 of the formal run)",
        metavar="LABEL=PATH",
    )
    output: Path | None = option(None, "figure (default: 08-alfworld/images/alfworld_checkpoint_evaluation.png)")
    score_again: bool = option(False, "score every trajectory by --reward instead of what its file says")
    reward: RewardConfig = RewardConfig()

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
        problems = label_conflicts([label for label, _ in self.inputs]) + figure_conflicts(self.output)
        if self.reward.given and not self.score_again:
            problems.append("--reward needs --score-again: without it the rewards are those of the files")
        return problems


CONFIG = AnalysisConfig


def run(config: AnalysisConfig) -> None:
    """Write the figure. Raises UsageError, having written nothing, with all that is missing or does not match."""
    results: dict[str, Results] = {}
    problems: list[str] = []
    for label, path in config.inputs:
        try:
            found = read_results(path)
            results[label] = _scored_again(found, config.reward) if config.score_again else found
        except ResultsError as error:
            problems.append(str(error))
    if len(results) > 1:
        problems += mismatches(results)
    if config.figure.is_dir():
        problems.append(f"{config.figure} is a folder; give --output the name of a file")
    if not problems and (problem := writable(config.figure.parent)):
        problems.append(problem)
    if problems:
        raise UsageError("nothing was drawn: " + "; ".join(problems))

    from alfworld_rl.analysis.figure import draw

    draw(results, config.figure)
    print_table(*table_rows(results))
    labels = list(results)
    pairs = list(pairwise(labels)) + ([(labels[0], labels[-1])] if len(labels) > 2 else [])
    for before, after in pairs:
        for sentence in comparisons(before, results[before], after, results[after]):
            print(sentence)
    print(f"Figure: {config.figure}")


def _scored_again(results: Results, reward: RewardConfig) -> Results:
    """The results with the rewards of `reward`. Raises ResultsError where the rows do not tell enough."""
    function = reward.function()
    rows = tuple(replace(row, reward=score(row.trajectory(), function).total) for row in results.rows)
    settings = {name: value for name, value in results.settings.items() if not name.startswith("reward")}
    return replace(results, rows=rows, settings={**settings, **reward.described()})

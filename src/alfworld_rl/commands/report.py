"""`report`: a page that shows results or a run, and replays what the agent did."""

from pathlib import Path

from alfworld_rl.analysis.report import evaluations, runs
from alfworld_rl.analysis.report.page import Content, render
from alfworld_rl.commands.common import CommandConfig
from alfworld_rl.config import option
from alfworld_rl.config.workspace import home
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.record import ResultsError
from alfworld_rl.evaluation.results import Results, read_results
from alfworld_rl.files import atomic_write, writable
from alfworld_rl.runs.cost import Prices
from alfworld_rl.runs.folder import RunFolder


class ReportConfig(CommandConfig):
    """Write one self-contained page, opened in a browser from disk, that shows results files or a training run.

    It replays their trajectories turn by turn.
    """

    inputs: tuple[str, ...] = option(
        ..., "results files of eval (FILE or LABEL=FILE), or one run folder or its name", positional=True
    )
    output: Path | None = option(None, "the page (default: report.html beside the first input)", short="-o")
    prices: Path | None = option(None, "price file of the results' tokens (default: the shipped one, for its models)")


CONFIG = ReportConfig


def run(config: ReportConfig) -> Path:
    """Write the page; returns its path. Raises UsageError, having written nothing, with all that is missing."""
    folder = _run_folder(config.inputs)
    prices = Prices.load(config.prices)
    if folder is not None:
        output = config.output or folder.path / "report.html"
        title, content = f"Run {folder.name}", runs.content_of(folder, prices.currency)
        files = [str(folder.path)]
    else:
        results = _results(config.inputs)
        output = config.output or next(iter(results.values())).path.with_name("report.html")
        known = {
            label: prices if config.prices is not None or item.base_model in prices.models else None
            for label, item in results.items()
        }
        title, content = _title(results), evaluations.content_of(results, known)
        files = [item.path.name for item in results.values()]
    if output.is_dir():
        raise UsageError(f"{output} is a folder; give --output the name of a file")
    if problem := writable(output.parent):
        raise UsageError(problem)
    page = render(Content(dict(content.index) | {"files": files}, content.details), title)
    atomic_write(output, page)
    print(f"Report: {output} ({len(page.encode()) / 1e6:.1f} MB)")
    print(f"Open it in a browser: {output.resolve().as_uri()}")
    return output


def _run_folder(inputs: tuple[str, ...]) -> RunFolder | None:
    """The one run that is meant: by its folder, or by its name. Raises UsageError for folders that are none."""
    folders = [path for path in map(_as_folder, inputs) if path is not None]
    if folders and len(inputs) > 1:
        raise UsageError("a report is of one run, or of results files; give either one run folder or only files")
    if not folders:
        return None
    folder = RunFolder(folders[0])
    if not (folder.settings_file.is_file() or folder.metrics_file.is_file()):
        raise UsageError(f"{folder.path} is no run folder: it has neither settings.json nor metrics.jsonl")
    return folder


def _as_folder(text: str) -> Path | None:
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    named = home() / "runs" / text
    return named if path.name == text and not path.exists() and named.is_dir() else None


def _results(inputs: tuple[str, ...]) -> dict[str, Results]:
    results: dict[str, Results] = {}
    problems = []
    for text in inputs:
        given, equals, rest = text.partition("=")
        labelled = bool(equals) and not Path(text).exists()
        path = Path(rest if labelled else text).expanduser()
        label = given if labelled else path.stem
        if label in results:
            problems.append(f"two results are called {label}; give them other labels, LABEL=FILE")
            continue
        try:
            results[label] = read_results(path)
        except ResultsError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("no report was written: " + "; ".join(problems))
    return results


def _title(results: dict[str, Results]) -> str:
    games = len({row.game_id for item in results.values() for row in item.rows})
    games = games or max(item.overall.games for item in results.values())
    labels = list(results)
    named = " and ".join(labels) if len(labels) < 3 else f"{len(labels)} results"
    return f"{named} on {games} {'game' if games == 1 else 'games'}"

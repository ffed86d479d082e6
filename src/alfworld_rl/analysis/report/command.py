"""`report`: write the page."""

import argparse
import json
from pathlib import Path
from typing import Any

from alfworld_rl.analysis.report import evaluations, runs
from alfworld_rl.analysis.report.page import Content, render
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.results import Results, ResultsError, read_results
from alfworld_rl.files import write_whole
from alfworld_rl.runs.money import Prices
from alfworld_rl.runs.settings import home, writable


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add `report` to the sub-parsers of a command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="write a page that shows results or a run, and replays what the agent did",
        description="Write one self-contained page, to be opened in a browser from disk, that shows results files or "
        "a training run and replays their trajectories turn by turn.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="RESULT.jsonl | RUN",
        help="results files of `eval` (or LABEL=FILE), or one run folder (or the name of a run under 08-alfworld/runs)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: report.html beside it)")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="what tokens cost (default: the shipped file)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run_command=report)
    return parser


def report(arguments: argparse.Namespace) -> int:
    """Write the page. Raises UsageError, having written nothing, with all that is missing or wrong."""
    folder = _run_folder(arguments.inputs)
    if folder is not None:
        output = arguments.output or folder / "report.html"
        title, content = f"Run {folder.name}", runs.content_of(folder, Prices.load(arguments.prices).currency)
        files = [str(folder)]
    else:
        results = _results(arguments.inputs)
        output = arguments.output or next(iter(results.values())).path.with_name("report.html")
        prices = {label: _prices(item, arguments.prices) for label, item in results.items()}
        title, content = _title(results), evaluations.content_of(results, prices)
        files = [item.path.name for item in results.values()]
    if output.is_dir():
        raise UsageError(f"{output} is a folder; give --output the name of a file")
    if problem := writable(output.parent):
        raise UsageError(problem)
    page = render(Content(dict(content.index) | {"files": files}, content.details), title)
    write_whole(output, page)
    print(f"Report: {output} ({len(page.encode()) / 1e6:.1f} MB); open it in a browser: {output.resolve().as_uri()}")
    return 0


def _run_folder(inputs: list[str]) -> Path | None:
    found = [path for path in map(_as_run, inputs) if path is not None]
    if found and len(inputs) > 1:
        raise UsageError("a report is of one run folder, or of results files, not of both or of several runs")
    if not found and (folders := [name for name in inputs if Path(name).is_dir()]):
        raise UsageError(f"{folders[0]} is no run folder: it has neither settings.json nor metrics.jsonl")
    return found[0] if found else None


def _as_run(name: str) -> Path | None:
    """The run folder that a person means: a path, or a run's name."""
    path = Path(name)
    if runs.is_run(path):
        return path
    # A bare name that is nothing here may be a run's.
    named = home() / "runs" / name
    return named if not path.exists() and path.name == name and runs.is_run(named) else None


def _results(inputs: list[str]) -> dict[str, Results]:
    results: dict[str, Results] = {}
    problems = []
    for text in inputs:
        given, equals, rest = text.partition("=")
        labelled = bool(equals) and not Path(text).exists()
        path = Path(rest if labelled else text)
        label = given if labelled else path.stem
        if label in results:
            problems.append(f"two results are called {label}; give them labels, LABEL=FILE")
            continue
        try:
            results[label] = read_results(path)
        except ResultsError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("no report was written: " + "; ".join(problems))
    return results


def _title(results: dict[str, Results]) -> str:
    games = len({line["game_id"] for item in results.values() for line in item.trajectories})
    games = games or max(item.overall.games for item in results.values())
    names = list(results)
    named = " and ".join(names) if len(names) < 3 else f"{len(names)} results"
    return f"{named} on {games} games"


def _prices(results: Results, given: Path | None) -> Prices | None:
    """What the tokens of a result cost: by the file that was given, else the shipped one where PyTRIO played."""
    if given is not None:
        return Prices.load(given)
    try:
        summary = json.loads(results.path.read_text(encoding="utf-8-sig").rstrip().rsplit("\n", 1)[-1])
    except ValueError:
        return None
    played = summary.get("played") if isinstance(summary, dict) else None
    return Prices.load() if isinstance(played, dict) and played.get("backend") == "trio" else None

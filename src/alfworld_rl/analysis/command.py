"""`analysis`: read results files, check that they can be compared, draw them and say what changed."""

from itertools import pairwise

from alfworld_rl.analysis.compare import comparisons, mismatches, table_rows
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.results import Results, ResultsError, read_results
from alfworld_rl.runs.output import print_table
from alfworld_rl.runs.settings import AnalysisSettings, writable


def analyse(settings: AnalysisSettings) -> None:
    """Write the figure. Raises UsageError, having written nothing, with all that is missing or does not match."""
    results: dict[str, Results] = {}
    problems: list[str] = []
    for label, path in settings.inputs:
        try:
            results[label] = read_results(path)
        except ResultsError as error:
            problems.append(str(error))
    if len(results) > 1:
        problems += mismatches(results)
    if settings.figure.is_dir():
        problems.append(f"{settings.figure} is a folder; give --output the name of a file")
    if not problems and (problem := writable(settings.figure.parent)):
        problems.append(problem)
    if problems:
        raise UsageError("nothing was drawn: " + "; ".join(problems))

    from alfworld_rl.analysis.figure import draw

    draw(results, settings.figure)
    print_table(*table_rows(results))
    labels = list(results)
    pairs = list(pairwise(labels)) + ([(labels[0], labels[-1])] if len(labels) > 2 else [])
    for before, after in pairs:
        for sentence in comparisons(before, results[before], after, results[after]):
            print(sentence)
    print(f"Figure: {settings.figure}")

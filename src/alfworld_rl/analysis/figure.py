"""The figure: success by split with Wilson 95% intervals, and success and invalid actions over checkpoints."""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.evaluation.results import Results, SplitScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#22303c", "#6b7885", "#e3e7eb"
#: Told apart by everyone, colour-blind or not, and in print (Okabe and Ito's palette).
LINE_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
SUCCESS, INVALID = "#0072b2", "#d55e00"
CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "PingFang SC",
    "Microsoft YaHei",
    "WenQuanYi Zen Hei",
    "SimHei",
)
NAMES = {"valid_seen": "valid seen", "valid_unseen": "valid unseen"}


def draw(results: Mapping[str, Results], path: Path) -> None:
    """Write the figure of comparable results, in the order given, to `path`; whole or not at all."""
    with styled() as plt:
        width = max(10.5, 1.5 * len(results) + 6)
        figure = plt.figure(figsize=(width, 5.2), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1), height_ratios=(1.45, 1))
        by_split, overall = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[0, 1])
        invalid = figure.add_subplot(grid[1, 1], sharex=overall)
        labels = list(results)
        _bars(by_split, labels, list(results.values()))
        _line(overall, labels, [item.overall for item in results.values()])
        _invalid(invalid, labels, [item.overall.invalid_actions_mean for item in results.values()])
        overall.tick_params(labelbottom=False)
        first = next(iter(results.values()))
        games = " + ".join(f"{score.games} {NAMES.get(split, split)}" for split, score in first.scores.items())
        figure.suptitle(f"ALFWorld: {first.base_model.rsplit('/')[-1]} on {games} games", fontsize=13, weight="bold")
        figure.supxlabel("Bars and bands: Wilson 95% intervals", fontsize=8, color=MUTED, x=0.99, ha="right")
        image = io.BytesIO()
        figure.savefig(image, format=path.suffix.lower().lstrip("."))
        plt.close(figure)
    write_figure(path, image.getvalue())


@contextlib.contextmanager
def styled() -> Iterator[Any]:
    """matplotlib's pyplot, drawing in memory and in the look of all figures here."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    style: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *_fallback_fonts()],
        "text.parse_math": False,  # labels and names are plain text, whatever they hold
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "xtick.color": INK,
        "ytick.color": MUTED,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "savefig.dpi": 200,
    }
    with plt.rc_context(style):
        yield plt


def _fallback_fonts() -> list[str]:
    """Fonts of this computer for the Chinese that labels may hold."""
    from matplotlib import font_manager

    known = set(font_manager.get_font_names())
    return [name for name in CHINESE_FONTS if name in known][:1]


def _bars(axes: "Axes", labels: Sequence[str], results: Sequence[Results]) -> None:
    splits = list(results[0].scores)
    width = 0.8 / len(splits)
    for number, split in enumerate(splits):
        scores = [item.scores[split] for item in results]
        places = [index - 0.4 + width * (number + 0.5) for index in range(len(labels))]
        heights = [score.success_rate for score in scores]
        colour = LINE_COLOURS[number % len(LINE_COLOURS)]
        axes.bar(places, heights, width * 0.9, color=colour, alpha=0.9, label=NAMES.get(split, split))
        axes.errorbar(places, heights, yerr=_errors(scores), fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
        for place, score in zip(places, scores, strict=True):
            top = score.interval[1]
            axes.annotate(
                _percent(score.success_rate), (place, top), xytext=(0, 3), textcoords="offset points",
                ha="center", va="bottom", fontsize=8.5, weight="bold",
            )  # fmt: skip
    _percent_axis(axes, [score.interval[1] for item in results for score in item.scores.values()])
    axes.set_title("Success rate by split", loc="left", fontsize=11, weight="bold")
    axes.set_xticks(range(len(labels)), labels)
    axes.legend(frameon=False, loc="upper left", ncols=len(splits), fontsize=9, borderaxespad=0)


def _line(axes: "Axes", labels: Sequence[str], scores: Sequence[SplitScore]) -> None:
    places, rates = range(len(labels)), [score.success_rate for score in scores]
    low, high = zip(*(score.interval for score in scores), strict=True)
    if len(labels) > 1:
        axes.fill_between(places, low, high, color=SUCCESS, alpha=0.15, linewidth=0)
    axes.errorbar(places, rates, yerr=_errors(scores), fmt="-o", color=SUCCESS, elinewidth=1, capsize=3, linewidth=2)
    _value_labels(axes, rates, [_percent(rate) for rate in rates], SUCCESS)
    _percent_axis(axes, high)
    axes.set_title("All games: success rate", loc="left", fontsize=11, weight="bold")


def _invalid(axes: "Axes", labels: Sequence[str], values: Sequence[float]) -> None:
    places = range(len(labels))
    axes.plot(places, values, "-s", color=INVALID, linewidth=2, markersize=5)
    _value_labels(axes, values, [f"{value:.2f}" for value in values], INVALID)
    axes.set_ylim(0, max(max(values) * 1.35, 0.5))
    axes.grid(axis="y", color=GRID)
    axes.tick_params(axis="y", length=0)
    axes.set_title("All games: invalid actions a game", loc="left", fontsize=11, weight="bold")
    axes.set_xticks(places, labels)
    axes.set_xlim(-0.4, len(labels) - 0.6)


def _value_labels(axes: "Axes", values: Sequence[float], texts: Sequence[str], colour: str) -> None:
    for place, (value, text) in enumerate(zip(values, texts, strict=True)):
        options: dict[str, Any] = {"ha": "left", "va": "bottom", "fontsize": 9, "weight": "bold", "color": colour}
        axes.annotate(text, (place, value), xytext=(6, 4), textcoords="offset points", **options)


def _percent_axis(axes: "Axes", tops: Sequence[float]) -> None:
    # From zero, so that lengths compare; room above for the labels and the legend.
    limit = min(max(max(tops) * 1.2, 0.1), 1.15)
    axes.set_ylim(0, limit)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(limit, 1)])
    axes.set_ylim(0, limit)
    share_axis(axes)


def share_axis(axes: "Axes") -> None:
    """Shares, written as percentages."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.grid(axis="y", color=GRID)
    axes.tick_params(axis="y", length=0)


def _errors(scores: Sequence[SplitScore]) -> list[list[float]]:
    intervals = [score.interval for score in scores]
    return [
        [max(score.success_rate - low, 0) for score, (low, _) in zip(scores, intervals, strict=True)],
        [max(high - score.success_rate, 0) for score, (_, high) in zip(scores, intervals, strict=True)],
    ]


def _percent(rate: float) -> str:
    return f"{rate:.1%}"


def write_figure(path: Path, image: bytes) -> None:
    """Put the image in its place, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(image)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise AlfworldRLError(f"{path} cannot be written ({error.strerror or error})") from error

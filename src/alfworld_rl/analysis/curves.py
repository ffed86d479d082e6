"""How runs learned, update by update; runs under one label are seeds of one setting."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alfworld_rl.analysis.figure import LINE_COLOURS, MUTED, share_axis, styled, write_figure
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.statistics import mean
from alfworld_rl.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (
    ("reward/success_rate", "Games won"),
    ("rollout/steps_mean", "Steps of a game"),
    ("rollout/invalid_actions_mean", "Invalid actions of a game"),
)
WINDOW = 5
"""Updates whose mean a line shows: the games of one update are too few to say much."""

Curves = Sequence[Sequence[Mapping[str, Any]]]


def draw_curves(labelled: Mapping[str, Curves], path: Path) -> None:
    """Thin lines: each run's moving mean. Thick lines: their mean, up to where the shortest ends."""
    with styled() as plt:
        figure, panels = plt.subplots(1, len(PANELS), figsize=(4.2 * len(PANELS), 3.8), layout="constrained")
        for axes, (metric, title) in zip(panels, PANELS, strict=True):
            for number, (label, found) in enumerate(labelled.items()):
                _lines(axes, label, [_smooth([line[metric] for line in run]) for run in found], number)
            axes.set_title(title, loc="left", fontsize=11, weight="bold")
            axes.set_xlabel("Update")
            axes.set_ylim(bottom=0)
            axes.locator_params(axis="x", integer=True)
        share_axis(panels[0])
        panels[0].legend(frameon=False, fontsize=9)
        figure.suptitle("Learning curves, in training and by sampling", fontsize=13, weight="bold")
        note = f"Means of the last {WINDOW} updates; thin: one run, thick: the mean of a setting's runs"
        figure.supxlabel(note, fontsize=8, color=MUTED, x=0.99, ha="right")
        image = io.BytesIO()
        figure.savefig(image, format=path.suffix.lower().lstrip("."))
        plt.close(figure)
    write_figure(path, image.getvalue())


def _lines(axes: "Axes", label: str, found: Sequence[Sequence[float]], number: int) -> None:
    colour = LINE_COLOURS[number % len(LINE_COLOURS)]
    together = [mean(values) for values in zip(*found, strict=False)]
    axes.plot(range(1, len(together) + 1), together, color=colour, linewidth=2.2, label=label)
    for values in found if len(found) > 1 else ():
        axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=0.8, alpha=0.5)


def _smooth(values: Sequence[float]) -> list[float]:
    return [mean(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]


def updates_of(folder: RunFolder) -> list[dict[str, Any]]:
    """The metrics of a run's updates. Raises UsageError where it has none of `train`."""
    lines = [line for line in folder.metrics() if all(name in line for name, _ in PANELS)]
    if not lines:
        raise UsageError(f"run {folder.name} has no finished update of `train` to draw")
    return lines

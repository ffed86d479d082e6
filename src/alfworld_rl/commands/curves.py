"""`curves`: the figure of how runs learned."""

from pathlib import Path

from alfworld_rl.commands.common import CommandConfig, Labelled, figure_conflicts, label_conflicts
from alfworld_rl.config import option
from alfworld_rl.config.workspace import home
from alfworld_rl.runs.folder import RunFolder


class CurvesConfig(CommandConfig):
    """The figure of how runs learned."""

    runs: tuple[Labelled, ...] = option(
        (), "runs under 08-alfworld/runs by label; several of a label are its seeds", metavar="LABEL=RUN[,RUN]"
    )
    output: Path | None = option(None, "figure (default: 08-alfworld/images/learning_curves.png)")

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
        return problems + label_conflicts([label for label, _ in self.labelled]) + figure_conflicts(self.output)


CONFIG = CurvesConfig


def run(config: CurvesConfig) -> None:
    """Write the figure. Raises UsageError where a run is not there or has learned nothing yet."""
    from alfworld_rl.analysis.curves import draw_curves, updates_of

    runs = home() / "runs"
    labelled = {
        label: [updates_of(RunFolder.existing(runs, name)) for name in names] for label, names in config.labelled
    }
    draw_curves(labelled, config.figure)
    print(f"Figure: {config.figure}")

"""The figure is drawn of results that can be compared, and of nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from alfworld_rl.cli import main
from alfworld_rl.evaluation.statistics import wilson_interval
from alfworld_rl.runs.folder import RunFolder

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, wins: list[int], *, base_model: str = "m", summary: dict[str, Any] | None = None) -> Path:
        lines: list[dict[str, Any]] = [
            {
                "type": "trajectory",
                "game_id": f"{split}/{number}",
                "split": split,
                "evaluation_split": split,
                "task_type": "look_at_obj_in_light",
                "task": "look",
                "messages": [],
                "steps": 5,
                "won": number in wins,
                "truncated": False,
                "stop_reason": "won",
                "invalid_action_count": 1,
                "reward": 0.9,
            }
            for split in ("valid_seen", "valid_unseen")
            for number in range(6)
        ]
        lines.append({"type": "summary", "base_model": base_model, "model_path": None, "metrics": {}} | (summary or {}))
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved while a test runs, as matplotlib holds them."""
    figures: list[Figure] = []
    save = Figure.savefig

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return figures


def heights(axes: Axes) -> list[list[float]]:
    """The heights of the bars, series by series."""
    bars = [container for container in axes.containers if isinstance(container, BarContainer)]
    return [[bar.get_height() for bar in container] for container in bars]


def whiskers(axes: Axes) -> list[list[tuple[float, float]]]:
    """The ends of the error bars, series by series."""
    errors = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    return [
        [(segment[0][1], segment[1][1]) for lines in container.lines[2] for segment in lines.get_segments()]
        for container in errors
    ]


def analyse(tmp_path: Path, **files: Path) -> tuple[int, Path]:
    figure = tmp_path / "out" / "figure.png"
    labelled = [f"{label}={path}" for label, path in files.items()]
    return main(["analysis", "--results", *labelled, "--output", str(figure)]), figure


def test_draws_files_of_other_programs_and_compares_them(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: list[Figure]
) -> None:
    code, figure = analyse(tmp_path, base=write("a.jsonl", [0]), after=write("b.jsonl", [0, 1, 2]))
    assert code == 0
    (shown,) = drawn
    by_split, overall, invalid = shown.axes
    assert [text.get_text() for text in by_split.get_xticklabels()] == ["base", "after"]
    assert heights(by_split) == [pytest.approx([1 / 6, 3 / 6])] * 2  # one series a split
    assert [text.get_text() for text in by_split.get_legend().get_texts()] == ["valid seen", "valid unseen"]
    of_split = [pytest.approx(wilson_interval(won, 6)) for won in (1, 3)]
    assert whiskers(by_split) == [of_split, of_split]
    assert whiskers(overall) == [[pytest.approx(wilson_interval(won, 12)) for won in (2, 6)]]
    (line,) = [line for line in overall.lines if line.get_linestyle() == "-"]
    assert list(line.get_ydata()) == pytest.approx([2 / 12, 6 / 12])
    (line,) = invalid.lines
    assert list(line.get_ydata()) == [1, 1]
    assert [note.get_text() for note in by_split.texts] == ["16.7%", "50.0%"] * 2
    assert [path.name for path in figure.parent.iterdir()] == ["figure.png"]
    out = capsys.readouterr().out
    assert "base -> after: +33.3% on the same 12 games; 4 won only by after, 0 only by base" in out
    assert "p = 0.125" in out


def test_several_samples_of_a_game_count_as_one_and_steps_are_compared_too(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice(name: str, wins: list[int], steps: int) -> Path:
        path = write(name, wins)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines[:-1]:
            line["steps"] = steps
        path.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:-1], *lines[:-1], lines[-1]]))
        return path

    code, _ = analyse(tmp_path, base=twice("a.jsonl", [0], 12), after=twice("b.jsonl", [0, 1, 2], 9))
    assert code == 0
    out = capsys.readouterr().out
    assert "base -> after: +33.3% a game on the same 12 games; randomization test p = 0.1" in out
    assert "base -> after: -3.00 steps a game on the same 12 games; randomization test p = 0.000" in out


def test_a_file_of_a_summary_alone_is_taken_at_its_word(write: Write, tmp_path: Path) -> None:
    metrics = {
        f"eval/{split}/{name}": value
        for split in ("valid_seen", "valid_unseen")
        for name, value in {"games": 6, "success_rate": 0.5, "invalid_actions_mean": 2.0}.items()
    }
    alone = tmp_path / "alone.jsonl"
    alone.write_text(json.dumps({"type": "summary", "base_model": "m", "metrics": metrics}) + "\n")
    code, figure = analyse(tmp_path, base=write("a.jsonl", [0]), other=alone)
    assert code == 0
    assert figure.exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"base_model": "n"}, "base model n"),
        ({"summary": {"protocol": "q"}}, "another prompt protocol"),
        ({"summary": {"settings": {"max_episode_steps": 30}}}, "--max-episode-steps was 50, not 30"),
        ({"summary": {"game_sha256": {"valid_seen/0": "2"}}}, "changed files of 1 games"),
    ],
)
def test_refuses_what_cannot_be_compared(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], complaint: str
) -> None:
    known = {"protocol": "p", "settings": {"max_episode_steps": 50}, "game_sha256": {"valid_seen/0": "1"}}
    first = write("a.jsonl", [0], summary=known)
    code, figure = analyse(tmp_path, base=first, other=write("b.jsonl", [0], **change))
    assert code == 2
    assert complaint in capsys.readouterr().err
    assert not figure.parent.exists()


def test_refuses_other_games(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write("a.jsonl", [0]), write("b.jsonl", [0])
    second.write_text(second.read_text().replace("valid_seen/3", "valid_seen/9"))
    code, _ = analyse(tmp_path, base=first, other=second)
    assert code == 2
    assert "1 are missing and 1 are extra, for example valid_seen/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no summary"),
        ("{}\n{", "line 2 is not JSON"),
        ('{"type": "trajectory", "won": 1}\n', "line 1"),
        ('{"type": "summary"}\n', "names no base_model"),
        ('{"type": "summary", "base_model": "m", "metrics": {"eval/valid_seen/games": "x"}}\n', "not all numbers"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(text)
    code, figure = analyse(tmp_path, base=write("a.jsonl", [0]), broken=broken)
    error = capsys.readouterr().err
    assert code == 2
    assert "broken.jsonl" in error
    assert complaint in error
    assert not figure.exists()


def test_labels_and_endings_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analysis", "--results", "nolabel", "--output", "figure.doc"]) == 2
    error = capsys.readouterr().err
    assert "must be LABEL=PATH" in error
    assert "must end in .png" in error


TRAJECTORY = {"type": "trajectory", "game_id": "a", "evaluation_split": "valid_seen", "won": True}
SUMMARY: dict[str, Any] = {"type": "summary", "base_model": "m"}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps(TRAJECTORY | {"invalid_action_count": 10**400}),
        json.dumps(TRAJECTORY | {"invalid_action_count": -1}),
        json.dumps(TRAJECTORY | {"steps": float("nan")}),
        json.dumps(TRAJECTORY | {"reward": float("-inf")}),
        json.dumps(TRAJECTORY | {"evaluation_split": "all"}),
        json.dumps(TRAJECTORY | {"evaluation_split": ""}),
        *(
            json.dumps(SUMMARY | {"metrics": {f"eval/valid_seen/{key}": value for key, value in scores.items()}})
            for games in (float("inf"), 10**400, 1e300)
            for scores in [{"success_rate": 1, "invalid_actions_mean": 1, "games": games}]
        ),
    ],
    ids=lambda text: text[:40],
)
def test_hostile_files_are_refused_in_a_sentence(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{text}\n{json.dumps(SUMMARY)}\n" if '"summary"' not in text else text)
    code, figure = analyse(tmp_path, a=path)
    assert code == 2
    assert not figure.exists()
    error = capsys.readouterr().err
    assert str(path) in error
    assert error.count("\n") == 1


def test_reads_every_character_that_a_model_can_write(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    odd = TRAJECTORY | {"messages": [{"role": "assistant", "content": "a\u2028b\u2029c\x85d\x1ce"}]}
    rows = [json.dumps(line, ensure_ascii=False) for line in (odd, SUMMARY)]
    path.write_text("\ufeff" + "\r\n".join(rows), encoding="utf-8")
    code, figure = analyse(tmp_path, a=path)
    assert code == 0
    assert figure.exists()


def test_labels_and_names_are_text_and_no_formulas(write: Write, tmp_path: Path) -> None:
    path = write("a.jsonl", [0], base_model="$\\model{$")
    figure = tmp_path / "figure.png"
    assert main(["analysis", "--results", f"$\\foo$ x^$={path}", "--output", str(figure)]) == 0
    assert figure.exists()


def test_a_figure_that_cannot_be_written_is_refused_first(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.jsonl", [0])
    (tmp_path / "folder.png").mkdir()
    for place in (tmp_path / "folder.png", path / "figure.png"):
        assert main(["analysis", "--results", f"a={path}", "--output", str(place)]) == 2
        assert capsys.readouterr().err.startswith("error: nothing was drawn: ")


def test_learning_curves_are_drawn_over_the_seeds_of_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drawn: list[Figure]
) -> None:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    for seed, updates in ((1, 7), (2, 5)):
        folder = RunFolder.new(tmp_path / "08-alfworld" / "runs", f"rl-{seed}", "train", {})
        for update in range(updates):
            values = {"reward/success_rate": update / 8, "rollout/steps_mean": 20, "rollout/invalid_actions_mean": 3}
            folder.add_metrics({"update": update + 1, **values})
    RunFolder.new(tmp_path / "08-alfworld" / "runs", "empty", "train", {})
    assert main(["curves", "--runs", "$mean$=rl-1,rl-2", "one=rl-1"]) == 0
    figure = tmp_path / "08-alfworld" / "images" / "learning_curves.png"
    assert figure.exists()
    (shown,) = drawn
    won, steps, invalid = shown.axes
    together, first, second, alone = (list(line.get_ydata()) for line in won.lines)
    # Means of the last five updates; both seeds rise by 1/8 an update, and their mean ends with the shorter one.
    smooth = [0, 0.5, 1, 1.5, 2, 3, 4]
    assert first == alone == pytest.approx([value / 8 for value in smooth])
    assert second == together == pytest.approx([value / 8 for value in smooth[:5]])
    assert [len(line.get_xdata()) for line in won.lines] == [5, 7, 5, 7]
    assert won.lines[0].get_linewidth() > won.lines[1].get_linewidth()
    assert [text.get_text() for text in won.get_legend().get_texts()] == ["$mean$", "one"]
    assert all(set(line.get_ydata()) == {20} for line in steps.lines)
    assert all(set(line.get_ydata()) == {3} for line in invalid.lines)
    for wrong, said in (
        (["a=rl-1,nothing"], "there is no run nothing"),
        (["a=empty"], "no finished update"),
        (["a=rl-1", "a=rl-2"], "the label a is given twice"),
        (["rl-1"], "must be LABEL="),
    ):
        assert main(["curves", "--output", str(tmp_path / "x.png"), "--runs", *wrong]) == 2
        assert said in capsys.readouterr().err
    assert main(["curves", "--output", "x.txt"]) == 2
    assert "LABEL=RUN" in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()

"""Configs by what is asked of them: read from texts or typed values, refused in one sentence, nested, replaced."""

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from alfworld_rl.config import Check, Config, Name, differences, option
from alfworld_rl.errors import UsageError
from alfworld_rl.registry import Registry

COLOURS: Registry[int] = Registry("colour")
COLOURS.add("red", 1, "like blood")
COLOURS.add("green", 2, "like grass")

Text = Annotated[str, Check(lambda text: None if text.strip() else "must not be empty")]
ColourName = Annotated[str, Name(COLOURS)]
type Loudness = Literal["quiet", "loud"]


class Play(Config):
    """How a game is played."""

    temperature: float = option(1.0, "sampling temperature", ge=0)
    top_p: float = option(1.0, "share of probability", gt=0, le=1)
    turns: int | None = option(None, "turns", ge=1, lt=100)
    max_tokens: int = option(100, "tokens", ge=1)
    max_answer: int = option(10, "tokens of an answer", ge=1)

    def conflicts(self) -> list[str]:
        return [] if self.max_answer < self.max_tokens else ["--max-answer must be below --max-tokens"]


class Model(Config):
    """Which model."""

    base_model: Text | None = option(None, "the model")
    colour: ColourName = option("red", "its colour")


class Base(Config):
    """What every command knows."""

    debug: bool = option(False, "show the traceback")


class Command(Base):
    """A command of parts."""

    steps: int = option(80, "updates", ge=1)
    play: Play = Play()
    model: Model = Model()
    loudness: Loudness = option("quiet", "how loud")
    asynchronous: bool = option(True, "at once")
    root: Path | None = option(None, "a folder")
    results: tuple[Text, ...] = option((), "results")
    sizes: tuple[Annotated[int, Field(ge=1)], ...] = option((1,), "sizes")
    roots: tuple[Path, ...] = option((), "folders")
    level: Literal[1, 2] = option(1, "level")
    colours: tuple[ColourName, ...] = option((), "colours")

    def conflicts(self) -> list[str]:
        return ["--temperature 0 needs --steps 1"] if self.play.temperature == 0 and self.steps > 1 else []


class Cold(Command):
    """The same with another default in a part."""

    play: Play = Play(temperature=0.5)


def refusal(values: Mapping[str, Any], config: type[Config] = Command) -> str:
    with pytest.raises(UsageError) as caught:
        config.from_flat(values)
    return str(caught.value)


def test_texts_become_values() -> None:
    config = Command.from_flat(
        {
            "steps": "3",
            "temperature": "1e-2",
            "turns": "4",
            "base_model": "some/model",
            "loudness": "loud",
            "asynchronous": False,
            "root": "~/x",
            "results": ["a", "b"],
            "sizes": ["2", "3"],
            "roots": ["~", "y"],
            "level": "2",
            "colour": "green",
            "debug": True,
        }
    )
    assert (config.steps, config.play.temperature, config.play.turns) == (3, 0.01, 4)
    assert (config.model.base_model, config.model.colour) == ("some/model", "green")
    assert (config.loudness, config.asynchronous, config.debug, config.level) == ("loud", False, True, 2)
    assert config.root == Path.home() / "x"
    assert config.roots == (Path.home(), Path("y"))
    assert (config.results, config.sizes) == (("a", "b"), (2, 3))


def test_the_flat_values_are_plain_and_are_read_back() -> None:
    config = Command.from_flat({"root": "x", "sizes": (5, 6), "roots": ["a"], "turns": 3, "temperature": 2})
    flat = config.to_flat()
    assert list(flat)[:4] == ["debug", "steps", "temperature", "top_p"]
    assert (flat["root"], flat["roots"], flat["sizes"], flat["base_model"]) == ("x", ["a"], [5, 6], None)
    assert Command.from_flat(flat) == config
    assert list(flat) == list(Command.settings)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("steps", "x", "--steps must be a whole number, not 'x'"),
        ("steps", "3.0", "--steps must be a whole number, not '3.0'"),
        ("steps", 3.0, "--steps must be a whole number, not 3.0"),
        ("steps", True, "--steps must be a whole number, not True"),
        ("steps", None, "--steps must be a whole number, not None"),
        ("steps", "nan", "--steps must be a whole number, not 'nan'"),
        ("steps", "0", "--steps must be at least 1, not 0"),
        ("steps", 0, "--steps must be at least 1, not 0"),
        ("turns", "100", "--turns must be at least 1 and below 100, not 100"),
        ("turns", "2147483648", "--turns must be at least 1 and below 100, not 2147483648"),
        ("turns", "1" + "0" * 400, f"--turns must be at least 1 and below 100, not {10**400}"),
        ("turns", "", "--turns must be a whole number, not ''"),
        ("temperature", "warm", "--temperature must be a number, not 'warm'"),
        ("temperature", True, "--temperature must be a number, not True"),
        ("temperature", "nan", "--temperature must be a finite number, not nan"),
        ("temperature", "-inf", "--temperature must be a finite number, not -inf"),
        ("temperature", "1e999", "--temperature must be a finite number, not inf"),
        ("temperature", "-0.5", "--temperature must be at least 0, not -0.5"),
        ("top_p", "0", "--top-p must be above 0 and at most 1, not 0"),
        ("top_p", "3", "--top-p must be above 0 and at most 1, not 3"),
        ("debug", "yes", "--debug must be on or off, not 'yes'"),
        ("asynchronous", 1, "--asynchronous must be on or off, not 1"),
        ("loudness", "lout", "--loudness must be one of quiet, loud, not lout"),
        ("level", "3", "--level must be one of 1, 2, not 3"),
        ("root", "", "--root must name a path, not nothing"),
        ("roots", ["a", ""], "--roots must name a path, not nothing"),
        ("root", 3, "--root must be a path, not 3"),
        ("base_model", " ", "--base-model must not be empty"),
        ("base_model", 3, "--base-model must be text, not 3"),
        ("results", ["a", ""], "--results must not be empty"),
        ("results", "a", "--results must be a list, not 'a'"),
        ("sizes", ["1", "x"], "--sizes must be a whole number, not 'x'"),
        ("sizes", ["0", "-1"], "--sizes must be at least 1, not 0; --sizes must be at least 1, not -1"),
        ("colour", "gren", "--colour must be one of red, green, not gren (did you mean green?)"),
        ("colours", ["red", "x"], "--colours must be one of red, green, not x"),
        ("stepz", "3", "there is no --stepz (did you mean --steps?)"),
        ("basemodel", "3", "there is no --basemodel (did you mean --base-model?)"),
        ("qqq", "3", "there is no --qqq"),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence(name: str, value: Any, complaint: str) -> None:
    assert refusal({name: value}) == complaint


def test_everything_wrong_is_said_at_once_in_the_order_of_declaration() -> None:
    values = {"loudness": "x", "stepz": 1, "max_answer": 100, "top_p": 2, "steps": "0", "debug": "a"}
    assert refusal(values).split("; ") == [
        "--debug must be on or off, not 'a'",
        "--steps must be at least 1, not 0",
        "--top-p must be above 0 and at most 1, not 2",
        "--loudness must be one of quiet, loud, not x",
        "there is no --stepz (did you mean --steps?)",
        "--max-answer must be below --max-tokens",
    ]


def test_conflicts_of_parts_and_of_the_whole_are_said_together() -> None:
    assert refusal({"max_answer": 100, "temperature": 0}) == (
        "--max-answer must be below --max-tokens; --temperature 0 needs --steps 1"
    )
    assert Command.from_flat({"temperature": 0, "steps": 1}).play.temperature == 0


def test_conflicts_see_the_defaults_instead_of_wrong_values() -> None:
    # --max-tokens 0 would be in conflict with every --max-answer; its default is not.
    assert refusal({"max_tokens": 0}) == "--max-tokens must be at least 1, not 0"
    assert refusal({"max_tokens": "x", "max_answer": 200}) == (
        "--max-tokens must be a whole number, not 'x'; --max-answer must be below --max-tokens"
    )


def test_a_needed_value_is_asked_for() -> None:
    class Needy(Config):
        """Needs."""

        path: Path = option(..., "where to")
        count: int = option(1, "how many", ge=1)

        def conflicts(self) -> list[str]:
            return [f"{self.path} is never right"]

    assert refusal({"count": 0}, Needy) == "--path is needed; --count must be at least 1, not 0"
    assert refusal({"path": "x"}, Needy) == "x is never right"
    assert refusal({"path": ""}, Needy) == "--path must name a path, not nothing"


def test_a_config_made_directly_is_checked_as_well() -> None:
    with pytest.raises(UsageError, match=r"^--top-p must be above 0 and at most 1, not 2; --turns must be a whole"):
        Play(top_p=2, turns="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^--max-answer must be below --max-tokens$"):
        Play(max_answer=100)
    with pytest.raises(UsageError, match=r"^there is no --temperatur \(did you mean --temperature\?\)$"):
        Play(temperatur=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="--temperature 0 needs --steps 1"):
        Command(play=Play(temperature=0))
    with pytest.raises(UsageError, match=r"^play must be a part of the settings, not 3$"):
        Command(play=3)  # type: ignore[arg-type]
    assert Command(root="~/x").root == Path.home() / "x"  # type: ignore[arg-type]
    assert Command(play=Play(temperature=2)).given == {"temperature"}


def test_a_config_does_not_change() -> None:
    config = Command()
    with pytest.raises(ValidationError):
        config.steps = 3  # type: ignore[misc]
    assert hash(config) == hash(Command())


def test_what_was_given_is_known_and_the_rest_can_have_other_defaults() -> None:
    config = Command.from_flat({"steps": 80, "temperature": "2"})
    assert config.given == {"steps", "temperature"}
    assert config == Command().replace(temperature=2)
    preset = config.with_defaults({"steps": 5, "top_p": 0.5, "asynchronous": False, "max_tokens": 50})
    assert (preset.steps, preset.play.temperature, preset.play.top_p, preset.asynchronous) == (80, 2, 0.5, False)
    assert preset.given == config.given
    again = preset.with_defaults({"max_tokens": 60})
    assert (again.play.top_p, again.play.max_tokens) == (0.5, 60)
    with pytest.raises(UsageError, match="there is no --topp"):
        config.with_defaults({"topp": 1})
    assert Command().given == frozenset()


def test_replaced_values_count_as_given_and_are_checked() -> None:
    config = Command.from_flat({"top_p": 0.5}).replace(steps="7", colour="green")
    assert (config.steps, config.model.colour, config.play.top_p) == (7, "green", 0.5)
    assert config.given == {"top_p", "steps", "colour"}
    with pytest.raises(UsageError, match="--steps must be at least 1, not 0; --max-answer must be below --max-tokens"):
        config.replace(steps=0, max_answer=1000)
    assert config.replace() == config


def test_a_command_may_have_other_defaults_in_a_part() -> None:
    assert Cold().play.temperature == 0.5
    assert Cold().given == frozenset()
    changed = Cold.from_flat({"top_p": "0.9"})
    assert (changed.play.temperature, changed.play.top_p) == (0.5, 0.9)
    assert changed.given == {"top_p"}
    assert Cold.settings["temperature"].default == 0.5
    assert Command.settings["temperature"].default == 1.0
    assert refusal({"max_answer": 100, "temperature": "x"}, Cold).startswith("--temperature must be a number")


def test_differences_are_said_in_the_words_of_flags() -> None:
    before, now = Command().to_flat(), Command.from_flat({"steps": 3, "root": "x"}).to_flat()
    assert differences(before, now) == ['--root was null, not "x"', "--steps was 80, not 3"]
    assert differences({"old": 1}, {}) == ["--old was 1, not null"]
    assert differences(now, now) == []


def test_a_config_survives_being_copied_and_sent_to_a_process() -> None:
    config = Command.from_flat({"steps": 3, "top_p": 0.5})
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config
        assert other.given == config.given


def test_a_flat_name_exists_once() -> None:
    with pytest.raises(TypeError, match="Twice has --temperature twice"):

        class Twice(Config):
            play: Play = Play()
            temperature: float = option(1.0, "again")

    with pytest.raises(TypeError, match="--config is the settings file"):

        class Reserved(Config):
            config: str = option("x", "taken")


@pytest.mark.parametrize("kind", [dict[str, int], int | str, tuple[int, int], list[int], object])
def test_a_type_that_no_flag_can_have_is_a_programming_error(kind: Any) -> None:
    with pytest.raises(TypeError, match="thing: a setting is a bool, int"):
        type("Wrong", (Config,), {"__annotations__": {"thing": kind}, "thing": option(None, "x")})


def test_a_default_that_is_refused_is_noticed() -> None:
    class Wrong(Config):
        steps: int = option(0, "updates", ge=1)

    with pytest.raises(UsageError, match="--steps must be at least 1, not 0"):
        Wrong()

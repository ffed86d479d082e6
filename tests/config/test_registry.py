"""Names and what they stand for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from alfworld_rl.errors import UsageError
from alfworld_rl.registry import Registry


@pytest.fixture
def rewards() -> Registry[Callable[..., float]]:
    registry: Registry[Callable[..., float]] = Registry("reward")

    @registry.register("success", "1 for a won game")
    def success(won: bool) -> float:
        return float(won)

    @registry.register("shaped", "less a penalty")
    def shaped(
        won: bool, *, penalty: float = 0.1, cap: int = 3, strict: bool = False, name: str = "x", hook: object = None
    ) -> float:
        return won - penalty * cap

    return registry


@pytest.fixture
def strangers_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    Path("strangers_reward.py").write_text(
        "NUMBER = 3\ndef mine(won, *, bonus=2.0):\n    return won * bonus\nclass Box:\n    other = staticmethod(mine)\n"
    )
    Path("strangers_broken.py").write_text("1 / 0\n")


def test_names_are_in_the_order_in_which_they_were_added(rewards: Registry[Callable[..., float]]) -> None:
    assert rewards.names() == tuple(rewards) == ("success", "shaped")
    assert rewards.summaries() == {"success": "1 for a won game", "shaped": "less a penalty"}
    assert "success" in rewards
    assert "other" not in rewards
    assert len(rewards) == 2
    assert rewards["success"](True) == 1.0


@pytest.mark.parametrize("name", ["success", "module:function", ""])
def test_a_name_is_given_once(rewards: Registry[Callable[..., float]], name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of another reward"):
        rewards.add(name, float, "again")


def test_an_unknown_name_is_refused_with_the_nearest_and_all(rewards: Registry[Callable[..., float]]) -> None:
    with pytest.raises(UsageError) as caught:
        rewards["sucess"]
    assert str(caught.value) == "the reward must be one of success, shaped, not sucess (did you mean success?)"
    assert rewards.complaint("zzz") == "must be one of success, shaped, not zzz"
    assert rewards.complaint("success") is None


@pytest.mark.usefixtures("strangers_module")
def test_a_module_and_an_attribute_are_a_name(rewards: Registry[Callable[..., float]]) -> None:
    assert rewards["strangers_reward:mine"](3.0) == 6.0
    assert rewards["strangers_reward:Box.other"](3.0) == 6.0
    assert rewards.parameters("strangers_reward:mine") == {"bonus": 2.0}
    assert rewards.bind("strangers_reward:mine", bonus=3)(3.0) == 9.0


@pytest.mark.usefixtures("strangers_module")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "strangers_nothing:x",
            "strangers_nothing:x cannot be imported (ModuleNotFoundError: No module named 'strangers_nothing')",
        ),
        (
            "strangers_broken:x",
            "strangers_broken:x cannot be imported (ZeroDivisionError: division by zero)",
        ),
        (
            "strangers_reward:mina",
            "strangers_reward:mina cannot be imported (module strangers_reward has no 'mina' (did you mean mine?))",
        ),
        ("strangers_reward:NUMBER", "strangers_reward:NUMBER is not a function"),
        (":x", ":x must be written as MODULE:NAME"),
        ("strangers_reward:", "strangers_reward: must be written as MODULE:NAME"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_a_sentence(
    rewards: Registry[Callable[..., float]], name: str, complaint: str
) -> None:
    assert rewards.complaint(name) == complaint
    with pytest.raises(UsageError, match=r"^the reward "):
        rewards[name]


def test_things_need_not_be_functions() -> None:
    numbers: Registry[float] = Registry("number")
    numbers.add("one", 1.0, "")
    assert numbers["math:pi"] > 3
    assert numbers.parameters("one") == {}


def test_parameters_are_keyword_only_and_plain(rewards: Registry[Callable[..., float]]) -> None:
    assert rewards.parameters("shaped") == {"penalty": 0.1, "cap": 3, "strict": False, "name": "x"}
    assert rewards.parameters("success") == {}


def test_binding_sets_parameters(rewards: Registry[Callable[..., float]]) -> None:
    assert rewards.bind("shaped", penalty=1, cap=2)(True) == -1
    assert rewards.bind("success")(True) == 1


def test_binding_refuses_what_does_not_fit(rewards: Registry[Callable[..., float]]) -> None:
    with pytest.raises(UsageError) as caught:
        rewards.bind("shaped", penalti=1, penalty="x", cap=True, strict=1, name=3)
    assert str(caught.value) == (
        "the reward shaped has no parameter penalti (did you mean penalty?), it has penalty, cap, strict, name; "
        "the reward shaped needs a finite number as its penalty, not 'x'; "
        "the reward shaped needs a whole number as its cap, not True; "
        "the reward shaped needs True or False as its strict, not 1; "
        "the reward shaped needs text as its name, not 3"
    )
    with pytest.raises(UsageError, match="a finite number as its penalty, not nan"):
        rewards.bind("shaped", penalty=float("nan"))
    with pytest.raises(UsageError, match="the reward success has no parameter x, it has none"):
        rewards.bind("success", x=1)

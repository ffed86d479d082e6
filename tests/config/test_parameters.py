"""Keyword-only parameters of registered functions as settings."""

from collections.abc import Callable
from typing import Annotated, Literal

import pytest
from pydantic import Field

from alfworld_rl.config import Config, ParametersConfig, flags_table, option, parameters_config
from alfworld_rl.errors import UsageError
from alfworld_rl.registry import Registry

ESTIMATORS: Registry[Callable[..., float]] = Registry("advantage estimator")


@ESTIMATORS.register("mean", "less the mean")
def mean(reward: float) -> float:
    return reward


@ESTIMATORS.register("leave-one-out", "less the mean of the others")
def leave_one_out(reward: float, *, scale: bool = False, how: Literal["a", "b"] = "a") -> float:
    return reward if scale and how else 0.0


@ESTIMATORS.register("gigpo", "by episode and by step")
def gigpo(reward: float, *, discount: Annotated[float, Field(ge=0, le=1)] = 0.95, step_weight: float = 1.0) -> float:
    """Two levels.

    - discount: what a reward is worth a step earlier.
    """
    return reward * discount + step_weight


Parameters = parameters_config(ESTIMATORS)


class Algorithm(Config):
    """How to learn."""

    advantage: str = option("mean", "estimator")
    parameters: ParametersConfig = Parameters()


def test_each_parameter_is_a_flat_name() -> None:
    assert list(Algorithm.settings) == [
        "advantage",
        "leave_one_out_scale",
        "leave_one_out_how",
        "gigpo_discount",
        "gigpo_step_weight",
    ]
    help = {name: one.help for name, one in Algorithm.settings.items()}
    assert help["gigpo_discount"] == "what a reward is worth a step earlier"
    assert help["gigpo_step_weight"] == "step weight of the advantage estimator gigpo"
    assert "Parameters of the advantage estimators.\n" in flags_table(Algorithm)


def test_the_parameters_of_an_entry_bind_its_function() -> None:
    config = Algorithm.from_flat({"gigpo_discount": "0.5", "gigpo_step_weight": "2", "leave_one_out_scale": True})
    assert config.parameters.of("gigpo") == {"discount": 0.5, "step_weight": 2.0}
    assert config.parameters.of("leave-one-out") == {"scale": True, "how": "a"}
    assert config.parameters.of("mean") == config.parameters.of("some.module:function") == {}
    assert ESTIMATORS.bind("gigpo", **config.parameters.of("gigpo"))(4.0) == 4.0
    assert config.given == {"gigpo_discount", "gigpo_step_weight", "leave_one_out_scale"}


def test_limits_and_choices_of_the_annotation_hold() -> None:
    with pytest.raises(UsageError) as caught:
        Algorithm.from_flat({"gigpo_discount": "2", "gigpo_step_weight": "nan", "leave_one_out_how": "c"})
    assert str(caught.value) == (
        "--leave-one-out-how must be one of a, b, not c; --gigpo-discount must be at least 0 and at most 1, not 2; "
        "--gigpo-step-weight must be a finite number, not nan"
    )


def test_a_prefix_keeps_two_registries_apart() -> None:
    class Both(Config):
        first: ParametersConfig = Parameters()
        second: ParametersConfig = parameters_config(ESTIMATORS, lambda name: f"other_{name}")()

    assert "other_gigpo_discount" in Both.settings
    assert Both.from_flat({"other_gigpo_discount": 0.5}).second.of("gigpo")["discount"] == 0.5
    with pytest.raises(TypeError, match="--gigpo-discount"):

        class Same(Config):
            first: ParametersConfig = Parameters()
            second: ParametersConfig = parameters_config(ESTIMATORS)()

    rewards: Registry[Callable[..., float]] = Registry("reward")
    rewards.add("a", leave_one_out, "")
    rewards.add("b", leave_one_out, "")
    with pytest.raises(TypeError, match="two rewards have the parameter x_scale"):
        parameters_config(rewards, lambda name: "x")

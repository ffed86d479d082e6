"""What others build on: a change here breaks their code, so it is made on purpose or not at all."""

import importlib
import inspect
import subprocess
import sys

import pytest

import alfworld_rl as rl


def signature(function) -> str:
    """Names, kinds and defaults of the parameters; annotations may be sharpened."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(
        {parameter.KEYWORD_ONLY: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        + parameter.name
        + ("" if parameter.default is parameter.empty else "=")
        for parameter in parameters
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("load_games", "data_root=, split=, *environment="),
        (
            "open_trainer",
            "base_model=, *backend=, *weights=, *state=, *lora_rank=, *seed=, *runs_dir=",
        ),
        ("open_sampler", "base_model=, *backend=, *weights=, *runs_dir="),
        ("make_agent", "model, format=, *commands=, **options"),
        ("rollout", "games, sampler, agent, *group_size=, *limits=, *sampling=, *seed=, *in_flight="),
        ("make_data", "groups, advantages"),
        ("update", "trainer, data, *loss=, *learning_rate=, *epochs=, *minibatches=, *seed=, **adam"),
        (
            "evaluate",
            "games, sampler, agent, *samples_per_game=, *limits=, *sampling=, *reward=, *seed=, *in_flight=, "
            "*on_finished=",
        ),
        ("compare", "before, after"),
        ("World", "game"),
    ],
)
def test_signatures(name: str, parameters: str) -> None:
    assert signature(getattr(rl, name)) == parameters


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    assert rl.__all__ == sorted(rl.__all__)
    for name in rl.__all__:
        if name not in ("rewards", "advantages"):
            assert inspect.getdoc(getattr(rl, name)), name
    with pytest.raises(AttributeError, match="no attribute 'rollouts_'"):
        rl.rollouts_  # noqa: B018


def test_rewards_and_advantages_are_those_of_the_registries() -> None:
    assert dir(rl.rewards) == sorted(["document", "penalized_success", "success"])
    assert dir(rl.advantages) == sorted(["gigpo", "leave_one_out", "mean", "standardized"])
    with pytest.raises(AttributeError, match="there is no reward money; there are document"):
        rl.rewards.money  # noqa: B018


def test_the_front_door_opens_without_what_it_does_not_need() -> None:
    code = "import sys, alfworld_rl; print(sorted(sys.modules.keys() & {'torch', 'pytrio', 'matplotlib', 'pydantic'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("place", "name", "members"),
    [
        ("agents", "AgentFormat", "answer commands fingerprint name opening parse stop write"),
        ("backends.base", "Sampler", "logprobs sample tokenizer"),
        (
            "backends.base",
            "Trainer",
            "forward_backward optim_step sampler save_sampler_weights save_state tokenizer",
        ),
        ("backends.base", "Backend", "capabilities close delete sampler trainer"),
        ("envs.base", "Environment", "close reset state_key step"),
        ("envs.base", "EnvironmentFamily", "content_hash left_out pool tasks"),
        ("algorithms.recipe", "Recipe", "batch line"),
    ],
)
def test_contracts(place: str, name: str, members: str) -> None:
    contract = getattr(importlib.import_module(f"alfworld_rl.{place}"), name)
    assert " ".join(sorted(contract.__protocol_attrs__)) == members

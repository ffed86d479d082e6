"""Settings that several commands share: what cannot be is told all at once, and what they become."""

from pathlib import Path

import pytest

from alfworld_rl.algorithms.config import OptimizerConfig, PolicyGradientConfig, RewardConfig
from alfworld_rl.commands.common import EpisodeConfig
from alfworld_rl.commands.train import TrainConfig
from alfworld_rl.errors import UsageError
from alfworld_rl.rollouts import Limits, Sampling
from alfworld_rl.types import AdamParams, LossSpec


def refusal(config, **values):
    with pytest.raises(UsageError) as raised:
        config.from_flat(values)
    return str(raised.value)


def test_how_games_are_played_that_cannot_be_is_told_all_at_once():
    text = refusal(
        EpisodeConfig,
        max_episode_steps=0,
        max_trajectory_tokens=10,
        max_assistant_tokens=0,
        temperature=float("nan"),
        top_p=0,
    )
    for name in ("max-episode-steps", "max-trajectory-tokens", "max-assistant-tokens", "temperature", "top-p"):
        assert f"--{name}" in text
    # A message as long as a whole trajectory leaves no room for a prompt.
    assert "--max-trajectory-tokens 300" in refusal(EpisodeConfig, max_trajectory_tokens=300, max_assistant_tokens=300)


def test_what_cannot_be_learned_is_told_all_at_once():
    text = refusal(
        TrainConfig,
        advantage="best",
        loss="cross_entropy",
        ppo_clip_low=1.1,
        ppo_clip_high=0.9,
        learning_rate=0,
        epochs=0,
        minibatches=0,
        warmup_steps=-1,
        kl_coef=float("nan"),
        schedule="square",
        reward="money",
    )
    named = ("advantage", "loss", "ppo-clip-low", "ppo-clip-high", "learning-rate", "epochs", "minibatches")
    for name in (*named, "warmup-steps", "kl-coef", "schedule", "reward"):
        assert f"--{name} " in text


def test_the_defaults_are_those_of_the_quick_start():
    episode = EpisodeConfig()
    assert episode.limits == Limits(max_episode_steps=50, max_trajectory_tokens=12000, max_assistant_tokens=2048)
    assert episode.sampling == Sampling(temperature=1.0, top_p=1.0)
    assert episode.commands_shown == "full"
    assert PolicyGradientConfig().loss_spec() == LossSpec("ppo", 0.8, 1.2)
    assert OptimizerConfig().adam(0, 80) == AdamParams()


def test_the_learning_rate_of_an_update_is_the_schedules():
    optimizer = OptimizerConfig(learning_rate=1.0, warmup_steps=3, schedule="linear")
    assert [optimizer.adam(update, 7).learning_rate for update in range(7)] == [0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, "full"),
        ({"admissible_commands": "changes"}, "changes"),
        ({"include_admissible_actions": True}, "full"),
        ({"include_admissible_actions": False}, "none"),
    ],
)
def test_both_ways_to_say_what_is_shown(given, shown):
    assert EpisodeConfig(**given).commands_shown == shown


def test_two_ways_to_say_what_is_shown_must_agree():
    text = refusal(EpisodeConfig, admissible_commands="none", include_admissible_actions=True)
    assert "--admissible-commands none contradicts --include-admissible-actions" in text
    assert EpisodeConfig(admissible_commands="changes", include_admissible_actions=True).commands_shown == "changes"


def test_a_reward_says_what_changed_its_meaning():
    assert RewardConfig().described() == {"reward": "document"}
    config = RewardConfig.from_flat({"reward": "penalized-success", "penalized_success_floor": 0.3})
    assert config.described() == {"reward": "penalized-success", "reward_floor": 0.3}


def test_an_estimators_parameters_are_flags():
    config = PolicyGradientConfig.from_flat({"advantage": "gigpo", "gigpo_step_weight": 0.5})
    assert config.estimator().keywords["step_weight"] == 0.5
    assert "--gigpo-step-weight" in refusal(PolicyGradientConfig, advantage="gigpo", gigpo_step_weight="much")


def test_games_folder_is_the_one_given(tmp_path: Path):
    assert EpisodeConfig(data_root=tmp_path).games_folder == tmp_path

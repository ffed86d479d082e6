"""What comes with the package loads offline, fits in it, and speaks the protocol that the rollouts speak."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import safe_open
from transformers import AutoTokenizer

from alfworld_rl.agents import FORMATS
from alfworld_rl.agents.calls import TOOL, read_action
from alfworld_rl.backends.local import LocalBackend, builtin
from alfworld_rl.envs import AlfworldFamily
from alfworld_rl.envs.tasks import spread
from alfworld_rl.errors import UsageError
from alfworld_rl.evaluation.evaluate import evaluate
from alfworld_rl.games import discover, generate
from alfworld_rl.rollouts import Limits
from alfworld_rl.types import Completion
from alfworld_rl.world import Game, World


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=12, valid_seen=2, valid_unseen=2, seed=3)
    return root


def test_the_package_holds_at_most_20_mb_of_policies():
    files = [file for name in builtin.NAMES for file in builtin.path(name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 20 * 2**20


@pytest.mark.parametrize("name", builtin.NAMES)
def test_a_policy_has_at_most_ten_million_parameters(name):
    with safe_open(builtin.path(name) / "model.safetensors", "pt") as file:
        parameters = sum(torch.Size(file.get_slice(key).get_shape()).numel() for key in file.keys())  # noqa: SIM118
    assert 1_000_000 < parameters <= 10_000_000


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(UsageError, match="alfworld-tiny"):
        builtin.path("alfworld-huge")


@pytest.mark.parametrize("name", builtin.NAMES)
@pytest.mark.parametrize("shown", ["full", "changes", "none"])
def test_the_protocol_is_spoken_in_few_tokens(name, shown, games):
    """A protocol text that was changed after the policy was trained would be spelled out in dozens of tokens."""
    tokenizer = AutoTokenizer.from_pretrained(builtin.path(name), local_files_only=True)
    protocol = FORMATS["tool-call"](tokenizer, shown)
    assert protocol.write(None)[-1] == tokenizer.eos_token_id
    for ref in discover(games, "train").games:
        world = World(Game.load(ref.path))
        opening = protocol.opening(world.view).tokens
        names = len(world.game.receptacles)
        assert len(opening) <= 30 + 2 * names + (2 * len(world.view.admissible_commands) if shown != "none" else 0)
        for command in world.view.admissible_commands:
            message = protocol.write(command)
            assert len(message) <= 6
            assert read_action(tokenizer.decode(message[:-1])) == command


async def test_it_wins_games_of_houses_that_it_has_not_seen(real_games):
    """A weight file, tokenizer or protocol that does not belong to the others shows here, not in a table of docs."""
    family = AlfworldFamily(real_games)
    sampler = LocalBackend(Path("unused")).sampler("alfworld-tiny")
    agent = FORMATS["tool-call"](sampler.tokenizer)
    tasks = spread(family.tasks("valid_unseen"), 20)
    assert (await evaluate(tasks, sampler, agent, family, limits=Limits(max_assistant_tokens=64))).success_rate >= 0.85


@pytest.mark.parametrize("shown", ["full", "changes", "none"])
def test_a_conversation_renders_to_the_tokens_that_a_rollout_appends(shown, games):
    tokenizer = AutoTokenizer.from_pretrained(builtin.path("alfworld-tiny"), local_files_only=True)
    protocol = FORMATS["tool-call"](tokenizer, shown)
    view = World(Game.load(discover(games, "train").games[0].path)).view
    message = protocol.write("look")
    answer = protocol.answer(view, replace(view, observation="You see a mug 1."), Completion(message, (), "stop"))
    grown = [*protocol.opening(view).tokens, *message, *answer.tokens]
    call = {"type": "function", "function": {"name": "alfworld_step", "arguments": {"action": "look"}}}
    conversation = [
        *protocol.opening(view).messages,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        *answer.messages,
    ]
    text = tokenizer.apply_chat_template(
        conversation, tools=[TOOL], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert tokenizer.decode(grown) == text

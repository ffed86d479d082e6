"""A game as messages is the game that our own rollouts play: same words, same end, same reward."""

import random
from pathlib import Path

import pytest

from agent_models import TEMPLATES, call, qwen_like
from alfworld_rl.agents import FORMATS, CommandsShown
from alfworld_rl.algorithms.rewards import REWARDS, score
from alfworld_rl.compat.chat import ChatGame, ChatRules
from alfworld_rl.games import GameRef, generate
from alfworld_rl.rollouts import Episode, Limits, Trajectory
from alfworld_rl.types import Completion
from alfworld_rl.world import Game, World


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chat")
    generate(root, train=3, valid_seen=0, valid_unseen=0, seed=3)
    return root


def said_in(game: GameRef, rng: random.Random) -> list[str]:
    """The walkthrough, and between its calls what a model writes on a bad day."""
    mistakes = [
        "I am lost.",
        call("fly to the moon"),
        f"{call('look')} and then {call('inventory')}",
        f"<think>\n{call('look')}\n</think>\n\nno.",
        f"<think>\nhmm\n</think>\n\n{call('  LOOK ')}",
        f"{call('look')} You see nothing.",
    ]
    messages = [call(command) for command in Game.load(game.path).walkthrough]
    for mistake in mistakes:
        messages.insert(rng.randrange(len(messages)), mistake)
    return messages


@pytest.mark.parametrize("commands", ["full", "changes", "none"])
@pytest.mark.parametrize("steps", [5, 50])
def test_the_same_play_as_in_a_rollout(data_root: Path, commands: CommandsShown, steps: int) -> None:
    tokenizer = qwen_like(TEMPLATES["no tools"])
    agent = FORMATS["tool-call"](tokenizer, commands)
    rules = ChatRules(
        data_root=data_root,
        admissible_commands=commands,
        max_episode_steps=steps,
        call_explained=True,
        reward="document",
    )
    for seed, game in enumerate(rules.games()):
        world, play = World(Game.load(game.path)), rules.begin(game)
        limits = Limits(max_episode_steps=steps, max_trajectory_tokens=10**6)
        episode = Episode(Trajectory(game=game), agent, limits, world.view)
        messages = [rules.system, {"role": "user", "content": play.opening}]
        assert messages == episode.trajectory.messages
        for text in said_in(game, random.Random(seed)):
            tokens = tuple(tokenizer.encode(text + "<|im_end|>", add_special_tokens=False))
            state_key = world.state_key
            done = episode.act(Completion(tokens, (0.0,) * len(tokens), "stop"))
            episode.observe(done, None if done is None else world.step(done), state_key)
            answer = play.hear(text)
            assert episode.trajectory.messages[-1]["content"] == answer
            assert play.over == episode.over
            if play.over:
                break
        ours, theirs = episode.trajectory, play.trajectory
        assert theirs.stop_reason == ours.stop_reason == ("won" if steps == 50 else "max_steps")
        assert [(step.text, step.thought, step.action, step.accepted, step.state_key) for step in theirs.steps] == [
            (step.text, step.thought, step.action, step.accepted, step.state_key) for step in ours.steps
        ]
        assert play.reward() == pytest.approx(score(ours, REWARDS["document"]).total)
        with pytest.raises(ValueError, match="the game is over"):
            play.act("look")


def test_copies_of_a_game_do_not_meet(data_root: Path) -> None:
    rules = ChatRules(data_root=data_root)
    game = rules.games()[0]
    first, second = rules.begin(game), ChatGame(game, rules)
    before = second.act("inventory")
    for command in Game.load(game.path).walkthrough:
        first.act(command)
    assert (first.won, second.won) == (True, False)
    assert second.act("inventory") == before

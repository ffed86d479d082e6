"""Demonstrations are rollouts in form, and ask in every state for what the demonstrator would do there."""

import json
import random

import numpy as np
import pytest
from transformers import AutoTokenizer

from agent_models import ScriptedSampler
from alfworld_rl.agents import FORMATS
from alfworld_rl.commands.sft import won_plays
from alfworld_rl.envs import AlfworldFamily
from alfworld_rl.errors import UsageError
from alfworld_rl.games import discover
from alfworld_rl.imitation.demonstrations import Mistakes, completions_of, demonstrate, imitate, label
from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.rollouts import Limits, rollout
from alfworld_rl.types import Completion
from alfworld_rl.world import Game, World

NO_MISTAKES = Mistakes()


@pytest.fixture(scope="module")
def tokenizer(policy):
    return AutoTokenizer.from_pretrained(policy)


@pytest.fixture(scope="module")
def refs(games):
    return discover(games, "train").games


@pytest.fixture(scope="module")
def train_games(refs):
    return [Game.load(game.path) for game in refs]


@pytest.mark.parametrize("shown", ["full", "changes", "none"])
@pytest.mark.parametrize("perturbation", [0.0, 0.5])
async def test_a_demonstration_is_token_for_token_the_rollout_that_plays_its_messages(
    games, refs, tokenizer, shown, perturbation
):
    agent = FORMATS["tool-call"](tokenizer, shown)
    mistakes = Mistakes(perturbation=perturbation, exploration=1.0)
    for number, ref in enumerate(refs[:6]):
        made = demonstrate(Game.load(ref.path), ref, agent, Limits(), mistakes, random.Random(number))
        # A sampler that says what it is told, so that a rollout can play what the demonstration played.
        told = iter(completions_of(made.transcript))
        sampler = ScriptedSampler(tokenizer, lambda text, number, told=told: next(told))
        with AlfworldFamily(games).pool() as pool:
            [group] = await rollout([ref], sampler, agent, pool, seed_path=(0,))
        [trajectory] = group.trajectories
        assert list(trajectory.transcript.prompt)[: len(made.transcript)] == list(made.transcript.prompt)
        assert trajectory.transcript.turns == made.transcript.turns
        assert trajectory.won == made.won


def test_an_unperturbed_demonstration_wins_and_is_its_own_label(tokenizer, refs, train_games):
    agent = FORMATS["tool-call"](tokenizer, "full")
    for game, ref in zip(train_games, refs, strict=True):
        made = demonstrate(game, ref, agent, Limits(), NO_MISTAKES, random.Random(0))
        assert made.won
        plain = made.transcript.datum(0.0)
        datum = made.datum()
        for name in ("tokens_T", "targets_T", "mask_T"):
            assert np.array_equal(getattr(datum, name), getattr(plain, name))


def test_where_the_play_departs_the_wanted_token_is_asked_for_and_nothing_behind_it(tokenizer, refs, train_games):
    agent = FORMATS["tool-call"](tokenizer, "none")
    game = train_games[0]
    view = World(game).view
    wanted = agent.write(Demonstrator(game.task, view).act())
    wrong = agent.write("look")
    made = label(game, refs[0], agent, Limits(), [Completion(tuple(wrong), (0.0,) * len(wrong), "stop")])
    datum = made.datum()
    [(start, end)] = made.transcript.turns
    common = next(i for i, (a, b) in enumerate(zip(wanted, wrong, strict=False)) if a != b)
    assert np.flatnonzero(datum.mask_T).tolist() == list(range(start - 1, start + common))
    assert datum.targets_T[start - 1 : start + common].tolist() == list(wanted[: common + 1])
    assert datum.tokens_T[start:].tolist() == list(wrong[: len(datum.tokens_T) - start])
    assert end == start + len(wrong)


def test_a_play_is_left_out_from_where_it_has_been_refused_often_enough(tokenizer, refs, train_games):
    agent = FORMATS["tool-call"](tokenizer, "full")
    first = Demonstrator(train_games[0].task, World(train_games[0]).view).act()
    messages = [
        Completion(tuple(tokens), (0.0,) * len(tokens), "stop")
        for tokens in map(agent.write, ["fly", first, "fly", "fly", "fly", first])
    ]
    whole, cut = (
        label(train_games[0], refs[0], agent, Limits(), messages, patience=patience) for patience in (None, 3)
    )
    assert (len(whole.wanted), len(cut.wanted)) == (6, 5)
    assert cut.wanted == whole.wanted[:5]


def test_what_the_world_says_counts_with_its_own_weight_and_mistakes_never(tokenizer, refs, train_games):
    agent = FORMATS["tool-call"](tokenizer, "full")
    for number, game in enumerate(train_games[:4]):
        made = demonstrate(game, refs[number], agent, Limits(), Mistakes(perturbation=0.5), random.Random(number))
        plain, watched = made.datum(), made.datum(observation_weight=0.25)
        read_T = ~made.transcript.datum(0.0).mask_T
        assert np.array_equal(watched.mask_T, plain.mask_T | read_T)
        assert set(plain.advantages_T[plain.mask_T]) == {1.0}
        assert set(watched.advantages_T[read_T]) == {0.25}
        assert np.array_equal(watched.advantages_T[~read_T], plain.advantages_T[~read_T])
        assert np.array_equal(watched.targets_T, plain.targets_T)


def test_labels_lead_out_of_any_mess(tokenizer, refs, train_games):
    """Half of the commands get in the way; following the labels from there on still wins."""
    agent = FORMATS["tool-call"](tokenizer, "none")
    short, long = Limits(max_episode_steps=8), Limits(max_episode_steps=100)
    for number, (game, ref) in enumerate(zip(train_games[:8], refs, strict=False)):
        made = demonstrate(game, ref, agent, short, Mistakes(perturbation=1.0), random.Random(number))
        messages = completions_of(made.transcript)
        for _ in range(60):
            labelled = label(game, ref, agent, long, messages)
            if labelled.won:
                break
            # The label of the next turn shows only once that turn is played, by any message.
            probe = Completion(tuple(agent.write(None)), (0.0,), "stop")
            wanted = label(game, ref, agent, long, [*messages, probe]).wanted[-1]
            messages.append(Completion(tuple(wanted), (0.0,) * len(wanted), "stop"))
        assert labelled.won


def test_results_files_are_imitated_without_their_refused_commands(tmp_path, tokenizer, refs, train_games):
    agent = FORMATS["tool-call"](tokenizer, "full")
    ref = refs[0]
    world = World(train_games[0])
    demonstrator = Demonstrator(train_games[0].task, world.view)
    messages = [{"role": "assistant", "content": "I talk too much"}]
    while not world.view.done:
        command = demonstrator.act()
        call = {"function": {"name": "alfworld_step", "arguments": json.dumps({"action": command})}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        demonstrator.observe(command, world.step(command))
    lines = [
        {"type": "trajectory", "game_id": ref.game_id, "won": True, "messages": messages},
        {"type": "trajectory", "game_id": "train/lost", "won": False, "messages": []},
        {"type": "summary"},
    ]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [(game_id, actions)] = won_plays(results)
    assert (game_id, actions[0]) == (ref.game_id, None)
    made = imitate(train_games[0], ref, agent, Limits(), actions)
    assert made.won
    assert made.wanted[0] == []
    assert not made.datum().mask_T[: made.transcript.turns[1][0] - 1].any()


@pytest.mark.parametrize("text", ["", "rubbish\n", '{"type": "trajectory"}\n', '{"type": "summary"}\n'])
def test_what_is_no_results_file_is_refused_in_a_sentence(tmp_path, text):
    results = tmp_path / "results.jsonl"
    results.write_text(text)
    with pytest.raises(UsageError, match=r"results\.jsonl"):
        list(won_plays(results))
    with pytest.raises(UsageError, match="cannot be read"):
        list(won_plays(tmp_path / "missing.jsonl"))

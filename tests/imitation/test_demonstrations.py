"""Demonstrations are rollouts in form, and ask in every state for what the demonstrator would do there."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from alfworld_rl.learning.demonstrations import (
    PlaySettings,
    completions_of,
    demonstrate,
    imitate,
    label,
    won_plays,
)
from alfworld_rl.rollout import RolloutSettings, collect
from transformers import AutoTokenizer

from alfworld_rl.agents import FORMATS
from alfworld_rl.errors import UsageError
from alfworld_rl.games import discover
from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.types import Completion, Sampled, Usage
from alfworld_rl.world import Game, World


@pytest.fixture(scope="module")
def tokenizer(policy):
    return AutoTokenizer.from_pretrained(policy)


@pytest.fixture(scope="module")
def train_games(games):
    return [Game.load(game.path) for game in discover(games, "train").games]


class Scripted:
    """A sampler that says what it is told, so that a rollout can play what a demonstration played."""

    def __init__(self, tokenizer, completions):
        self.tokenizer = tokenizer
        self._left = list(completions)

    async def sample(self, prompt, *, n=1, **_):
        return Sampled(tuple(self._left.pop(0) for _ in range(n)), Usage(prefill=len(prompt)))


@pytest.mark.parametrize("shown", ["full", "changes", "none"])
@pytest.mark.parametrize("perturbation", [0.0, 0.5])
async def test_a_demonstration_is_token_for_token_the_rollout_that_plays_its_messages(
    games, tokenizer, shown, perturbation
):
    protocol = FORMATS["tool-call"](tokenizer, shown)
    settings = PlaySettings(admissible_commands=shown, perturbation=perturbation, exploration=1.0)
    for number, ref in enumerate(discover(games, "train").games[:6]):
        made = demonstrate(Game.load(ref.path), protocol, settings, random.Random(number))
        completions = completions_of(made.transcript)
        rollout = RolloutSettings(admissible_commands=shown)
        [group] = await collect([ref], Scripted(tokenizer, completions), rollout, group_size=1, seed_path=(0,))
        [trajectory] = group.trajectories
        assert list(trajectory.transcript.prompt)[: len(made.transcript)] == list(made.transcript.prompt)
        assert trajectory.transcript.turns == made.transcript.turns
        assert trajectory.won == made.won


def test_an_unperturbed_demonstration_wins_and_is_its_own_label(tokenizer, train_games):
    protocol = FORMATS["tool-call"](tokenizer, "full")
    for game in train_games:
        made = demonstrate(game, protocol, PlaySettings(), random.Random(0))
        assert made.won
        plain = made.transcript.datum(0.0)
        datum = made.datum()
        for name in ("tokens_T", "targets_T", "mask_T"):
            assert np.array_equal(getattr(datum, name), getattr(plain, name))


def test_where_the_play_departs_the_wanted_token_is_asked_for_and_nothing_behind_it(tokenizer, train_games):
    protocol = FORMATS["tool-call"](tokenizer, "none")
    game = train_games[0]
    view = World(game).view
    wanted = protocol.write(Demonstrator(game.task, view).act())
    wrong = protocol.write("look")
    made = label(
        game,
        protocol,
        PlaySettings(admissible_commands="none"),
        [Completion(tuple(wrong), (0.0,) * len(wrong), "stop")],
    )
    datum = made.datum()
    [(start, end)] = made.transcript.turns
    common = next(i for i, (a, b) in enumerate(zip(wanted, wrong, strict=False)) if a != b)
    assert np.flatnonzero(datum.mask_T).tolist() == list(range(start - 1, start + common))
    assert datum.targets_T[start - 1 : start + common].tolist() == list(wanted[: common + 1])
    assert datum.tokens_T[start:].tolist() == list(wrong[: len(datum.tokens_T) - start])
    assert end == start + len(wrong)


def test_a_play_is_left_out_from_where_it_has_been_refused_often_enough(tokenizer, train_games):
    protocol = FORMATS["tool-call"](tokenizer, "full")
    first = Demonstrator(train_games[0].task, World(train_games[0]).view).act()
    messages = [
        Completion(tuple(tokens), (0.0,) * len(tokens), "stop")
        for tokens in map(protocol.write, ["fly", first, "fly", "fly", "fly", first])
    ]
    whole, cut = (
        label(train_games[0], protocol, PlaySettings(), messages, patience=patience) for patience in (None, 3)
    )
    assert (len(whole.wanted), len(cut.wanted)) == (6, 5)
    assert cut.wanted == whole.wanted[:5]


def test_what_the_world_says_counts_with_its_own_weight_and_mistakes_never(tokenizer, train_games):
    protocol = FORMATS["tool-call"](tokenizer, "full")
    settings = PlaySettings(perturbation=0.5)
    for number, game in enumerate(train_games[:4]):
        made = demonstrate(game, protocol, settings, random.Random(number))
        plain, watched = made.datum(), made.datum(observation_weight=0.25)
        read_T = ~made.transcript.datum(0.0).mask_T
        assert np.array_equal(watched.mask_T, plain.mask_T | read_T)
        assert set(plain.advantages_T[plain.mask_T]) == {1.0}
        assert set(watched.advantages_T[read_T]) == {0.25}
        assert np.array_equal(watched.advantages_T[~read_T], plain.advantages_T[~read_T])
        assert np.array_equal(watched.targets_T, plain.targets_T)


def test_labels_lead_out_of_any_mess(tokenizer, train_games):
    """Half of the commands get in the way; following the labels from there on still wins."""
    protocol = FORMATS["tool-call"](tokenizer, "none")
    mess = PlaySettings(admissible_commands="none", perturbation=1.0, max_episode_steps=8)
    for number, game in enumerate(train_games[:8]):
        made = demonstrate(game, protocol, mess, random.Random(number))
        messages = completions_of(made.transcript)
        for _ in range(60):
            labelled = label(game, protocol, replace(mess, max_episode_steps=100), messages)
            if labelled.won:
                break
            # The label of the next turn shows only once that turn is played, by any message.
            probe = Completion(protocol.write(None), (0.0,), "stop")
            wanted = label(game, protocol, replace(mess, max_episode_steps=100), [*messages, probe]).wanted[-1]
            messages.append(Completion(tuple(wanted), (0.0,) * len(wanted), "stop"))
        assert labelled.won


def test_results_files_are_imitated_without_their_refused_commands(tmp_path, tokenizer, games, train_games):
    protocol = FORMATS["tool-call"](tokenizer, "full")
    ref = discover(games, "train").games[0]
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
    made = imitate(train_games[0], protocol, PlaySettings(), actions)
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

"""One trajectory of several turns followed through everything, token for token."""

import numpy as np

from agent_models import ScriptedSampler, call, qwen_like
from alfworld_rl.agents import FORMATS
from alfworld_rl.algorithms import ESTIMATORS, REWARDS, estimate, make_data, score_groups
from alfworld_rl.envs import AlfworldFamily
from alfworld_rl.games import GameRef
from alfworld_rl.rollouts import Limits, rollout
from alfworld_rl.world import Game


async def test_what_was_sampled_is_what_is_trained_on(real_games):
    path = sorted((real_games / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"))[3]
    walkthrough = Game.load(path).walkthrough
    tokenizer = qwen_like()

    def message(prompt, number):
        turn = prompt.count("<tool_response>\n")
        # One branch wins; the other, told apart by its second thoughts, dawdles and once says nonsense.
        if "second thoughts" in prompt or (turn == 0 and number == 1):
            return "On second thoughts, " + (call("look") if turn != 2 else "no.")
        return f"Turn {turn}. {call(walkthrough[turn])}"

    sampler = ScriptedSampler(tokenizer, message)
    limits = Limits(max_episode_steps=6, max_trajectory_tokens=100_000, max_assistant_tokens=400)
    game = GameRef(path, "valid_seen/one", "valid_seen", "any")
    agent = FORMATS["tool-call"](tokenizer)
    (group,) = await rollout([game], sampler, agent, AlfworldFamily(real_games), group_size=2, limits=limits)
    assert [trajectory.won for trajectory in group.trajectories] == [True, False]
    assert len(walkthrough) <= 6
    rewards = score_groups([group], REWARDS["document"])
    data = make_data([group], estimate([group], rewards, ESTIMATORS["mean"])).data
    advantages = [0.55, -0.55]  # rewards 1 and -0.1

    sampled = {}  # logprob -> token; the scripted sampler never hands out one logprob twice
    for request in sampler.requests:
        for completion in request.completions:
            sampled |= dict(zip(np.float32(completion.logprobs).tolist(), completion.tokens, strict=True))
    trained = {}
    for datum, trajectory, advantage in zip(data, group.trajectories, advantages, strict=True):
        own = [
            (request.prompt, completion)
            for request in sampler.requests
            for completion in request.completions
            if [*request.prompt, *completion.tokens]
            == list(trajectory.transcript.prompt)[: len(request.prompt) + len(completion.tokens)]
        ]
        assert len(own) == len(trajectory.steps) > 2
        sequence = [datum.tokens_T[0], *datum.targets_T]
        written = np.zeros(len(sequence), bool)
        for prompt, completion in own:
            start, end = len(prompt), len(prompt) + len(completion.tokens)
            assert sequence[:end] == [*prompt, *completion.tokens]
            assert datum.logprobs_T[start - 1 : end - 1].tolist() == np.float32(completion.logprobs).tolist()
            written[start:end] = True
        assert datum.mask_T.tolist() == written[1:].tolist()
        np.testing.assert_allclose(datum.advantages_T, np.where(written[1:], advantage, 0), rtol=1e-6)
        assert not datum.logprobs_T[~datum.mask_T].any()
        assert datum.tokens_T[1:].tolist() == datum.targets_T[:-1].tolist()
        trained |= dict(
            zip(datum.logprobs_T[datum.mask_T].tolist(), datum.targets_T[datum.mask_T].tolist(), strict=True)
        )
    # Every sampled token is trained on once, with its own logprob, and no other is.
    assert trained == sampled
    assert sum(int(datum.mask_T.sum()) for datum in data) == len(sampled)

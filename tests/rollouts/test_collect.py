"""Rollouts against a scripted sampler: how trajectories end, what they leave, and that none waits for another."""

import asyncio
import re
import traceback
from pathlib import Path

import pytest

from agent_models import TEMPLATES, ScriptedSampler, call, qwen_like
from alfworld_rl.agents import FORMATS
from alfworld_rl.algorithms.rewards import REWARDS, score
from alfworld_rl.backends.base import BalanceError, SamplingError
from alfworld_rl.envs import AlfworldFamily, alfworld
from alfworld_rl.games import GameRef
from alfworld_rl.rollouts import Limits, Sampling, rollout
from alfworld_rl.rollouts.seeds import request_seed
from alfworld_rl.types import Completion, SamplingParams, Usage
from alfworld_rl.world import Game, World

TOKENIZER = qwen_like()
AGENT = FORMATS["tool-call"](TOKENIZER)


@pytest.fixture(scope="session")
def games(real_games):
    root = real_games / "json_2.1.1"
    paths = sorted((root / "valid_seen").glob("*/*/game.tw-pddl"))[::20]
    assert len(paths) >= 5
    return [
        GameRef(path, path.parent.relative_to(root).as_posix(), "valid_seen", path.parent.parent.name.partition("-")[0])
        for path in paths
    ]


def turns_so_far(prompt):
    return prompt.count("<tool_response>\n") - prompt.count("like <tool_response>")


def walkthrough(*refs):
    """A player that wins each game as its file says, knowing it by its opening."""
    known = {}
    for ref in refs:
        world = World(Game.load(ref.path))
        known[world.reset().observation] = world.game.walkthrough

    def message(prompt, number):
        commands = next(commands for opening, commands in known.items() if opening in prompt)
        return call(commands[turns_so_far(prompt)])

    return message


def always(text):
    return lambda prompt, number: text


def limits(**changed):
    return Limits(**{"max_trajectory_tokens": 200_000, "max_assistant_tokens": 500, **changed})


LIMITS = limits()


async def play(refs, message, limits=LIMITS, group_size=2, agent=AGENT, environments=None, **options):
    sampler = ScriptedSampler(TOKENIZER, message)
    family = environments or AlfworldFamily(Path("unused"))
    groups = await rollout(
        refs, sampler, agent, family, group_size=group_size, limits=limits, seed_path=(1, 0), **options
    )
    return groups, sampler


def reward(trajectory):
    return score(trajectory, REWARDS["document"]).total


@pytest.mark.parametrize("commands", ["full", "changes", "none"])
async def test_a_won_game(games, commands):
    agent = FORMATS["tool-call"](TOKENIZER, commands)
    (group,), sampler = await play(games[:1], walkthrough(games[0]), group_size=3, agent=agent)
    steps = len(Game.load(games[0].path).walkthrough)
    assert len(group.trajectories) == 3
    for trajectory in group.trajectories:
        assert (trajectory.stop_reason, trajectory.won, trajectory.truncated) == ("won", True, False)
        assert len(trajectory.steps) == steps == trajectory.valid_tool_call_count
        assert trajectory.admissible_action_count == steps
        assert all(step.accepted and step.valid_call and not step.cut_off for step in trajectory.steps)
        assert [step.action for step in trajectory.steps] == list(Game.load(games[0].path).walkthrough)
        assert len({step.state_key for step in trajectory.steps}) == steps
        assert [step.span for step in trajectory.steps] == list(trajectory.transcript.turns)
        assert reward(trajectory) == 1.0
        assert [message["role"] for message in trajectory.messages] == ["system", "user"] + [
            "assistant",
            "tool",
        ] * steps
        assert ("Admissible commands:" in trajectory.messages[1]["content"]) == (commands != "none")
        assert trajectory.task in trajectory.messages[1]["content"]
    # One request for all first messages, then one a turn and trajectory.
    assert [request.n for request in sampler.requests] == [3] + [1] * 3 * (steps - 1)
    assert group.usage == sum(
        (Usage(len(r.prompt), sampled=sum(len(c.tokens) for c in r.completions)) for r in sampler.requests), Usage()
    )


async def test_every_prompt_is_the_one_before_with_completion_and_answer(games):
    (group,), sampler = await play(games[:1], walkthrough(games[0]), group_size=1)
    transcript = list(group.trajectories[0].transcript.prompt)
    for before, after in zip(sampler.requests, sampler.requests[1:], strict=False):
        extended = [*before.prompt, *before.completions[0].tokens]
        assert after.prompt[: len(extended)] == extended
        assert after.prompt == transcript[: len(after.prompt)]


@pytest.mark.parametrize(
    ("text", "valid"), [("I give up.", False), (call("dance"), True), (call("look") + " And I see a mug.", False)]
)
async def test_an_invalid_action_uses_up_a_step_and_touches_nothing(games, text, valid):
    few = limits(max_episode_steps=4)
    (group,), _ = await play(games[:1], always(text), few)
    for trajectory in group.trajectories:
        assert (trajectory.stop_reason, trajectory.won, trajectory.truncated) == ("max_steps", False, True)
        assert (len(trajectory.steps), trajectory.invalid_action_count) == (4, 4)
        assert trajectory.valid_tool_call_count == (4 if valid else 0)
        assert trajectory.admissible_action_count == 0
        assert [step.action is None for step in trajectory.steps] == [not valid] * 4
        assert reward(trajectory) == pytest.approx(-0.4)
        assert len({step.state_key for step in trajectory.steps}) == 1
        answers = [message["content"] for message in trajectory.messages if message["role"] == "tool"]
        commands = trajectory.messages[1]["content"].partition("Admissible commands:")[2]
        assert set(answers) == {f"Nothing happens.\n\nAdmissible commands:{commands}"}


async def test_case_and_spaces_are_forgiven(games):
    def message(prompt, number):
        action = re.search(r">\n(.*)\n</parameter>", walkthrough(games[0])(prompt, number))[1]
        return call(f"  {action.upper().replace(' ', '   ')} ")

    (group,), _ = await play(games[:1], message, group_size=1)
    assert group.trajectories[0].won
    assert group.trajectories[0].invalid_action_count == 0


async def test_running_out_of_steps_is_never_success(games):
    steps = len(Game.load(games[0].path).walkthrough)
    short = limits(max_episode_steps=steps - 1)
    exact = limits(max_episode_steps=steps)
    (lost,), _ = await play(games[:1], walkthrough(games[0]), short, group_size=1)
    (won,), _ = await play(games[:1], walkthrough(games[0]), exact, group_size=1)
    assert (lost.trajectories[0].won, lost.trajectories[0].stop_reason) == (False, "max_steps")
    assert (won.trajectories[0].won, won.trajectories[0].stop_reason) == (True, "won")


async def test_a_message_that_is_cut_off_is_no_action_and_ends_the_trajectory(games):
    # The call itself would be whole: only its end of turn does not fit.
    message = call("look")
    limit = len(TOKENIZER.encode(message, add_special_tokens=False))
    (group,), sampler = await play(games[:1], always(message), limits(max_assistant_tokens=limit), group_size=1)
    (trajectory,) = group.trajectories
    assert (trajectory.stop_reason, trajectory.truncated) == ("token_limit", True)
    (step,) = trajectory.steps
    assert (step.cut_off, step.action, step.accepted, step.observation) == (True, None, False, "")
    assert (trajectory.invalid_action_count, trajectory.valid_tool_call_count) == (1, 0)
    assert trajectory.transcript.written_count == limit
    assert len(sampler.requests) == 1


@pytest.mark.parametrize("limit", range(2_500, 8_000, 777))
async def test_prompt_and_completion_never_exceed_the_limit(games, limit):
    short = limits(max_trajectory_tokens=limit, max_assistant_tokens=200)
    (group,), sampler = await play(games[:1], always(call("look")), short)
    for request in sampler.requests:
        assert 1 <= request.max_tokens <= 200
        assert len(request.prompt) + request.max_tokens <= limit
    for trajectory in group.trajectories:
        assert trajectory.stop_reason == "token_limit"
        assert len(trajectory.transcript) <= limit


async def test_an_opening_that_does_not_fit_is_truncated_before_anything_is_sampled(games):
    (group,), sampler = await play(games[:1], always("x"), limits(max_trajectory_tokens=300, max_assistant_tokens=9))
    assert [trajectory.stop_reason for trajectory in group.trajectories] == ["token_limit"] * 2
    assert not sampler.requests
    assert reward(group.trajectories[0]) == 0


async def test_a_failed_request_fails_its_trajectory_alone(games):
    winner = walkthrough(*games[:2])
    third = []

    def message(prompt, number):
        if turns_so_far(prompt) == 1 and not third:
            third.append(prompt)
            return SamplingError("the service is out of breath")
        return winner(prompt, number)

    groups, _ = await play(games[:2], message, group_size=3)
    everyone = [trajectory for group in groups for trajectory in group.trajectories]
    failed = [trajectory for trajectory in everyone if trajectory.failed]
    assert [(one.stop_reason, one.error, one.won) for one in failed] == [
        ("failed", "the service is out of breath", False)
    ]
    assert sum(trajectory.won for trajectory in everyone) == 5


async def test_a_failed_first_request_fails_its_group_alone(games):
    opening = World(Game.load(games[0].path)).reset().observation
    winner = walkthrough(games[1])
    groups, _ = await play(games[:2], lambda p, n: SamplingError("no") if opening in p else winner(p, n), group_size=2)
    assert [one.stop_reason for group in groups for one in group.trajectories] == ["failed", "failed", "won", "won"]


@pytest.mark.parametrize(
    "broken", [Completion((1, 2), (-1.0,), "stop"), "too few completions"], ids=["a logprob is missing", "too few"]
)
async def test_a_torn_answer_is_a_failed_request(games, broken):
    class Torn(ScriptedSampler):
        async def sample(self, prompt, params, *, n=1):
            return await super().sample(prompt, params, n=n - 1)

    kind = Torn if isinstance(broken, str) else ScriptedSampler
    sampler = kind(TOKENIZER, always(broken if isinstance(broken, Completion) else call("look")))
    (group,) = await rollout(games[:1], sampler, AGENT, AlfworldFamily(Path("unused")), group_size=2, limits=LIMITS)
    assert [trajectory.stop_reason for trajectory in group.trajectories] == ["failed"] * 2


async def test_a_world_that_raises_fails_its_trajectory_with_the_game_named(games, monkeypatch):
    class Broken(World):
        def step(self, command):
            if self.game.path == games[1].path:
                raise RuntimeError("the floor is gone")
            return super().step(command)

    monkeypatch.setattr(alfworld, "World", Broken)
    groups, _ = await play(games[:2], walkthrough(*games[:2]), group_size=1)
    won, failed = (group.trajectories[0] for group in groups)
    assert won.won
    assert failed.stop_reason == "failed"
    assert games[1].game_id in failed.error
    assert "the floor is gone" in failed.error


async def test_a_game_that_cannot_be_read_fails_with_its_name(games, tmp_path):
    gone = GameRef(tmp_path / "game.tw-pddl", "valid_seen/gone/trial", "valid_seen", "pick_and_place_simple")
    groups, _ = await play([gone, games[0]], walkthrough(games[0]), group_size=2)
    assert [one.stop_reason for group in groups for one in group.trajectories] == ["failed", "failed", "won", "won"]
    assert "valid_seen/gone/trial" in groups[0].trajectories[0].error


async def test_other_errors_end_the_rollout_as_they_are(games):
    with pytest.raises(BalanceError, match="empty"):
        await play(games[:3], always(BalanceError("the account is empty")))


async def test_every_error_that_ended_a_rollout_is_its_cause(games):
    openings = {World(Game.load(game.path)).reset().observation: number for number, game in enumerate(games[:3])}

    def message(prompt, number):
        return BalanceError(f"refused {next(n for opening, n in openings.items() if opening in prompt)}")

    with pytest.raises(BalanceError, match="refused 0") as raised:
        await play(games[:3], message)
    assert isinstance(raised.value.__cause__, BaseExceptionGroup)
    everything = "".join(traceback.format_exception(raised.value))
    assert all(f"refused {number}" in everything for number in range(3))


async def test_how_to_sample_and_where_to_stop_reach_the_sampler(games):
    agent = FORMATS["tool-call"](qwen_like(TEMPLATES["no tools"], eos="<|endoftext|>"))
    few = limits(max_episode_steps=2)
    sampling = Sampling(temperature=0.7, top_p=0.9)
    _, sampler = await play(games[:1], always(call("look")), few, 1, agent, sampling=sampling)
    assert len(sampler.requests) == 2
    for request in sampler.requests:
        assert (request.params.temperature, request.params.top_p) == (0.7, 0.9)
        assert request.params.stop == agent.stop != ()


async def test_a_pool_may_outlive_many_rollouts(games):
    with AlfworldFamily(Path("unused")).pool() as pool:
        for _ in range(2):
            (group,), _ = await play(games[:1], walkthrough(games[0]), group_size=1, environments=pool)
            assert group.trajectories[0].won


async def test_seeds_differ_and_do_not_depend_on_timing_or_order(games):
    seeds = {}
    for order in (games[:3], games[2::-1]):
        _, sampler = await play(order, walkthrough(*games[:3]))
        seeds[order[0].game_id] = sorted(request.seed for request in sampler.requests)
    assert len({tuple(values) for values in seeds.values()}) == 1
    (values, *_) = seeds.values()
    assert len(set(values)) == len(values)
    # A game that is played twice in one batch is sampled anew.
    _, sampler = await play([games[0], games[0]], walkthrough(games[0]), group_size=1)
    assert len({request.seed for request in sampler.requests}) == len(sampler.requests)


def test_no_two_requests_of_a_long_run_share_a_seed():
    paths = [
        (42, update, f"game {game}", branch, turn)
        for update in range(20)
        for game in range(8)
        for branch in range(8)
        for turn in range(50)
    ]
    assert len({request_seed(*path) for path in paths}) == len(paths)
    assert request_seed(1, 23) != request_seed(12, 3)
    assert request_seed(1, "2") != request_seed(1, 2)
    assert all(0 <= request_seed(*path) < 2**53 for path in paths[:1000])


class Gates:
    """A sampler whose answers wait until the test lets them go."""

    def __init__(self, message):
        self.inner = ScriptedSampler(TOKENIZER, message)
        self.tokenizer = TOKENIZER
        self.waiting: list[tuple[list[int], asyncio.Event]] = []

    async def sample(self, prompt, params: SamplingParams, *, n=1):
        gate = asyncio.Event()
        self.waiting.append((list(prompt), gate))
        await gate.wait()
        return await self.inner.sample(prompt, params, n=n)

    async def settle(self):
        for _ in range(50):
            await asyncio.sleep(0)


async def test_no_trajectory_waits_for_another(games):
    sampler = Gates(walkthrough(*games[:2]))
    finished = []
    running = asyncio.create_task(
        rollout(
            games[:2],
            sampler,
            AGENT,
            AlfworldFamily(Path("unused")),
            group_size=2,
            limits=LIMITS,
            seed_path=(1,),
            on_finished=lambda group: finished.append(group.game),
        )
    )
    await sampler.settle()
    assert len(sampler.waiting) == 2  # one request a game
    opening = World(Game.load(games[0].path)).reset().observation
    # The first game is played to its end while the other's first request is still out, one trajectory after another.
    while not finished:
        own = [gate for prompt, gate in sampler.waiting if opening in TOKENIZER.decode(prompt) and not gate.is_set()]
        own[0].set()
        await sampler.settle()
    assert finished == [games[0]]
    while not running.done():
        for _, gate in sampler.waiting:
            gate.set()
        await sampler.settle()
    assert finished == games[:2]
    assert all(trajectory.won for group in running.result() for trajectory in group.trajectories)


async def test_a_place_that_is_free_is_taken_at_once(games):
    sampler = Gates(walkthrough(*games[:5]))
    running = asyncio.create_task(
        rollout(games[:5], sampler, AGENT, AlfworldFamily(Path("unused")), limits=LIMITS, in_flight=2)
    )
    openings = [World(Game.load(game.path)).reset().observation for game in games[:5]]

    def started():
        texts = [TOKENIZER.decode(prompt) for prompt, _ in sampler.waiting]
        return [any(opening in text for text in texts) for opening in openings]

    await sampler.settle()
    assert started() == [True, True, False, False, False]
    # Only the second game goes on; when it is over the third begins, whatever the first does.
    while started() == [True, True, False, False, False]:
        next(g for p, g in sampler.waiting if openings[1] in TOKENIZER.decode(p) and not g.is_set()).set()
        await sampler.settle()
    assert started() == [True, True, True, False, False]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize(("workers", "copies"), [(True, 2), (False, 1)])
async def test_the_official_stack_plays_the_same(games, workers, copies):
    pytest.importorskip("alfworld", reason="the official stack is not installed (extra alfworld)")
    short = limits(max_episode_steps=2)
    official_stack = AlfworldFamily(Path("unused"), official=True, workers=workers)
    (official,), _ = await play(games[:1], walkthrough(games[0]), short, group_size=copies, environments=official_stack)
    (ours,), _ = await play(games[:1], walkthrough(games[0]), short, group_size=copies)
    for theirs, mine in zip(official.trajectories, ours.trajectories, strict=True):
        assert theirs.error is None
        assert theirs.messages == mine.messages
        assert list(theirs.transcript.prompt) == list(mine.transcript.prompt)

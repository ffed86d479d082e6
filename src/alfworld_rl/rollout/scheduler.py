"""Free-running rollouts: no trajectory ever waits for another one.

Each trajectory is a coroutine of its own: sample, step, sample again. The first messages of a group come from one
request; after that only the service's limits and the trajectory's own requests set its pace.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

from alfworld_rl.agents import FORMATS, AgentFormat, match_action
from alfworld_rl.agents.texts import NOTHING_HAPPENS
from alfworld_rl.backends.protocol import Completion, Sampled, Sampler, SamplingError
from alfworld_rl.games import GameRef
from alfworld_rl.rollout.environments import Environment, Environments
from alfworld_rl.rollout.seeds import request_seed
from alfworld_rl.rollout.settings import RolloutSettings
from alfworld_rl.rollout.trajectory import INVALID_ACTION_PENALTY, Group, Trajectory
from alfworld_rl.world import View


async def collect(
    games: Sequence[GameRef],
    sampler: Sampler,
    settings: RolloutSettings,
    *,
    group_size: int,
    seed_path: tuple[int | str, ...],
    games_in_flight: int | None = None,
    on_finished: Callable[[Group], None] | None = None,
    environments: Environments | None = None,
) -> list[Group]:
    """Play `group_size` trajectories of each game; the groups come back in the order of `games`.

    `seed_path` is what the seeds of requests derive from besides game, branch and turn: (run seed, update). At most
    `games_in_flight` games are played at once (default: all of them); the next one starts when one ends, and
    `on_finished` is told of each as it ends. `environments` lets worker processes outlive one call.

    A sampling request that fails for good and a world that raises end their trajectory as `failed`; every other
    error ends the rollout and is raised as it is. Raises ChatTemplateError before anything is sampled.
    """
    protocol = FORMATS["tool-call"](sampler.tokenizer, settings.admissible_commands)
    if environments is None:
        with Environments(settings) as own:
            rollout = _Rollout(protocol, sampler, settings, own)
            return await _play_all(rollout, games, group_size, seed_path, games_in_flight, on_finished)
    rollout = _Rollout(protocol, sampler, settings, environments)
    return await _play_all(rollout, games, group_size, seed_path, games_in_flight, on_finished)


async def _play_all(
    rollout: "_Rollout",
    games: Sequence[GameRef],
    group_size: int,
    seed_path: tuple[int | str, ...],
    games_in_flight: int | None,
    on_finished: Callable[[Group], None] | None,
) -> list[Group]:
    slots = asyncio.Semaphore(games_in_flight or len(games) or 1)

    async def play(game: GameRef, path: tuple[int | str, ...]) -> Group:
        async with slots:
            group = await rollout.play_group(game, group_size, path)
        if on_finished is not None:
            on_finished(group)
        return group

    # A game that is played twice gets other seeds the second time, wherever in the order it stands.
    times: Counter[str] = Counter()
    tasks: list[asyncio.Task[Group]] = []
    try:
        async with asyncio.TaskGroup() as running:
            for game in games:
                times[game.game_id] += 1
                again = (times[game.game_id],) if times[game.game_id] > 1 else ()
                tasks.append(running.create_task(play(game, (*seed_path, game.game_id, *again))))
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _WorldError(Exception):
    """A world raised; the message says what."""


class _Rollout:
    def __init__(
        self, protocol: AgentFormat, sampler: Sampler, settings: RolloutSettings, environments: Environments
    ) -> None:
        self.protocol = protocol
        self.sampler = sampler
        self.settings = settings
        self.environments = environments

    async def play_group(self, game: GameRef, group_size: int, path: tuple[int | str, ...]) -> Group:
        trajectories = [Trajectory(game=game, branch=branch) for branch in range(group_size)]
        worlds: list[Environment] = []
        try:
            try:
                for _ in trajectories:
                    worlds.append(self.environments.make(game.path))
                views = await asyncio.gather(
                    *(_timed_reset(world, one) for world, one in zip(worlds, trajectories, strict=True))
                )
            except Exception as error:
                return self._all_failed(trajectories, f"{game.game_id}: {error}")
            opening = self.protocol.opening(views[0])
            for trajectory, view in zip(trajectories, views, strict=True):
                trajectory.task = view.task
                trajectory.messages = list(opening.messages)
                trajectory.transcript.show(opening.tokens)
            if len(opening.tokens) >= self.settings.max_trajectory_tokens:
                for trajectory in trajectories:
                    trajectory.stop_reason = "token_limit"
                return Group(game, trajectories)

            started = time.perf_counter()
            try:
                first = await self._sample(trajectories[0], group_size, request_seed(*path, "opening", 0))
            except SamplingError as error:
                return self._all_failed(trajectories, str(error))
            waited = time.perf_counter() - started
            async with asyncio.TaskGroup() as running:
                for trajectory, world, view, completion in zip(
                    trajectories, worlds, views, first.completions, strict=True
                ):
                    trajectory.sampling_seconds = waited
                    running.create_task(self._play(trajectory, world, view, completion, (*path, trajectory.branch)))
            return Group(game, trajectories, first.usage)
        finally:
            for world in worlds:
                await world.close()

    @staticmethod
    def _all_failed(trajectories: Sequence[Trajectory], error: str) -> Group:
        for trajectory in trajectories:
            trajectory.stop_reason, trajectory.error = "failed", error
        return Group(trajectories[0].game, trajectories)

    async def _play(
        self,
        trajectory: Trajectory,
        world: Environment,
        view: View,
        completion: Completion,
        path: tuple[int | str, ...],
    ) -> None:
        """Play to the end, from the first message on."""
        try:
            while True:
                following = await self._turn(trajectory, world, view, completion)
                if following is None:
                    return
                view = following
                started = time.perf_counter()
                sampled = await self._sample(trajectory, 1, request_seed(*path, trajectory.steps))
                trajectory.sampling_seconds += time.perf_counter() - started
                trajectory.usage += sampled.usage
                completion = sampled.completions[0]
        except (SamplingError, _WorldError) as error:
            trajectory.stop_reason, trajectory.error = "failed", str(error)

    async def _turn(
        self, trajectory: Trajectory, world: Environment, view: View, completion: Completion
    ) -> View | None:
        """Take in what the model wrote and let the world answer; None when the trajectory has ended."""
        trajectory.transcript.write(completion)
        trajectory.anchors.append(world.anchor)
        trajectory.steps += 1
        turn = self.protocol.parse(completion)
        trajectory.messages.append({"role": "assistant", "content": turn.text})
        if turn.cut_off:
            trajectory.invalid_action_count += 1
            trajectory.step_rewards.append(-INVALID_ACTION_PENALTY)
            trajectory.stop_reason = "token_limit"
            return None
        command = None
        if turn.action is not None:
            trajectory.valid_tool_call_count += 1
            command = match_action(turn.action, view.admissible_commands)
        if command is None:
            trajectory.invalid_action_count += 1
            trajectory.step_rewards.append(-INVALID_ACTION_PENALTY)
            following = View(NOTHING_HAPPENS, view.task, view.admissible_commands, view.score, view.done, view.won)
        else:
            trajectory.admissible_action_count += 1
            started = time.perf_counter()
            try:
                following = await world.step(command)
            except Exception as error:
                raise _WorldError(
                    f"{trajectory.game.game_id}: {command!r} raised {error or type(error).__name__}"
                ) from error
            trajectory.environment_seconds += time.perf_counter() - started
            trajectory.step_rewards.append(float(following.done and following.won))

        answer = self.protocol.answer(view, following, completion)
        trajectory.messages += answer.messages
        if following.done:
            trajectory.won = following.won
            trajectory.stop_reason = "won" if following.won else "environment_done"
            return None
        if trajectory.steps >= self.settings.max_episode_steps:
            trajectory.stop_reason = "max_steps"
            return None
        if len(trajectory.transcript) + len(answer.tokens) >= self.settings.max_trajectory_tokens:
            trajectory.stop_reason = "token_limit"
            return None
        trajectory.transcript.show(answer.tokens)
        return following

    async def _sample(self, trajectory: Trajectory, n: int, seed: int) -> Sampled:
        prompt = trajectory.transcript.prompt
        sampled = await self.sampler.sample(
            prompt,
            n=n,
            max_tokens=min(self.settings.max_assistant_tokens, self.settings.max_trajectory_tokens - len(prompt)),
            temperature=self.settings.temperature,
            top_p=self.settings.top_p,
            seed=seed,
            stop=self.protocol.stop,
        )
        # What is trained on must be whole: a torn answer is a failed request, not a shorter one.
        if len(sampled.completions) != n:
            raise SamplingError(f"the service answered a request for {n} completions with {len(sampled.completions)}")
        if any(len(completion.tokens) != len(completion.logprobs) for completion in sampled.completions):
            raise SamplingError("the service answered with another number of logprobs than of tokens")
        return sampled


async def _timed_reset(world: Environment, trajectory: Trajectory) -> View:
    started = time.perf_counter()
    view = await world.reset()
    trajectory.environment_seconds += time.perf_counter() - started
    return view

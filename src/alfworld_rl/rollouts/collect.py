"""Free-running rollouts: no trajectory ever waits for another one.

Each trajectory is a coroutine of its own: sample, step, sample again. The first messages of a group come from one
request; after that only the service's limits and the trajectory's own requests set its pace.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from alfworld_rl.agents import AgentFormat
from alfworld_rl.backends.base import ChatModel, Sampler, SamplingError
from alfworld_rl.envs.base import Environment, EnvironmentFamily, Pool
from alfworld_rl.rollouts.seeds import request_seed
from alfworld_rl.rollouts.trajectory import Group, Trajectory
from alfworld_rl.rollouts.turn import Episode, Limits
from alfworld_rl.rollouts.write import writer_of
from alfworld_rl.types import Completion, Observation, Sampled, SamplingParams, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a policy is sampled: temperature 0 takes the likeliest token; top_p is the nucleus (arXiv 1904.09751)."""

    temperature: float = 1.0
    top_p: float = 1.0


DEFAULT_LIMITS = Limits()
ON_POLICY = Sampling()
NEAR_GREEDY = Sampling(temperature=0.01)
"""What evaluations are played with: exactly greedy play of ties would depend on the machine."""


async def rollout(
    tasks: Sequence[Task],
    sampler: Sampler | ChatModel,
    agent: AgentFormat,
    environments: EnvironmentFamily | Pool,
    *,
    group_size: int = 1,
    limits: Limits = DEFAULT_LIMITS,
    sampling: Sampling = ON_POLICY,
    seed_path: tuple[int | str, ...] = (0,),
    in_flight: int | None = None,
    on_finished: Callable[[Group], None] | None = None,
) -> list[Group]:
    """Play `group_size` trajectories of each task; the groups come back in the order of `tasks`.

    `seed_path` is what the seeds of requests derive from besides task, branch and turn: (run seed, update). At most
    `in_flight` tasks are played at once (default: all of them); the next one starts when one ends, and `on_finished`
    is told of each as it ends. A model that is spoken to in messages needs a `ChatFormat`. A pool instead of a family
    lets worker processes outlive the call.

    A sampling request that fails for good and an environment that raises end their trajectory as `failed`; every other
    error ends the rollout and is raised as it is, with all that were raised as its cause.
    """
    with nullcontext(environments) if not isinstance(environments, EnvironmentFamily) else environments.pool() as pool:
        play = _Rollout(agent, sampler, limits, sampling, pool)
        return await _play_all(play, tasks, group_size, seed_path, in_flight, on_finished)


async def _play_all(
    rollout: "_Rollout",
    tasks: Sequence[Task],
    group_size: int,
    seed_path: tuple[int | str, ...],
    in_flight: int | None,
    on_finished: Callable[[Group], None] | None,
) -> list[Group]:
    slots = asyncio.Semaphore(in_flight or len(tasks) or 1)

    async def play(task: Task, path: tuple[int | str, ...]) -> Group:
        async with slots:
            group = await rollout.play_group(task, group_size, path)
        if on_finished is not None:
            on_finished(group)
        return group

    # A task that is played twice gets other seeds the second time, wherever in the order it stands.
    times: Counter[str] = Counter()
    playing: list[asyncio.Task[Group]] = []
    try:
        async with asyncio.TaskGroup() as running:
            for task in tasks:
                times[task.game_id] += 1
                again = (times[task.game_id],) if times[task.game_id] > 1 else ()
                playing.append(running.create_task(play(task, (*seed_path, task.game_id, *again))))
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [task.result() for task in playing]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _EnvironmentError(Exception):
    """An environment raised; the message says what."""


class _Rollout:
    def __init__(
        self, agent: AgentFormat, sampler: Sampler | ChatModel, limits: Limits, sampling: Sampling, pool: Pool
    ) -> None:
        self.agent = agent
        self.write = writer_of(sampler, agent)
        self.limits = limits
        self.sampling = sampling
        self.pool = pool

    async def play_group(self, task: Task, group_size: int, path: tuple[int | str, ...]) -> Group:
        trajectories = [Trajectory(game=task, branch=branch) for branch in range(group_size)]
        environments: list[Environment] = []
        try:
            try:
                for _ in trajectories:
                    environments.append(self.pool.make(task))
                firsts = await asyncio.gather(
                    *(_timed_reset(world, one) for world, one in zip(environments, trajectories, strict=True))
                )
            except Exception as error:
                return _all_failed(trajectories, f"{task.game_id}: {error}")
            episodes = [
                Episode(one, self.agent, self.limits, first) for one, first in zip(trajectories, firsts, strict=True)
            ]
            if episodes[0].over:
                return Group(task, trajectories)

            started = time.perf_counter()
            try:
                first = await self._sample(episodes[0], group_size, request_seed(*path, "opening", 0))
            except SamplingError as error:
                return _all_failed(trajectories, str(error))
            waited = time.perf_counter() - started
            async with asyncio.TaskGroup() as running:
                for episode, environment, completion in zip(episodes, environments, first.completions, strict=True):
                    episode.trajectory.sampling_seconds = waited
                    running.create_task(
                        self._play(episode, environment, completion, (*path, episode.trajectory.branch))
                    )
            return Group(task, trajectories, first.usage)
        finally:
            for environment in environments:
                await environment.close()

    async def _play(
        self, episode: Episode, environment: Environment, completion: Completion, path: tuple[int | str, ...]
    ) -> None:
        """Play to the end, from the first message on."""
        trajectory = episode.trajectory
        try:
            while True:
                await self._turn(episode, environment, completion)
                if episode.over:
                    return
                started = time.perf_counter()
                sampled = await self._sample(episode, 1, request_seed(*path, len(trajectory.steps)))
                trajectory.sampling_seconds += time.perf_counter() - started
                trajectory.usage += sampled.usage
                completion = sampled.completions[0]
        except (SamplingError, _EnvironmentError) as error:
            trajectory.stop_reason, trajectory.error = "failed", str(error)

    async def _turn(self, episode: Episode, environment: Environment, completion: Completion) -> None:
        """Take in what the model wrote and let the environment answer."""
        state_key = environment.state_key()
        action = episode.act(completion)
        after: Observation | None = None
        if action is not None:
            started = time.perf_counter()
            try:
                after = await environment.step(action)
            except Exception as error:
                task = episode.trajectory.game.game_id
                raise _EnvironmentError(f"{task}: {action!r} raised {error or type(error).__name__}") from error
            episode.trajectory.environment_seconds += time.perf_counter() - started
        episode.observe(action, after, state_key)

    async def _sample(self, episode: Episode, n: int, seed: int) -> Sampled:
        params = SamplingParams(
            max_tokens=episode.max_tokens,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            seed=seed,
            stop=self.agent.stop,
        )
        return await self.write(episode.trajectory, params, n)


def _all_failed(trajectories: Sequence[Trajectory], error: str) -> Group:
    for trajectory in trajectories:
        trajectory.stop_reason, trajectory.error = "failed", error
    return Group(trajectories[0].game, trajectories)


async def _timed_reset(environment: Environment, trajectory: Trajectory) -> Observation:
    started = time.perf_counter()
    first = await environment.reset()
    trajectory.environment_seconds += time.perf_counter() - started
    return first

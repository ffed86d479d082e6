"""Who writes the next message: a sampler that continues the tokens, or a model that is spoken to in messages."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from alfworld_rl.agents import AgentFormat
from alfworld_rl.agents.chat import ChatFormat
from alfworld_rl.backends.base import ChatModel, Sampler, SamplingError
from alfworld_rl.errors import UsageError
from alfworld_rl.rollouts.trajectory import Trajectory
from alfworld_rl.types import Sampled, SamplingParams, Usage

Writer = Callable[[Trajectory, SamplingParams, int], Awaitable[Sampled]]
"""Writes n messages that each could come next. Raises SamplingError where they cannot be had."""


def writer_of(model: Sampler | ChatModel, agent: AgentFormat) -> Writer:
    """Raises UsageError where the agent format is none for such a model."""
    if isinstance(model, ChatModel) and isinstance(agent, ChatFormat):
        return _ChatWriter(model, agent)
    if isinstance(model, ChatModel) or isinstance(agent, ChatFormat):
        raise UsageError(
            f"the format {agent.name} does not go with this model: one that is spoken to in messages needs a "
            "ChatFormat, any other one a format of tokens"
        )
    return _TokenWriter(model)


class _TokenWriter:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def __call__(self, trajectory: Trajectory, params: SamplingParams, n: int) -> Sampled:
        sampled = await self._sampler.sample(trajectory.transcript.prompt, params, n=n)
        # What is trained on must be whole: a torn answer is a failed request, not a shorter one.
        if len(sampled.completions) != n:
            raise SamplingError(f"the service answered a request for {n} completions with {len(sampled.completions)}")
        if any(len(completion.tokens) != len(completion.logprobs) for completion in sampled.completions):
            raise SamplingError("the service answered with another number of logprobs than of tokens")
        return sampled


class _ChatWriter:
    """A request a message: not every service takes `n`, and none counts tokens for each of several."""

    def __init__(self, model: ChatModel, agent: ChatFormat) -> None:
        self._model = model
        self._agent = agent

    async def __call__(self, trajectory: Trajectory, params: SamplingParams, n: int) -> Sampled:
        messages = self._agent.sent(trajectory.messages)
        asked = [
            self._model.chat(messages, self._agent.tools, replace(params, seed=params.seed + number))
            for number in range(n)
        ]
        replies = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            replies.append(answer)
        return Sampled(tuple(replies), sum((reply.usage for reply in replies), Usage()))

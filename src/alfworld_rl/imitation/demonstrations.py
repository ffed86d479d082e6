"""Transcripts to imitate: what the expert would do, in every state that a play passes through.

The play and the labels are separate things. Whoever plays (the expert, one that wanders, one that makes
mistakes, or the learner itself), the expert watches and says at every turn what it would do there. The
transcript holds what was really done, as in a rollout; the loss asks for what should have been done. So the learner
sees its own mistakes and learns the way out of them (DAgger, arXiv 1011.0686).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from alfworld_rl.agents import AgentFormat
from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.agents.texts import NOTHING_HAPPENS
from alfworld_rl.rollouts import Episode, Limits, Trajectory
from alfworld_rl.types import Completion, Datum, Observation, Task
from alfworld_rl.world import Game, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """How far a player departs from the expert; the labels do not.

    - perturbation: probability that a command is replaced by one that gets in the way: a random admissible one, the
      one before again, or one that is refused.
    - exploration: how far the order in which the player searches departs from the expert's (see `Demonstrator`).
    """

    perturbation: float = 0.0
    exploration: float = 0.0


@dataclass(slots=True)
class Demonstration:
    """A transcript and, for each of its turns, the tokens of the message that should have been written there."""

    transcript: Transcript = field(default_factory=Transcript)
    wanted: list[list[int]] = field(default_factory=list)
    won: bool = False

    def datum(self, observation_weight: float = 0.0) -> Datum:
        """For cross-entropy: in each turn the wanted tokens are the targets, up to the first that was not written.

        Behind that token the context is no longer one that the wanted message would have made, so nothing there is
        trained on; a turn that was played as wanted is trained on whole. These tokens weigh 1. What the model only
        read weighs `observation_weight`: predicting the world's answers, too, teaches to keep track of it.
        """
        whole = self.transcript.datum(0.0)
        targets_T = whole.targets_T.copy()
        mask_T = ~whole.mask_T if observation_weight else np.zeros_like(whole.mask_T)
        weights_T = np.where(whole.mask_T, np.float32(1), np.float32(observation_weight))
        for (start, end), wanted in zip(self.transcript.turns, self.wanted, strict=True):
            for position, token in zip(range(start - 1, end - 1), wanted, strict=False):
                written = int(targets_T[position])
                targets_T[position], mask_T[position] = token, True
                if written != token:
                    break
        return Datum(whole.tokens_T, targets_T, mask_T, whole.logprobs_T, weights_T * mask_T)


def demonstrate(
    game: Game, task: Task, agent: AgentFormat, limits: Limits, mistakes: Mistakes, rng: random.Random
) -> Demonstration:
    """The expert plays `game`, wandering and making mistakes as asked; the labels make none.

    Raises TaskError where the task sentence is none that the expert knows.
    """
    play = _Play(game, task, agent, limits)
    first = play.observation
    wanderer = Demonstrator(game.task, first, exploration=mistakes.exploration, rng=rng) if mistakes.exploration else None
    before = ""
    while not play.over:
        command = wanderer.act() if wanderer else play.wanted
        if rng.random() < mistakes.perturbation:
            command = _perturbed(play.observation, before, rng)
        play.send(command)
        if wanderer:
            wanderer.observe(command, play.observation)
        before = command
    return play.demonstration


def label(
    game: Game,
    task: Task,
    agent: AgentFormat,
    limits: Limits,
    completions: Sequence[Completion],
    *,
    patience: int | None = None,
) -> Demonstration:
    """What the expert would have done at each turn of a trajectory whose messages were `completions`.

    After `patience` refused messages in a row the rest is left out.
    """
    play = _Play(game, task, agent, limits)
    refused = 0
    for completion in completions:
        if play.over or refused == patience:
            break
        play.write(completion)
        refused = refused + 1 if play.observation.text == NOTHING_HAPPENS else 0
    return play.demonstration


def completions_of(transcript: Transcript) -> list[Completion]:
    """The messages of a trajectory that was played by a sampler, token for token."""
    tokens = list(transcript.prompt)
    return [Completion(tuple(tokens[start:end]), (0.0,) * (end - start), "stop") for start, end in transcript.turns]


def imitate(
    game: Game, task: Task, agent: AgentFormat, limits: Limits, actions: Sequence[str | None]
) -> Demonstration:
    """A recorded play as its own label: `actions` are what its messages asked for, None where they asked nothing.

    Turns that changed nothing but a step count (a refused command, no call at all) are played but not imitated.
    """
    play = _Play(game, task, agent, limits, labels=False)
    for action in actions:
        if play.over:
            break
        play.send(action)
    return play.demonstration


class _Play:
    """One game by the rules of a rollout, watched by the expert."""

    def __init__(self, game: Game, task: Task, agent: AgentFormat, limits: Limits, *, labels: bool = True) -> None:
        self._world = World(game)
        self._agent = agent
        trajectory = Trajectory(game=task)
        self._episode = Episode(trajectory, agent, limits, self._world.view)
        self._expert = Demonstrator(game.task, self._world.view) if labels else None
        self.demonstration = Demonstration(trajectory.transcript)
        self.wanted = self._expert.act() if self._expert else ""

    @property
    def over(self) -> bool:
        return self._episode.over

    @property
    def observation(self) -> Observation:
        return self._episode.observation

    def send(self, action: str | None) -> None:
        """Play a message that asks for `action`, or that says nothing and ends."""
        tokens = tuple(self._agent.write(action))
        self.write(Completion(tokens, (0.0,) * len(tokens), "stop"))

    def write(self, completion: Completion) -> None:
        """Play a message token for token."""
        state_key = self._world.state_key
        command = self._episode.act(completion)
        if self._expert is not None:
            wanted = list(self._agent.write(self.wanted))
        else:
            wanted = list(completion.tokens) if command is not None else []
        self.demonstration.wanted.append(wanted)
        self._episode.observe(command, None if command is None else self._world.step(command), state_key)
        if self._expert is not None:
            self._expert.observe(command or "", self.observation)
            self.wanted = self._expert.act()
        self.demonstration.won = self.observation.won


def _perturbed(observation: Observation, before: str, rng: random.Random) -> str:
    """A command of the kinds that a learner gets wrong."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(observation.actions)
    if kind < 0.7 and before:
        return before
    # The beginning of one command with the end of another: in the right form, often refused.
    first, second = (rng.choice(observation.actions).split() for _ in range(2))
    return " ".join([*first[:-2], *second[-2:]])

"""Transcripts to imitate: what the demonstrator would do, in every state that a play passes through.

The play and the labels are separate things. Whoever plays (the demonstrator, one that wanders, one that makes
mistakes, or the learner itself), the demonstrator watches and says at every turn what it would do there. The
transcript holds what was really done, as in a rollout; the loss asks for what should have been done. So the learner
sees its own mistakes and learns the way out of them (DAgger, arXiv 1011.0686).
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alfworld_rl.agents import AgentFormat, CommandsShown, match_action
from alfworld_rl.agents.calls import read_action
from alfworld_rl.agents.texts import NOTHING_HAPPENS
from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.backends.protocol import Completion, Datum
from alfworld_rl.errors import UsageError
from alfworld_rl.imitation.expert import Demonstrator
from alfworld_rl.world import Game, View, World


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaySettings:
    """How demonstrations are played; the first three fields are a rollout's flags of the same names.

    - perturbation: probability that a command is replaced by one that gets in the way: a random admissible one, the
      one before again, or one that is refused.
    - exploration: how far the order in which the player searches departs from the demonstrator's (see `Demonstrator`);
      the labels keep to the demonstrator's.
    """

    max_episode_steps: int = 50
    max_trajectory_tokens: int = 12000
    admissible_commands: CommandsShown = "full"
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


def demonstrate(game: Game, protocol: AgentFormat, settings: PlaySettings, rng: random.Random) -> Demonstration:
    """The demonstrator plays `game`, wandering and making mistakes as `settings` ask; the labels make none.

    Raises TaskError where the task sentence is none that the demonstrator knows.
    """
    play = _Play(game, protocol, settings)
    wanderer = (
        Demonstrator(game.task, play.view, exploration=settings.exploration, rng=rng) if settings.exploration else None
    )
    before = ""
    while play.goes_on:
        command = wanderer.act() if wanderer else play.wanted
        if rng.random() < settings.perturbation:
            command = _perturbed(play.view, before, rng)
        play.send(command)
        if wanderer:
            wanderer.observe(command, play.view)
        before = command
    return play.demonstration


def label(
    game: Game,
    protocol: AgentFormat,
    settings: PlaySettings,
    completions: Sequence[Completion],
    *,
    patience: int | None = None,
) -> Demonstration:
    """What the demonstrator would have done at each turn of a trajectory whose messages were `completions`.

    After `patience` refused messages in a row the rest is left out.
    """
    play = _Play(game, protocol, settings)
    refused = 0
    for completion in completions:
        if not play.goes_on or refused == patience:
            break
        play.write(completion)
        refused = refused + 1 if play.view.observation == NOTHING_HAPPENS else 0
    return play.demonstration


def completions_of(transcript: Transcript) -> list[Completion]:
    """The messages of a trajectory that was played by a sampler, token for token."""
    tokens = list(transcript.prompt)
    return [Completion(tuple(tokens[start:end]), (0.0,) * (end - start), "stop") for start, end in transcript.turns]


def imitate(game: Game, protocol: AgentFormat, settings: PlaySettings, actions: Sequence[str | None]) -> Demonstration:
    """A recorded play as its own label: `actions` are what its messages asked for, None where they asked nothing.

    Turns that changed nothing but a step count (a refused command, no call at all) are played but not imitated.
    """
    play = _Play(game, protocol, settings, labels=False)
    for action in actions:
        if not play.goes_on:
            break
        play.send(action)
    return play.demonstration


def won_plays(results: Path) -> Iterator[tuple[str, list[str | None]]]:
    """The won games of a results JSONL: game id, and what each message of the agent asked for.

    Read are messages in this project's form and those with OpenAI's `tool_calls`. Raises UsageError for a file that
    is not a results file or has no won game.
    """
    found = False
    try:
        lines = results.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the results file {results} cannot be read ({error}); give one that eval.py wrote") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if entry["type"] != "trajectory" or not entry["won"]:
                continue
            game_id, messages = str(entry["game_id"]), entry["messages"]
            actions = [_action(message) for message in messages if message["role"] == "assistant"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"{results}, line {number} is not a line of a results file; give one that eval.py wrote"
            ) from None
        found = True
        yield game_id, actions
    if not found:
        raise UsageError(f"the results file {results} has no won game to learn from")


class _Play:
    """One game in the form of a rollout, watched by the demonstrator."""

    def __init__(self, game: Game, protocol: AgentFormat, settings: PlaySettings, *, labels: bool = True) -> None:
        self._world = World(game)
        self._protocol = protocol
        self._settings = settings
        self.view = self._world.view
        self._demonstrator = Demonstrator(game.task, self.view) if labels else None
        self.demonstration = Demonstration(Transcript(protocol.opening(self.view).tokens))
        self.goes_on = len(self.demonstration.transcript) < settings.max_trajectory_tokens
        self.wanted = self._demonstrator.act() if self._demonstrator else ""

    def send(self, action: str | None) -> None:
        """Play a message that calls the tool with `action`, or that says nothing and ends."""
        tokens = self._protocol.write(action)
        self.write(Completion(tokens, (0.0,) * len(tokens), "stop"))

    def write(self, completion: Completion) -> None:
        """Play a message token for token; the rules are those of a rollout."""
        before, demonstration = self.view, self.demonstration
        action = self._protocol.parse(completion).action
        command = None if action is None else match_action(action, before.admissible_commands)
        if self._demonstrator is not None:
            wanted = list(self._protocol.write(self.wanted))
        else:
            wanted = list(completion.tokens) if command is not None else []
        demonstration.transcript.write(completion)
        demonstration.wanted.append(wanted)
        if command is None:
            self.view = View(
                NOTHING_HAPPENS, before.task, before.admissible_commands, before.score, before.done, before.won
            )
        else:
            self.view = self._world.step(command)
        if self._demonstrator is not None:
            self._demonstrator.observe(command or "", self.view)
            self.wanted = self._demonstrator.act()
        demonstration.won = self.view.won
        answer = self._protocol.answer(before, self.view, completion).tokens
        if (
            self.view.done
            or len(demonstration.wanted) >= self._settings.max_episode_steps
            or len(demonstration.transcript) + len(answer) >= self._settings.max_trajectory_tokens
        ):
            self.goes_on = False
            return
        demonstration.transcript.show(answer)


def _perturbed(view: View, before: str, rng: random.Random) -> str:
    """A command of the kinds that a learner gets wrong."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(view.admissible_commands)
    if kind < 0.7 and before:
        return before
    # The beginning of one command with the end of another: in the right form, often refused.
    first, second = (rng.choice(view.admissible_commands).split() for _ in range(2))
    return " ".join([*first[:-2], *second[-2:]])


def _action(message: Mapping[str, Any]) -> str | None:
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        return str(arguments["action"])
    return read_action(message.get("content") or "")

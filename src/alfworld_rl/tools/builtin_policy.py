"""Make the built-in policy's folder: `python -m alfworld_rl.tools.builtin_policy new`, and later `ship`.

Everything comes from games of the train split (real or generated): the names of things, and the texts that a play of
them puts before the model. The same games and seed give the same files, byte for byte.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM
from transformers.utils import logging

from alfworld_rl.agents import FORMATS, CommandsShown
from alfworld_rl.backends.local import builtin
from alfworld_rl.backends.local.builtin.tokenizer import build_tokenizer, cut_at_instances
from alfworld_rl.backends.local.builtin.weights import new_config, new_model, save_model
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.games import GameRef, discover
from alfworld_rl.imitation.demonstrations import Mistakes, demonstrate
from alfworld_rl.rollouts import Limits
from alfworld_rl.world import Game

CHAT_TEMPLATE = Path(builtin.__file__).with_name("chat_template.jinja")
SHOWN: tuple[CommandsShown, ...] = ("full", "changes", "none")

PLAYED = 900
"""Games that are played for the texts in them, spread over the split; all of them are read for their names."""
SEEN_AT_LEAST = 8
"""How often a text between two names must occur in those plays to become a token."""


def make(games: Sequence[GameRef], folder: Path, seed: int = 0) -> None:
    """Write tokenizer, chat template, config and random weights for a policy that plays `games` into `folder`."""
    highest: Counter[str] = Counter()
    for ref in games:
        game = Game.load(ref.path)
        for name in (*game.objects, *game.receptacles):
            kind, _, number = name.partition(" ")
            highest[kind] = max(highest[kind], int(number))
    # Other houses may have a few more of a kind than any house here.
    instances = {kind: max(6, -(-number * 5 // 4)) for kind, number in highest.items()}

    chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    texts = _texts(games, _Recorder(build_tokenizer(instances, (), (), chat_template)), seed)
    pieces: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for text, count in texts.items():
        for part in re.split(r"<\|[a-z_]+\|>", text):
            for piece in cut_at_instances(part, instances):
                pieces[piece] += count
            for word in re.findall(r"[A-Za-z]+", part):
                words[word] += count
    tokenizer = build_tokenizer(instances, _frequent(pieces), _frequent(words), chat_template)

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    save_model(new_model(tokenizer, new_config(tokenizer), seed), folder)


def _frequent(counts: Mapping[str, int]) -> list[str]:
    return sorted(text for text, count in counts.items() if count >= SEEN_AT_LEAST)


class _Recorder:
    """A tokenizer that counts the texts it is given."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.texts: Counter[str] = Counter()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.texts[text] += 1
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def _texts(games: Sequence[GameRef], recorder: _Recorder, seed: int) -> Mapping[str, int]:
    """What the agent protocol encodes in plays of some of `games`, in all three ways of showing commands."""
    rng = random.Random(seed)
    for shown in SHOWN:
        agent = FORMATS["tool-call"](recorder, shown)
        limits, mistakes = Limits(max_trajectory_tokens=10**9), Mistakes(perturbation=0.3)
        for ref in games[:: max(1, len(games) * len(SHOWN) // PLAYED)]:
            demonstrate(Game.load(ref.path), ref, agent, limits, mistakes, rng)
    return recorder.texts


def ship(checkpoint: Path, folder: Path) -> None:
    """Make `folder` a built-in policy with the weights of `checkpoint`, a sampler_weights folder of a local run."""
    if not (checkpoint / "model.safetensors").is_file():
        raise UsageError(
            f"{checkpoint} holds no model.safetensors; give the folder of the sampler weights of a local run that "
            "trained all weights (--lora-rank 0), like 08-alfworld/runs/RUN/sampler_weights/NAME"
        )
    folder.mkdir(parents=True, exist_ok=True)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    save_model(Qwen3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32), folder)


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m alfworld_rl.tools.builtin_policy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="tokenizer, chat template, config and random weights")
    new.add_argument("--data-root", type=Path, required=True, help="folder that holds json_2.1.1")
    new.add_argument("--seed", type=int, default=0, help="seed of the plays and of the weights")
    shipped = commands.add_parser("ship", help="the same with trained weights, in half precision")
    shipped.add_argument("--weights", type=Path, required=True, help="folder of sampler weights of a local run")
    for command in (new, shipped):
        command.add_argument("--output", type=Path, default=builtin.path("alfworld-tiny"), help="folder to write to")
    options = parser.parse_args(None if arguments is None else list(arguments))
    logging.disable_progress_bar()
    try:
        if options.command == "new":
            make(discover(options.data_root, "train").games, options.output, options.seed)
        else:
            ship(options.weights, options.output)
    except AlfworldRLError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Made {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

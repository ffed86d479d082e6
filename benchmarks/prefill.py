"""Prompt tokens of an episode with `--admissible-commands full`, `changes` and `none`, on recorded real games.

    uv run --extra local python benchmarks/prefill.py --traces ../shared/alfworld/traces
    uv run --extra local python benchmarks/prefill.py --traces ... --qwen-vocabulary qwen.tiktoken

The second counts in Qwen's own vocabulary: the Python package dashscope carries it as resources/qwen.tiktoken.
Every episode is the first 22 turns of a recorded play, each command sent in the model's own form of a call.
"""

import argparse
import base64
import itertools
import json
import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from alfworld_rl.agents import FORMATS, AgentFormat, CommandsShown
from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.backends.local import builtin
from alfworld_rl.types import Completion
from alfworld_rl.world import View

TURNS = 22
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_NOT_SPECIAL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def qwen(vocabulary: Path, chat_template: str) -> PreTrainedTokenizerFast:
    """A tokenizer with the ranks of a tiktoken file and the added tokens of Qwen3."""
    ranks = {
        base64.b64decode(text): int(rank)
        for text, rank in (line.split() for line in vocabulary.read_text().splitlines() if line)
    }
    # In the symbols of byte-level tokenizers: printable bytes are themselves, the others follow from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    symbol = {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}

    def spelled(token: bytes) -> str:
        return "".join(symbol[byte] for byte in token)

    merges = [
        tuple(map(spelled, _last_merge(token, ranks))) for token in sorted(ranks, key=ranks.get) if len(token) > 1
    ]
    vocab = {spelled(token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _NOT_SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=chat_template)


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens that byte-pair encoding joins last to make `token`."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, len(ranks)) for left, right in itertools.pairwise(parts)]
        first = min(range(len(pairs)), key=pairs.__getitem__)
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    return parts[0], parts[1]


def episodes(traces: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(traces.glob("*.jsonl.xz")):
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def transcript(play: dict[str, Any], protocol: AgentFormat) -> Transcript:
    view = View(play["observation"], "", tuple(play["admissible"]), 0, False, False)
    result = Transcript(protocol.opening(view).tokens)
    for step in play["steps"][:TURNS]:
        tokens = protocol.write(step["command"])
        completion = Completion(tokens, (0.0,) * len(tokens), "stop")
        result.write(completion)
        before, view = view, View(step["observation"], "", tuple(step["admissible"]), 0, False, False)
        result.show(protocol.answer(before, view, completion).tokens)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/alfworld/traces"))
    parser.add_argument("--qwen-vocabulary", type=Path)
    parser.add_argument("--limit", type=int, default=200, help="plays to count")
    parser.add_argument("--short", action="store_true", help="one play: does it still work?")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.limit = 1
    tokenizer = AutoTokenizer.from_pretrained(builtin.path("alfworld-tiny"))
    if arguments.qwen_vocabulary is not None:
        tokenizer = qwen(arguments.qwen_vocabulary, tokenizer.chat_template)

    plays = [play for play, _ in zip(_long(arguments.traces), range(arguments.limit), strict=False)]
    if not plays:
        print(f"{arguments.traces} holds no play of {TURNS} turns", file=sys.stderr)
        return 1
    print(f"{len(plays)} plays of {TURNS} turns; tokens of all prompts of a play, mean:")
    full = 0.0
    for mode in get_args(CommandsShown):
        protocol = FORMATS["tool-call"](tokenizer, mode)
        transcripts = [transcript(play, protocol) for play in plays]
        prefill = sum(one.prefill_count for one in transcripts) / len(plays)
        cacheable = sum(one.cacheable_count for one in transcripts) / len(plays)
        full = full or prefill
        longest = max(len(one) for one in transcripts)
        print(
            f"  {mode:8} {prefill:9.0f}  {1 - prefill / full:6.1%} less than full (changes: at least 40%)   "
            f"{cacheable / prefill:.1%} of them seen before   longest transcript {longest}"
        )
    return 0


def _long(traces: Path) -> Iterator[dict[str, Any]]:
    return (play for play in episodes(traces) if len(play["steps"]) >= TURNS)


if __name__ == "__main__":
    sys.exit(main())

"""A tokenizer made for one world, that still reads anything.

What the agent protocol and the games say again and again is one token each: an instance ("cabinet 3"), a bare type
("cabinet"), and whatever stands between two of those ("\n</tool_call>", ", a ", "You arrive at "). An instance is
the same token wherever it appears, since the words and spaces around it belong to the pieces between; that is
what makes copying it from the observation into a command easy to learn. All other text falls back to
single words and then to bytes, so decode(encode(text)) == text for every text.

Nothing is merged: a regular expression cuts the text, longest known piece first, and a cut piece is a token or its
bytes. So a text's tokens depend on nothing outside it, and pieces can be encoded one by one and appended.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
# Words with the space before them, digits one by one, runs of punctuation; every character is in one of these.
_ANY_TEXT = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s"


def build_tokenizer(
    instances: Mapping[str, int], pieces: Collection[str], words: Collection[str], chat_template: str
) -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each of `instances` (type -> highest number), `pieces` and `words`.

    Words get a token without and one with a leading space. The special tokens are the end of a turn (eos),
    the start of a turn, and the end of text (padding).
    """
    types = sorted(instances)
    numbered = [f"{name} {number}" for name in types for number in range(1, instances[name] + 1)]
    spaced_words = [space + word for word in sorted({*words, *types}) for space in ("", " ")]
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for text in [*spaced_words, *numbered, *sorted(pieces)]:
        vocabulary.setdefault(_byte_symbols(text), len(vocabulary))

    known = _trie_regex([*numbered, *pieces, *types])
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(f"{known}|{_ANY_TEXT}"), "isolated"), _BYTES]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
        chat_template=chat_template,
    )


def cut_at_instances(text: str, instances: Mapping[str, int]) -> list[str]:
    """What is left of `text` between the instances and the bare types in it, in order."""
    names = "|".join(sorted(instances, key=len, reverse=True))
    return [piece for piece in re.split(rf"(?<![A-Za-z])(?:{names})(?: [0-9]+)?(?![A-Za-z0-9])", text) if piece]


def _byte_symbols(text: str) -> str:
    return "".join(symbols for symbols, _ in _BYTES.pre_tokenize_str(text))


def _trie_regex(texts: Iterable[str]) -> str:
    """A regular expression of the texts that tries the longest first and no beginning twice.

    A text that ends in a digit or a letter is not found where another one follows: "cabinet 1" is not in
    "cabinet 12", and "look" not in "looking", where it would waste the word's own token.
    """
    trie: dict[str, Any] = {}
    for text in texts:
        node = trie
        for character in text:
            node = node.setdefault(character, {})
        node[""] = r"(?!\p{N})" if text[-1].isdigit() else r"(?!\p{L})" if text[-1].isalpha() else ""

    def regex(node: dict[str, Any]) -> str:
        branches = [re.escape(character) + regex(node[character]) for character in sorted(node) if character]
        branches += [node[""]] if "" in node else []
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

    return regex(trie)

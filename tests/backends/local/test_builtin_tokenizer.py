"""The built-in tokenizer reads everything, and reads its own world in few tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from alfworld_rl.backends.local.builtin.tokenizer import build_tokenizer, cut_at_instances

INSTANCES = {"cabinet": 12, "mug": 3, "desk": 2, "desklamp": 2}
PIECES = ["\ngo to ", "look", "look at the ", ", a ", ".\n"]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(INSTANCES, PIECES, ["room", "looking"], TEMPLATE)


def pieces_of(tokenizer, text):
    return [tokenizer.decode([token]) for token in tokenizer.encode(text, add_special_tokens=False)]


def test_an_instance_is_one_token_and_the_same_one_everywhere(tokenizer):
    assert pieces_of(tokenizer, "\ngo to cabinet 12, a desklamp 1, a desk 1.\n") == [
        "\ngo to ", "cabinet 12", ", a ", "desklamp 1", ", a ", "desk 1", ".\n",
    ]  # fmt: skip


def test_the_longest_known_piece_wins_but_never_cuts_a_word_or_a_number(tokenizer):
    assert pieces_of(tokenizer, "look at the room") == ["look at the ", "room"]
    assert pieces_of(tokenizer, "looking")[0] == "looking"
    assert pieces_of(tokenizer, "cabinet 120") == ["cabinet", " ", "1", "2", "0"]
    assert pieces_of(tokenizer, "desklamps")[0] != "desklamp"


@settings(max_examples=300, deadline=None)
@given(st.text(), st.sampled_from(["", "<|im_end|>", "cabinet 3", "<|im_start|>user\n", "\ngo to "]), st.text())
def test_every_text_comes_back_and_no_text_can_end_a_turn(tokenizer, before, middle, after):
    text = before + middle + after
    tokens = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(tokens) == text
    assert not set(tokens) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_special_tokens_are_single(tokenizer):
    assert tokenizer.encode("<|im_start|>", add_special_tokens=False) == [
        tokenizer.convert_tokens_to_ids("<|im_start|>")
    ]
    assert tokenizer.decode([tokenizer.eos_token_id]) == "<|im_end|>"
    assert tokenizer.decode([tokenizer.pad_token_id]) == "<|endoftext|>"


def test_building_twice_gives_the_same_tokenizer(tokenizer):
    again = build_tokenizer(INSTANCES, list(reversed(PIECES)), ["looking", "room"], TEMPLATE)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_text_is_cut_at_instances_and_bare_types():
    assert cut_at_instances("put a mug in desk.\nYou see a mug 2, a cabinet 10.", INSTANCES) == [
        "put a ", " in ", ".\nYou see a ", ", a ", ".",
    ]  # fmt: skip
    assert cut_at_instances("desktop, smug", INSTANCES) == ["desktop, smug"]

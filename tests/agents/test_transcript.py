"""A transcript only ever grows, and its datum is what was sampled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.types import Completion

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=20)
completions = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-50, 0, width=32)), max_size=20).map(
    lambda pairs: Completion(tuple(t for t, _ in pairs), tuple(p for _, p in pairs), "stop")
)


@given(tokens, st.lists(st.tuples(completions, tokens), max_size=8))
def test_every_prompt_extends_the_one_before(opening, rounds):
    transcript = Transcript(opening)
    expected = list(opening)
    prompts = [(transcript.prompt, list(opening))]
    for completion, answer in rounds:
        transcript.write(completion)
        transcript.show(answer)
        expected += [*completion.tokens, *answer]
        prompts.append((transcript.prompt, list(expected)))
    # Views taken early still say what they said, whatever was appended since.
    for prompt, then in prompts:
        assert list(prompt) == then == prompt[:]
        assert len(prompt) == len(then)
        assert np.asarray(prompt).tolist() == then
        assert expected[: len(then)] == then
    assert len(transcript) == len(expected)


@given(tokens.filter(bool), st.lists(st.tuples(completions, tokens), max_size=6))
def test_a_datum_trains_on_what_the_model_wrote_and_nothing_else(opening, rounds):
    transcript = Transcript(opening)
    wrote = {}
    for turn, (completion, answer) in enumerate(rounds):
        for offset, (token, logprob) in enumerate(zip(completion.tokens, completion.logprobs, strict=True)):
            wrote[len(transcript) + offset] = (token, logprob, turn + 1.0)
        transcript.write(completion)
        transcript.show(answer)
    if not wrote:
        with pytest.raises(ValueError, match="wrote nothing"):
            transcript.datum(1.0)
        return
    datum = transcript.datum([turn + 1.0 for turn in range(len(rounds))])
    everything = list(transcript.prompt)
    length = max(wrote)
    assert datum.tokens_T.tolist() == everything[:length]
    assert datum.targets_T.tolist() == everything[1 : length + 1]
    for t in range(length):
        token, logprob, advantage = wrote.get(t + 1, (everything[t + 1], 0.0, 0.0))
        assert datum.targets_T[t] == token
        assert datum.mask_T[t] == (t + 1 in wrote)
        assert datum.logprobs_T[t] == np.float32(logprob)
        assert datum.advantages_T[t] == advantage


def test_the_first_token_of_all_is_never_a_target():
    transcript = Transcript()
    transcript.write(Completion((5, 6), (-1.0, -2.0), "stop"))
    datum = transcript.datum(3.0)
    assert datum.targets_T.tolist() == [6]
    assert datum.advantages_T.tolist() == [3.0]


def test_a_prompt_reads_like_a_list():
    transcript = Transcript([3, 1, 4, 1, 5])
    prompt = transcript.prompt
    transcript.show([9])
    assert (prompt[0], prompt[-1], prompt[1:3], prompt[::-1], prompt[-2:]) == (3, 5, [1, 4], [5, 1, 4, 1, 3], [1, 5])
    assert prompt == [3, 1, 4, 1, 5]
    assert prompt != [3, 1, 4, 1, 5, 9]
    with pytest.raises(IndexError):
        prompt[5]


def test_what_was_sent_and_what_a_cache_could_have_served_are_counted():
    transcript = Transcript([1, 2, 3])
    for _ in range(3):
        transcript.write(Completion((7, 8), (-1.0, -1.0), "stop"))
        transcript.show([9])
    assert transcript.prefill_count == 3 + 6 + 9
    assert transcript.cacheable_count == 5 + 8
    assert transcript.written_count == 6


def test_a_token_without_a_logprob_is_refused():
    with pytest.raises(ValueError, match="2 tokens but 1 logprobs"):
        Transcript([1]).write(Completion((1, 2), (0.0,), "stop"))

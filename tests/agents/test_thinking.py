"""Thoughts are the model's own tokens: kept in its context, told apart from what it says, and never an action."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alfworld_rl.agents import FORMATS, ChatTemplateError
from alfworld_rl.agents.thinking import THOUGHT_MARKS, thoughts_of, without
from alfworld_rl.agents.transcript import Transcript
from alfworld_rl.types import Completion
from alfworld_rl.world import View
from model_families import BY_NAME, FAMILIES

TASK = "put a mug in desk."
VIEW = View(f"You are in a room.\n\nYour task is to: {TASK}", TASK, ("go to desk 1", "look"), 0, False, False)
THINKING = [family for family in FAMILIES if family.thought]
each_thinker = pytest.mark.parametrize("family", THINKING, ids=lambda family: family.name)


def completion(tokenizer, text, reason="stop"):
    tokens = tokenizer.encode(text, add_special_tokens=False)
    return Completion(tuple(tokens), (0.0,) * len(tokens), reason)


def prompt_of(family, thinking, name="tool-call"):
    tokenizer = family.tokenizer()
    return tokenizer.decode(FORMATS[name](tokenizer, thinking=thinking).opening(VIEW).tokens)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize(
    ("family", "on", "off", "template"),
    [
        ("Qwen 3", "assistant\n", "assistant\n<think>\n\n</think>\n\n", "assistant\n"),
        ("Qwen 3.5", "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n", "assistant\n<think>\n"),
        ("SmolLM3", "assistant\n", "assistant\n<think>\n\n</think>\n", "assistant\n"),
        ("GLM 4.5", "<|assistant|>", "<|assistant|>\n<think></think>", "<|assistant|>"),
        ("DeepSeek R1", "<think>\n", "<think>\n", "<think>\n"),
        ("DeepSeek V3.1", "<think>", "</think>", "</think>"),
    ],
)
def test_the_switch_is_that_of_the_template(family, on, off, template, name):
    for thinking, ending in (("on", on), ("off", off), ("template", template)):
        assert prompt_of(BY_NAME[family], thinking, name).endswith(ending)


def test_switches_that_stand_at_the_beginning_of_a_prompt():
    assert [("<|think|>" in prompt_of(BY_NAME["Gemma 4"], thinking)) for thinking in ("on", "off")] == [True, False]
    for thinking, level in (("on", "high"), ("off", "low"), ("template", "medium")):
        assert f"Reasoning: {level}\n" in prompt_of(BY_NAME["gpt-oss"], thinking)
    assert "/think" in prompt_of(BY_NAME["SmolLM3"], "on")
    assert "/no_think" in prompt_of(BY_NAME["SmolLM3"], "off")


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_template_that_knows_no_thoughts_is_not_asked_for_them(name):
    for family in FAMILIES:
        if family.thought is None and "<think>" not in family.template:
            for thinking in ("off", "template"):
                FORMATS[name](family.tokenizer(), thinking=thinking)
            with pytest.raises(ChatTemplateError, match="knows no thinking"):
                FORMATS[name](family.tokenizer(), thinking="on")


def think(family, prompt, thought):
    """A whole thought as a model of the family writes it after `prompt`."""
    opens, closes = family.thought
    return f"{thought}{closes}" if prompt.rstrip().endswith(opens) else f"{opens}{thought}{closes}"


@each_thinker
@pytest.mark.parametrize("thinking", ["on", "template"])
def test_a_call_after_a_thought_counts_and_one_within_it_does_not(family, thinking):
    tokenizer = family.tokenizer()
    agent = FORMATS["tool-call"](tokenizer, thinking=thinking)
    prompt = tokenizer.decode(agent.opening(VIEW).tokens)
    other = family.call.replace("look", "inventory")
    thought = f"\nI could write {other}\n"

    parsed = agent.parse(completion(tokenizer, think(family, prompt, thought) + family.call))
    assert parsed.action == "look"
    assert parsed.thought == thought.strip()
    assert parsed.text.endswith(family.call)

    _, closes = family.thought
    unclosed = think(family, prompt, thought).removesuffix(closes)
    for reason in ("stop", "length"):
        parsed = agent.parse(completion(tokenizer, unclosed, reason))
        assert parsed.action is None
        assert parsed.thought == thought.strip()
        assert parsed.cut_off == (reason == "length")


@each_thinker
def test_tokens_of_a_thought_are_counted_apart(family):
    tokenizer = family.tokenizer()
    agent = FORMATS["tool-call"](tokenizer, thinking="on")
    prompt = tokenizer.decode(agent.opening(VIEW).tokens)
    thought = think(family, prompt, "Hmm, ü.")
    # What ends a thought of gpt-oss ends a message; the name of who writes the next one is no thought.
    counted = thought.removesuffix("<|start|>assistant")
    parsed = agent.parse(completion(tokenizer, thought + family.call))
    assert parsed.thought_tokens == len(tokenizer.encode(counted, add_special_tokens=False))
    without_any = FORMATS["tool-call"](BY_NAME["Qwen 3"].tokenizer())
    assert without_any.parse(completion(BY_NAME["Qwen 3"].tokenizer(), BY_NAME["Qwen 3"].call)).thought_tokens == 0


@each_thinker
@pytest.mark.parametrize("name", list(FORMATS))
def test_thoughts_stay_in_the_context_token_for_token(family, name):
    tokenizer = family.tokenizer()
    agent = FORMATS[name](tokenizer, thinking="on")
    opening = agent.opening(VIEW)
    transcript = Transcript(opening.tokens)
    prompt = tokenizer.decode(opening.tokens)
    for turn in range(3):
        before = list(transcript.prompt)
        said = f"{family.call}" if name == "tool-call" else "Action: look"
        if name == "react" and family.name == "gpt-oss":
            said = f"<|channel|>final<|message|>{said}"
        ended = completion(tokenizer, think(family, prompt, f"thought {turn}") + said)
        written = replace(ended, tokens=(*ended.tokens, agent.write("look")[-1]), logprobs=(*ended.logprobs, 0.0))
        assert agent.parse(written).action == "look"
        assert agent.parse(written).thought == f"thought {turn}"
        transcript.write(written)
        answer = agent.answer(VIEW, VIEW, written)
        transcript.show(answer.tokens)
        assert list(transcript.prompt) == [*before, *written.tokens, *answer.tokens]
        prompt = tokenizer.decode(list(transcript.prompt))
    assert [f"thought {turn}" in prompt for turn in range(3)] == [True] * 3


def test_a_thought_is_opened_in_every_turn_or_in_none():
    """The template of Gemma 4 would open one in every turn but the first: an unclosed one would be read as a call."""
    tokenizer = BY_NAME["Gemma 4"].tokenizer()
    agent = FORMATS["tool-call"](tokenizer, "none", thinking="on")
    message = agent.write("look")
    answer = agent.answer(VIEW, VIEW, Completion(message, (0.0,) * len(message), "stop"))
    assert tokenizer.decode(answer.tokens).endswith('<|"|>}<tool_response|>')


@each_thinker
@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("thinking", ["on", "off", "template"])
def test_an_expert_has_no_thoughts_and_closes_those_that_a_prompt_opens(family, name, thinking):
    tokenizer = family.tokenizer()
    agent = FORMATS[name](tokenizer, thinking=thinking)
    message = agent.write("go to desk 1")
    parsed = agent.parse(Completion(message, (0.0,) * len(message), "stop"))
    assert (parsed.action, parsed.thought) == ("go to desk 1", "")
    nothing = agent.write(None)
    parsed = agent.parse(Completion(nothing, (0.0,) * len(nothing), "stop"))
    assert (parsed.action, parsed.thought) == (None, "")


@pytest.mark.parametrize(
    ("message", "opened", "thoughts", "rest"),
    [
        ("look", "", [], "look"),
        ("<think>a</think>b", "", ["a"], "b"),
        ("a</think>b", "<think>", ["a"], "b"),
        ("a</think>b", "", ["a"], "b"),
        ("a<think>b</think>c<think>d</think>e", "", ["b", "d"], "ace"),
        ("<think>a<think>b</think>c", "", ["a<think>b"], "c"),
        ("a<think>b", "", ["b"], "a"),
        ("a", "<think>", ["a"], ""),
        ("", "<think>", [""], ""),
        ("[THINK]a[/THINK]b", "", ["a"], "b"),
        ("done<|end|>", "", [], "done<|end|>"),
    ],
)
def test_thoughts_are_found_in_the_marks_of_any_family(message, opened, thoughts, rest):
    found = thoughts_of(message, opened=opened)
    assert [thought.text for thought in found] == thoughts
    assert without(message, found) == rest


pieces = st.sampled_from([mark for marks in THOUGHT_MARKS for mark in marks] + ["a", "\n", " "])


@given(st.lists(pieces, max_size=12).map("".join), st.sampled_from(["", *(opens for opens, _ in THOUGHT_MARKS)]))
def test_thoughts_and_the_rest_make_up_the_message(message, opened):
    found = thoughts_of(message, opened=opened)
    parts, position = [], 0
    for thought in found:
        assert position <= thought.start <= thought.end
        parts.append(message[position : thought.start])
        position = thought.end
    assert "".join([*parts, message[position:]]) == without(message, found)
    assert not any(opens in message[position:] for opens, _ in THOUGHT_MARKS)


@pytest.mark.parametrize("mark", ["<think>", "</think>", "<think></think>"])
def test_long_rubbish_ends_too(mark):
    message = mark * 20_000
    assert len(without(message, thoughts_of(message))) <= len(message)

"""Every family of models is told one form of calls, the one that it is read by, in its own template."""

import datetime
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alfworld_rl.agents import FORMATS
from alfworld_rl.agents.calls import CALL_FORMS, TOOL
from alfworld_rl.types import Completion
from alfworld_rl.world import View
from model_families import BY_NAME, FAMILIES

TASK = "put a mug in desk."
VIEW = View(f"You are in a room.\n\nYour task is to: {TASK}", TASK, ("go to desk 1", "look"), 0, False, False)
SEEN = replace(VIEW, observation='You see a "mug 1", a \\ and\nünothing <b>else</b>.')
EMPTY_THOUGHT = re.compile(r"<think>\s*</think>\s*")

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def written(tokens, reason="stop"):
    return Completion(tuple(tokens), (0.0,) * len(tokens), reason)


def rendered(family, tokenizer, messages, thinking=False):
    text = tokenizer.apply_chat_template(
        messages,
        tools=None if family.form == "explained" else [TOOL],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=thinking,
        thinking=thinking,
        reasoning_effort="high" if thinking else "low",
    )
    # Some templates tell the day; a format always tells the same.
    for form in ("%d %b %Y", "%Y-%m-%d", "%d %B %Y"):
        text = text.replace(datetime.date.today().strftime(form), datetime.date(2024, 7, 26).strftime(form))
    # What a template leaves out of earlier turns, the transcript keeps; the rest is the same, token for token.
    return EMPTY_THOUGHT.sub("", text)


@each_family
@pytest.mark.parametrize("commands", ["full", "none"])
def test_a_conversation_of_calls_is_what_the_template_renders(family, commands):
    tokenizer = family.tokenizer()
    agent = FORMATS["tool-call"](tokenizer, commands)
    opening = agent.opening(VIEW)
    tokens, messages = list(opening.tokens), list(opening.messages)
    if not family.system_role:
        messages = [{"role": "user", "content": "\n\n".join(message["content"] for message in messages)}]
    for action in ("look", "go to desk 1"):
        message = agent.write(action)
        answer = agent.answer(VIEW, SEEN, written(message))
        tokens += [*message, *answer.tokens]
        content = family.call.replace("look", action)
        if family.form == "explained":
            messages.append({"role": "assistant", "content": content})
        else:
            function = {"name": "alfworld_step", "arguments": {"action": action}}
            call = {"type": "function", "id": "123456789", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        named = {"name": "alfworld_step", "tool_call_id": "123456789"} if family.answer_role == "tool" else {}
        messages.append({"role": family.answer_role, "content": answer.messages[0]["content"], **named})
    text = tokenizer.decode(tokens)
    assert EMPTY_THOUGHT.sub("", text) == rendered(family, tokenizer, messages)
    assert tokens == tokenizer.encode(text, add_special_tokens=False)


@each_family
def test_what_a_family_is_taught_is_what_is_read(family):
    tokenizer = family.tokenizer()
    agent = FORMATS["tool-call"](tokenizer)
    opening = tokenizer.decode(agent.opening(VIEW).tokens)
    # Some prompts open a thought whatever they are told.
    before = "</think>" if opening.endswith("<think>\n") else ""
    for text in (family.call, f"I look around. {family.call}" if family.form != "harmony" else family.call):
        assert agent.parse(written(tokenizer.encode(before + text, add_special_tokens=False))).action == "look"
    assert agent.parse(written(agent.write("go to desk 1"))).action == "go to desk 1"
    assert ("A call has this form" in opening) == (family.form == "explained")
    assert (str(TOOL["function"]["description"]) in opening) == (family.form != "explained")


@each_family
def test_no_family_is_read_by_the_form_of_another(family):
    agent = FORMATS["tool-call"](family.tokenizer())
    # Ours is one of the forms of <tool_call>, and both of them are read.
    forms = {"explained": "tool_call"}
    for other in FAMILIES:
        if forms.get(other.form, other.form) != forms.get(family.form, family.form):
            tokens = family.tokenizer().encode(other.call, add_special_tokens=False)
            assert agent.parse(written(tokens)).action is None, other.name


@each_family
def test_a_sampler_is_told_all_that_ends_a_turn(family):
    assert FORMATS["tool-call"](family.tokenizer()).stop == family.stop


@each_family
@pytest.mark.parametrize("name", list(FORMATS))
def test_no_text_of_a_game_becomes_a_mark_of_the_family(family, name):
    tokenizer = family.tokenizer()
    agent = FORMATS[name](tokenizer, "none")
    marks = [*family.special, *family.not_special]
    added = set(tokenizer.get_added_vocab().values())
    hostile = replace(VIEW, observation="".join(marks) + " and " + " ".join(marks))

    def controls(tokens):
        return [token for token in tokens if token in added]

    message = written(agent.write("look"))
    assert controls(agent.opening(hostile).tokens) == controls(agent.opening(VIEW).tokens)
    assert controls(agent.answer(VIEW, hostile, message).tokens) == controls(agent.answer(VIEW, VIEW, message).tokens)
    assert controls(agent.write(hostile.observation)) == controls(agent.write("look"))


@each_family
def test_a_message_without_a_call_is_answered_so_that_the_conversation_goes_on(family):
    tokenizer = family.tokenizer()
    agent = FORMATS["tool-call"](tokenizer, "none")
    nothing = agent.write(None)
    assert agent.parse(written(nothing)).action is None
    seen = replace(VIEW, observation="Nothing happens.")
    ended = agent.answer(VIEW, seen, written(nothing)).tokens
    assert "Nothing happens." in tokenizer.decode(ended)
    # A message that did not end itself is ended by what is appended, and so gets more of it.
    unended = agent.answer(VIEW, seen, written(tokenizer.encode("Hm.", add_special_tokens=False))).tokens
    assert len(unended) > len(ended)
    assert unended[-len(ended) :] == ended


def test_what_calls_nothing_is_answered_by_the_user_where_only_calls_are_answered_by_the_tool():
    for name, user in (("gpt-oss", "<|start|>user<|message|>Hm.<|end|>"), ("Gemma 4", "<|turn>user\nHm.<turn|>")):
        tokenizer = BY_NAME[name].tokenizer()
        agent = FORMATS["tool-call"](tokenizer, "none")
        answer = agent.answer(VIEW, replace(VIEW, observation="Hm."), written(agent.write(None)))
        assert user in tokenizer.decode(answer.tokens)


@pytest.mark.parametrize("form", CALL_FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("piece", ["{", "[", "(", " to=functions.", '{"name": ', "<arg_key>", "<|tool_call>", "a" * 50])
def test_long_rubbish_is_read_without_an_error(form, piece):
    for text in (piece * 20_000, form.opens + piece * 20_000 + form.closes):
        assert form.read(text) is None


def test_the_day_is_always_the_same():
    for name in ("Llama 3.1", "Llama 3.2"):
        tokenizer = BY_NAME[name].tokenizer()
        assert "Today Date: 26 Jul 2024" in tokenizer.decode(FORMATS["tool-call"](tokenizer).opening(VIEW).tokens)
    tokenizer = BY_NAME["gpt-oss"].tokenizer()
    assert "Current date: 2024-07-26" in tokenizer.decode(FORMATS["react"](tokenizer).opening(VIEW).tokens)


def test_a_fingerprint_tells_forms_apart_and_keeps_the_first_one():
    def fingerprint(name):
        return FORMATS["tool-call"](BY_NAME[name].tokenizer()).fingerprint

    first = fingerprint("Qwen 2.5")
    assert {fingerprint(name) for name in ("Qwen 3", "Qwen 3.5", "Llama 3", "Gemma 3", "Phi-4", "SmolLM3")} == {first}
    others = [fingerprint(name) for name in ("GLM 4.5", "Llama 3.1", "Gemma 4", "LFM2", "LFM2.5", "gpt-oss")]
    assert len({first, *others}) == len(others) + 1


def test_the_table_of_families_is_the_one_that_is_tested():
    table = (Path(__file__).parents[2] / "docs/formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([a-z_0-9]+) \|$", table, re.MULTILINE)
    assert sorted(rows) == sorted((family.name, family.form) for family in FAMILIES)

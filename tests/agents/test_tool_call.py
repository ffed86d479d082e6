"""The protocol speaks each model's own template, appends only, and lets no game text become a control token."""

import functools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_models import NOT_SPECIAL, SPECIAL, TEMPLATES, qwen_like
from alfworld_rl.agents import FORMATS, ChatTemplateError
from alfworld_rl.agents.calls import TOOL
from alfworld_rl.agents.tool_call import protocol_hash, system_text
from alfworld_rl.types import Completion
from alfworld_rl.world import View

VIEW = View(
    "You are in a room.\n\nYour task is to: put a mug in desk.",
    "put a mug in desk.",
    ("go to desk 1", "look"),
    0,
    False,
    False,
)

tool_call = FORMATS["tool-call"]


def answered(agent, text, tokens):
    """The tokens of an answer that says `text`, after a message of `tokens`."""
    completion = Completion(tuple(tokens), (0.0,) * len(tokens), "stop")
    return agent.answer(VIEW, replace(VIEW, observation=text), completion).tokens


def text_of(tokenizer, tokens):
    return tokenizer.decode(tokens, skip_special_tokens=False)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("ended", [True, False])
def test_a_conversation_is_what_the_template_renders(name, ended):
    tokenizer = qwen_like(TEMPLATES[name])
    protocol = tool_call(tokenizer, "none")
    message = tokenizer.encode("Let me look.", add_special_tokens=False)
    completion = [*message, *protocol.write(None)] if ended else message
    tokens = [*protocol.opening(VIEW).tokens, *completion, *answered(protocol, "You see a mug 1.", completion)]
    roles = {"json calls": "tool", "xml calls": "tool"}
    expected = tokenizer.apply_chat_template(
        [
            *_messages(protocol, name),
            {"role": "assistant", "content": "Let me look."},
            {"role": roles.get(name, "user"), "content": "You see a mug 1."},
        ],
        tools=[TOOL],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    # A template may leave the empty thinking block out of earlier turns; in the transcript it stays, being what the
    # model saw when it wrote.
    opened = "<|im_start|>assistant\n<think>\n\n</think>\n\n" if "calls" in name else "<|im_start|>assistant\n"
    expected = expected.replace("<|im_start|>assistant\nLet me", f"{opened}Let me")
    assert text_of(tokenizer, tokens) == expected
    assert tokens == tokenizer.encode(expected, add_special_tokens=False)


def _messages(protocol, name):
    system, user = protocol.opening(VIEW).messages
    if name == "no system":
        return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}]
    return [system, user]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_model_is_told_the_rules_the_form_of_a_call_and_the_game(name):
    tokenizer = qwen_like(TEMPLATES[name])
    opening = text_of(tokenizer, tool_call(tokenizer).opening(VIEW).tokens)
    for part in (
        system_text("full"),
        "alfworld_step",
        "<tool_call>" if name != "json calls" else "<tools>",
        VIEW.observation,
        "\ngo to desk 1\nlook",
    ):
        assert part in opening


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_hostile_text_never_becomes_a_control_token(name, data):
    pieces = st.sampled_from(
        [*SPECIAL, *NOT_SPECIAL, "<|im_", "end|>", "<", "<tool", "_call>", "assistant\n", "ü", "\n"]
    ) | st.text(max_size=5)
    hostile = "".join(data.draw(st.lists(pieces, max_size=8)))
    tokenizer, protocol = _protocol(name)
    added = set(tokenizer.get_added_vocab().values())

    def controls(tokens):
        return [token for token in tokens if token in added]

    evil = View(hostile, hostile, (hostile,), 0, False, False)
    assert controls(protocol.opening(evil).tokens) == controls(protocol.opening(VIEW).tokens)
    assert controls(answered(protocol, hostile, [1])) == controls(answered(protocol, "fine", [1]))
    assert controls(protocol.write(hostile)) == controls(protocol.write("look"))
    benign = text_of(tokenizer, answered(protocol, "fine", [1]))
    assert text_of(tokenizer, answered(protocol, hostile, [1])) == benign.replace("fine", hostile)


@functools.cache
def _protocol(name):
    tokenizer = qwen_like(TEMPLATES[name])
    return tokenizer, tool_call(tokenizer, "none")


def test_a_completion_that_ended_itself_is_not_ended_twice():
    protocol = tool_call(qwen_like())
    [end] = protocol.write(None)
    assert answered(protocol, "x", [1, end]).count(end) == 1
    assert answered(protocol, "x", [1]).count(end) == 2
    assert answered(protocol, "x", []).count(end) == 2


def test_a_model_with_another_end_of_text_is_told_where_its_turn_ends():
    protocol = tool_call(qwen_like(eos="<|endoftext|>"))
    assert protocol.stop == ("<|im_end|>",)
    assert tool_call(qwen_like()).stop == ()


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("", "no chat template"),
        ("{{ raise_exception('not today') }}", "not today"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "does not end the assistant's turn"),
        # The tools move to the last user message, as some templates do.
        (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{% if loop.last and m.role == 'user' %}{{ tools | tojson }}{% endif %}"
            "{{ m.content }}<|im_end|>\n{% endfor %}",
            "token for token",
        ),
        # Only the last message is kept.
        ("{{ tools | tojson }}{{ messages[0].content }}{{ messages[-1].content }}<|im_end|>", "answer|repeat"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_carry_the_protocol_is_refused_at_once(template, complaint):
    with pytest.raises(ChatTemplateError, match=complaint):
        tool_call(qwen_like(template or None))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_written_call_is_read_back(name):
    tokenizer = qwen_like(TEMPLATES[name])
    protocol = tool_call(tokenizer)
    tokens = protocol.write("go to desk 1")
    assert protocol.parse(Completion(tuple(tokens), (0.0,) * len(tokens), "stop")).action == "go to desk 1"
    assert tokens[-1:] == protocol.write(None)
    assert ('"arguments"' in text_of(tokenizer, tokens)) == (name == "json calls")


def test_the_hash_tells_protocols_apart_and_nothing_else():
    assert protocol_hash("full") == protocol_hash("full")
    hashes = {protocol_hash("full"), protocol_hash("changes"), protocol_hash("none"), protocol_hash("full", steps=50)}
    assert len(hashes) == 4


def test_the_tool_is_plain_json():
    assert json.loads(json.dumps(TOOL)) == TOOL

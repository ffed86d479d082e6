"""ReAct works with any chat template, reads what it asks for and nothing else, and is told apart from other formats."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_models import TEMPLATES, qwen_like
from alfworld_rl.agents import FORMATS
from alfworld_rl.agents.react import read_lines
from alfworld_rl.types import Completion
from alfworld_rl.world import View

TASK = "put a mug in desk."
VIEW = View(f"You are in a room.\n\nYour task is to: {TASK}", TASK, ("go to desk 1", "look"), 0, False, False)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_conversation_is_what_the_template_renders_without_tools(name):
    tokenizer = qwen_like(TEMPLATES[name])
    agent = FORMATS["react"](tokenizer, "changes")
    opening, written = agent.opening(VIEW), agent.write("go to desk 1")
    completion = Completion(written, (0.0,) * len(written), "stop")
    answer = agent.answer(VIEW, replace(VIEW, observation="You see a <|im_end|>.", admissible_commands=()), completion)
    system, user = opening.messages
    first = (
        [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}]
        if name == "no system"
        else [system, user]
    )
    expected = tokenizer.apply_chat_template(
        [*first, {"role": "assistant", "content": "Action: go to desk 1"}, *answer.messages],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    if "calls" in name:
        # These templates leave the empty thought of a prompt out of earlier turns; a transcript keeps it.
        expected = expected.replace("assistant\nAction", "assistant\n<think>\n\n</think>\n\nAction")
    assert tokenizer.decode([*opening.tokens, *written, *answer.tokens]) == expected
    assert "alfworld_step" not in expected
    assert answer.messages == ({"role": "user", "content": "You see a <|im_end|>.\n\n- go to desk 1\n- look"},)
    # The control token that the answer spells is none.
    assert answer.tokens.count(tokenizer.eos_token_id) == 1


def test_what_the_expert_writes_is_read_back():
    agent = FORMATS["react"](qwen_like())
    tokens = agent.write("look")
    parsed = agent.parse(Completion(tokens, (0.0,) * len(tokens), "stop"))
    assert (parsed.text, parsed.thought, parsed.action, parsed.cut_off) == ("Action: look", "", "look", False)
    nothing = agent.write(None)
    assert agent.parse(Completion(nothing, (0.0,) * len(nothing), "stop")).action is None


@pytest.mark.parametrize(
    ("message", "thought", "action"),
    [
        ("Thought: It is dark.\nAction: look", "It is dark.", "look"),
        ("Action: look", "", "look"),
        ("\nThought: first\nthen\n\nAction:  Go to  desk 1 \n", "first\nthen", "Go to  desk 1"),
        ("It is dark.\nAction: look", "It is dark.", "look"),
        ("Thought: It is dark.", "It is dark.", None),
        ("Thought: Action: look", "Action: look", None),
        ("Action: look\nAction: inventory", "Action: look", None),
        ("Action: look\nObservation: You see a mug.", "Action: look\nObservation: You see a mug.", None),
        ("Thought: x\nAction:", "x", None),
        ("action: look", "action: look", None),
        ("", "", None),
    ],
)
def test_the_last_line_alone_names_the_action(message, thought, action):
    assert read_lines(message) == (thought, action)


@given(st.text())
def test_rubbish_is_read_without_an_error(text):
    for message in (text, f"Thought: {text}\nAction: {text}"):
        _, action = read_lines(message)
        assert action is None or (action and "\n" not in action)


def test_formats_and_their_options_have_fingerprints_of_their_own():
    tokenizer = qwen_like()
    made = [
        FORMATS[name](tokenizer, commands, thinking=thinking)
        for name in FORMATS
        for commands in ("full", "changes", "none")
        for thinking in ("off", "on", "template")
    ]
    assert len({agent.fingerprint for agent in made}) == len(made)
    assert all(len(agent.fingerprint) == 12 and int(agent.fingerprint, 16) >= 0 for agent in made)

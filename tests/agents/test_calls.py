"""A call is read in its own form and in no other way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_models import call
from alfworld_rl.agents import match_action
from alfworld_rl.agents.calls import read_action

JSON = '<tool_call>\n{"name": "alfworld_step", "arguments": {"action": "look"}}\n</tool_call>'


@pytest.mark.parametrize(
    "message",
    [
        call("look"),
        f"I should look around. {call('look')}",
        f"{call('look')}\n \n",
        "<tool_call><function=alfworld_step><parameter=action>look</parameter></function></tool_call>",
        JSON,
        JSON.replace("\n", ""),
        f"<think>\nhm\n</think>\n\n{JSON}",
    ],
)
def test_one_call_at_the_end_is_an_action(message):
    assert read_action(message) == "look"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "look",
        "I look around.",
        call("look") + call("look"),
        call("look") + "\n<tool_response>\nYou see a mug 1.",
        call("look") + " Done!",
        "<tool_call>" + call("look"),
        call("look") + "</tool_call>",
        "<function=alfworld_step><parameter=action>look</parameter></function>",
        call("look").replace("alfworld_step", "step"),
        call("look").replace("parameter=action", "parameter=command"),
        call("look").replace("</parameter>", "</parameter>\n<parameter=action>\nlook\n</parameter>"),
        call("look").replace("</function>", ""),
        JSON.replace("alfworld_step", "step"),
        JSON.replace('"look"', '["look"]'),
        JSON.replace('"look"', "null"),
        JSON.replace('"look"', '"look", "and": 1'),
        JSON.replace('"look"', '"inventory", "action": "look"'),
        JSON.replace('{"action": "look"}', '"look"'),
        JSON.replace("}}", "}"),
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        "<tool_call>" + "1" * 10_000 + "</tool_call>",
        "<tool_call></tool_call>",
        "</tool_call><tool_call>",
        "</tool_call>",
    ],
)
def test_anything_else_is_none(message):
    assert read_action(message) is None


@given(st.text())
def test_rubbish_is_read_without_an_error(text):
    for message in (text, call(text), f"<tool_call>{text}</tool_call>"):
        action = read_action(message)
        assert action is None or isinstance(action, str)


@pytest.mark.parametrize("piece", ["<tool_call>", " ", "\n", "<parameter=action>", '{"a":', "<function=alfworld_step>"])
def test_long_rubbish_ends_too(piece):
    # A reader that backtracks would not come back from this.
    assert read_action(f"<tool_call>{piece * 200_000}</tool_call>") is None


def test_case_and_spaces_are_forgiven_and_nothing_else():
    commands = ("go to fridge 1", "look")
    assert match_action("Go  to\tFRIDGE 1 ", commands) == "go to fridge 1"
    for other in ("go to fridge1", "goto fridge 1", "go to fridge 1.", "go to the fridge 1", "", "fridge 1", "`look`"):
        assert match_action(other, commands) is None

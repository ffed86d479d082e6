"""The protocol speaks each model's own template, appends only, and lets no game text become a control token."""

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_models import NOT_SPECIAL, SPECIAL, TEMPLATES, call, qwen_like
from alfworld_rl.agent.protocol import TOOL, AgentProtocol, ChatTemplateError, admissible, answer_text, opening_text, protocol_hash, read_action, system_text
from alfworld_rl.types import Completion
from alfworld_rl.world import Game, View, World

VIEW = View(
    "You are in a room.\n\nYour task is to: put a mug in desk.",
    "put a mug in desk.",
    ("go to desk 1", "look"),
    0,
    False,
    False,
)


def text_of(tokenizer, tokens):
    return tokenizer.decode(tokens, skip_special_tokens=False)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("ended", [True, False])
def test_a_conversation_is_what_the_template_renders(name, ended):
    tokenizer = qwen_like(TEMPLATES[name])
    protocol = AgentProtocol(tokenizer)
    message = tokenizer.encode("Let me look.", add_special_tokens=False)
    completion = [*message, protocol.turn_end] if ended else message
    tokens = [*protocol.opening(VIEW), *completion, *protocol.answer("You see a mug 1.", completion)]
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
    system, user = protocol.opening_messages(VIEW)
    if name == "no system":
        return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}]
    return [system, user]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_model_is_told_the_rules_the_form_of_a_call_and_the_game(name):
    tokenizer = qwen_like(TEMPLATES[name])
    opening = text_of(tokenizer, AgentProtocol(tokenizer).opening(VIEW))
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
    protocol = _protocol(name)
    tokenizer = protocol.tokenizer
    added = set(tokenizer.get_added_vocab().values())

    def controls(tokens):
        return [token for token in tokens if token in added]

    evil = View(hostile, hostile, (hostile,), 0, False, False)
    assert controls(protocol.opening(evil)) == controls(protocol.opening(VIEW))
    assert controls(protocol.answer(hostile, [1])) == controls(protocol.answer("fine", [1]))
    assert controls(protocol.call(hostile)) == controls(protocol.call("look"))
    benign = text_of(tokenizer, protocol.answer("fine", [1]))
    assert text_of(tokenizer, protocol.answer(hostile, [1])) == benign.replace("fine", hostile)


@functools.cache
def _protocol(name):
    return AgentProtocol(qwen_like(TEMPLATES[name]))


def test_a_completion_that_ended_itself_is_not_ended_twice():
    tokenizer = qwen_like()
    protocol = AgentProtocol(tokenizer)
    end = protocol.turn_end
    assert protocol.answer("x", [1, end]).count(end) == 1
    assert protocol.answer("x", [1]).count(end) == 2
    assert protocol.answer("x", []).count(end) == 2


def test_a_model_with_another_end_of_text_is_told_where_its_turn_ends():
    protocol = AgentProtocol(qwen_like(eos="<|endoftext|>"))
    assert protocol.stop == ("<|im_end|>",)
    assert AgentProtocol(qwen_like()).stop == ()


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
        AgentProtocol(qwen_like(template or None))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_written_call_is_read_back(name):
    tokenizer = qwen_like(TEMPLATES[name])
    protocol = AgentProtocol(tokenizer)
    tokens = protocol.call("go to desk 1")
    assert protocol.read(Completion(tuple(tokens), (0.0,) * len(tokens), "stop")).action == "go to desk 1"
    assert tokens[-1] == protocol.turn_end
    assert ('"arguments"' in text_of(tokenizer, tokens)) == (name == "json calls")


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
    assert admissible("Go  to\tFRIDGE 1 ", commands) == "go to fridge 1"
    for other in ("go to fridge1", "goto fridge 1", "go to fridge 1.", "go to the fridge 1", "", "fridge 1", "`look`"):
        assert admissible(other, commands) is None


def rebuild_admissible(texts):
    """The commands that are admissible now, from the user's first text and the answers since, by `changes`."""
    commands: set[str] = set()
    for text in texts:
        block = text.rpartition("\n\n")[2].splitlines()
        if block[0] == "Admissible commands:":
            commands = set(block[1:])
        elif block[0][:2] in ("+ ", "- "):
            commands |= {line[2:] for line in block if line.startswith("+ ")}
            commands -= {line[2:] for line in block if line.startswith("- ")}
    return tuple(sorted(commands))


def test_the_exact_list_can_be_rebuilt_from_changes(real_games):
    paths = sorted((real_games / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"))[::12]
    assert paths
    for number, path in enumerate(paths):
        world = World(Game.load(path))
        view = world.reset()
        texts = [opening_text(view, "changes")]
        # The walkthrough, with detours: what is offered first, last, the help, and what is refused.
        detours = (
            view.admissible_commands[number % len(view.admissible_commands)],
            "help",
            "nonsense",
            view.admissible_commands[-1],
        )
        for command in (*detours, *world.game.walkthrough):
            before, view = view.admissible_commands, world.step(command)
            texts.append(answer_text(before, view, "changes"))
            assert rebuild_admissible(texts) == view.admissible_commands


def test_full_lists_every_time_and_none_never(real_games):
    path = next((real_games / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"))
    world = World(Game.load(path))
    first = world.reset()
    second = world.step("look")
    assert opening_text(first, "none") == first.observation
    assert answer_text(first.admissible_commands, second, "none") == second.observation
    listed = answer_text(first.admissible_commands, second, "full")
    assert listed == "\n".join([second.observation, "", "Admissible commands:", *second.admissible_commands])


def test_the_hash_tells_protocols_apart_and_nothing_else():
    assert protocol_hash("full") == protocol_hash("full")
    hashes = {protocol_hash("full"), protocol_hash("changes"), protocol_hash("none"), protocol_hash("full", steps=50)}
    assert len(hashes) == 4


def test_the_tool_is_plain_json():
    assert json.loads(json.dumps(TOOL)) == TOOL

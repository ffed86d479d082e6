"""The format in which an agent acts that is spoken to in messages: a service applies the chat template, unseen."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from alfworld_rl.agents.base import CommandsShown, Parsed, Rendered
from alfworld_rl.agents.calls import CALL_EXPLAINED, TOOL, called_action, read_action
from alfworld_rl.agents.texts import NOTHING_HAPPENS, answer_text, opening_text
from alfworld_rl.agents.thinking import thoughts_of, without
from alfworld_rl.agents.tool_call import protocol_hash, system_text
from alfworld_rl.types import THOUGHT_FIELDS, Completion, Message, Observation, Reply

ToolCalls = Literal["native", "text"]
"""Whether the service presents the tool and says what was called, or we explain a form of calls and read it."""


class ChatFormat:
    """The contract of `AgentFormat` in messages alone: its renderings have no tokens, and what it parses are `Reply`s.

    - tools: what to tell the service of tools.
    - send_reasoning: whether the model's earlier thoughts are sent back to it; they are always recorded.
    - asked: all else of the requests that changes what a score means; it goes into the fingerprint.

    The rules are those of `ToolCallFormat`: a message asks for an action by exactly one call of the one tool with
    exactly one argument. Calls that the service names as such are read in either way; with `tool_calls="text"` the
    service is told of no tool, so that what its own reading of calls makes of a message decides nothing.
    """

    stop: tuple[str, ...] = ()

    def __init__(
        self,
        commands: CommandsShown = "full",
        *,
        tool_calls: ToolCalls = "native",
        send_reasoning: bool = False,
        **asked: Any,
    ) -> None:
        self.commands: CommandsShown = commands
        self.name = f"chat-{tool_calls}"
        self.tools: Sequence[Mapping[str, Any]] = (TOOL,) if tool_calls == "native" else ()
        self._send_reasoning = send_reasoning
        options = {"api": "chat", "tool_calls": tool_calls, "send_reasoning": send_reasoning, "token_exact": False}
        self.fingerprint = protocol_hash(commands, **options, **asked)

    def opening(self, first: Observation) -> Rendered:
        system = system_text(self.commands)
        if not self.tools:
            system = f"{system}\n\n{CALL_EXPLAINED}"
        user = opening_text(first, self.commands)
        return Rendered((), ({"role": "system", "content": system}, {"role": "user", "content": user}))

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """A recorded conversation as it is sent."""
        return list(messages) if self._send_reasoning else [_without_thoughts(message) for message in messages]

    def parse(self, completion: Completion) -> Parsed:
        reply = _reply(completion)
        message = reply.message
        text = message["content"]
        thoughts = thoughts_of(text)
        said = without(text, thoughts)
        apart = [message[name] for name in THOUGHT_FIELDS if isinstance(message.get(name), str)]
        calls = message.get("tool_calls")
        if calls:
            action = called_action(calls)
        elif not self.tools:
            action = read_action(said)
        else:
            action = None
        thought = "\n\n".join(filter(None, [*apart[:1], *(one.text for one in thoughts)]))
        return Parsed(text, thought, action, reply.stop_reason == "length", reply.thought_tokens, message)

    def answer(self, before: Observation, after: Observation, completion: Completion) -> Rendered:
        text = answer_text(before.actions, after, self.commands)
        calls = _reply(completion).message.get("tool_calls") or []
        if not calls:
            return Rendered((), ({"role": "user", "content": text},))
        # Services demand an answer to every call; of several none was done.
        texts = [NOTHING_HAPPENS] * (len(calls) - 1) + [text]
        answers = (
            {"role": "tool", "tool_call_id": call["id"], "content": one} for call, one in zip(calls, texts, strict=True)
        )
        return Rendered((), tuple(answers))

    def write(self, action: str | None) -> tuple[int, ...]:
        """Nothing: there are no tokens to write."""
        return ()


def _without_thoughts(message: Message) -> Message:
    """The message without the fields of thoughts and without thoughts in its text, as many chat templates write it."""
    if message["role"] != "assistant":
        return message
    kept = {name: value for name, value in message.items() if name not in THOUGHT_FIELDS}
    thoughts = thoughts_of(kept["content"])
    return {**kept, "content": without(kept["content"], thoughts).lstrip()} if thoughts else kept


def _reply(completion: Completion) -> Reply:
    if not isinstance(completion, Reply):
        raise TypeError("a ChatFormat reads the replies of models that are spoken to in messages")
    return completion

"""A model behind /chat/completions."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from alfworld_rl.backends.base import SamplingError
from alfworld_rl.backends.openai.service import Service
from alfworld_rl.types import THOUGHT_FIELDS, Message, Reply, SamplingParams, Usage

SEED_BITS: Final = 31
"""Services take seeds of 64 bits, of 32 or of 31."""


class OpenAIChat:
    """See `base.ChatModel`. `extra_body`: fields of every request, to which ours yield; None leaves one of ours out."""

    def __init__(self, service: Service, model: str, extra_body: Mapping[str, Any]) -> None:
        self._service = service
        self._model = model
        self._extra_body = dict(extra_body)
        # OpenAI's reasoning models take the one name alone, and many servers the other alone.
        self._max_tokens = "max_completion_tokens" if service.official else "max_tokens"

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], params: SamplingParams
    ) -> Reply:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [_sent(message) for message in messages],
            "tools": list(tools) or None,
            self._max_tokens: params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p if params.top_p < 1 else None,
            "seed": params.seed % 2**SEED_BITS,
        }
        return read_reply(await self._service.chat(body | self._extra_body))


def read_reply(answer: Mapping[str, Any]) -> Reply:
    """The reply in an answer of /chat/completions. Raises SamplingError where there is none, or no usage."""
    match answer:
        case {"choices": [{"message": dict(message), **choice}, *_], **rest}:
            if choice.get("finish_reason") == "error":
                raise SamplingError(f"the service failed while the model wrote ({str(choice.get('error'))[:300]})")
            return Reply(
                message=_received(message),
                stop_reason="length" if choice.get("finish_reason") == "length" else "stop",
                usage=read_usage(rest),
                thought_tokens=_thought_tokens(rest),
            )
        case {"error": error}:
            raise SamplingError(f"the service answered with an error ({str(error)[:300]})")
    raise SamplingError("the service answered with something that is no chat completion")


def read_usage(answer: Mapping[str, Any]) -> Usage:
    """Raises SamplingError where the service does not say what it counted: limits and costs could not be held."""
    match answer.get("usage"):
        case {"prompt_tokens": int(prompt), "completion_tokens": int(completion), **more}:
            match more.get("prompt_tokens_details"):
                case {"cached_tokens": int(cached)}:
                    return Usage(prompt, cached, completion)
            return Usage(prompt, 0, completion)
    raise SamplingError("the service does not say how many tokens it counted (usage), so no limit and no cost can hold")


def _thought_tokens(answer: Mapping[str, Any]) -> int:
    match answer:
        case {"usage": {"completion_tokens_details": {"reasoning_tokens": int(count)}}}:
            return count
    return 0


def _received(message: Mapping[str, Any]) -> Message:
    """What is kept of a message: what the model said, called and thought, in the service's own fields."""
    kept: Message = {"role": "assistant", "content": _text(message.get("content"))}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        kept["tool_calls"] = [_received_call(call, number) for number, call in enumerate(calls)]
    return kept | {name: message[name] for name in (*THOUGHT_FIELDS, "refusal") if message.get(name)}


def _text(content: Any) -> str:
    """Content may be a list of parts, some of which are text."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _received_call(call: Any, number: int) -> dict[str, Any]:
    """A call with all that its answer and the next request need; more fields stay: some services want them back."""
    call = call if isinstance(call, dict) else {}
    function = call.get("function") if isinstance(call.get("function"), dict) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    function = {**function, "name": str(function.get("name") or ""), "arguments": arguments}
    return {**call, "id": str(call.get("id") or f"call{number:05}"), "type": "function", "function": function}


def _sent(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "content": message["content"] or None, "tool_calls": [_sent_call(call) for call in calls]}


def _sent_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Servers read the arguments of earlier calls as JSON and refuse the whole request where they are none."""
    function = call["function"]
    try:
        readable = isinstance(json.loads(function["arguments"]), dict)
    except (ValueError, RecursionError):
        readable = False
    named = {**function, "name": function["name"] or "unknown"}
    return {**call, "function": named if readable else {**named, "arguments": "{}"}}

"""What of a message is thinking, in the marks of every family that thinks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from alfworld_rl.agents.base import ChatTemplateError

Thinking = Literal["on", "off", "template"]
"""Whether the model is asked to think before it acts; `template` leaves that to the chat template's own default."""

THOUGHT_MARKS: Final = (
    ("<think>", "</think>"),  # Qwen3 and later, DeepSeek, SmolLM3, GLM, Nemotron
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss (harmony)
    ("[THINK]", "[/THINK]"),  # Magistral and later Mistral models
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
)
_CLOSES: Final = dict(THOUGHT_MARKS)
_OPENS: Final = re.compile("|".join(map(re.escape, _CLOSES)))


@dataclass(frozen=True, slots=True)
class Thought:
    """A thought in a message: where it starts and ends (exclusive), marks and all, and what it says."""

    start: int
    end: int
    text: str


def thoughts_of(message: str, *, opened: str = "") -> list[Thought]:
    """The thoughts in `message`, in order.

    `opened` is the mark that the prompt ended with, if it opened a thought for the model. A thought that is not closed
    reaches to the end. A closing mark without an opening one closes a thought that began with the message: some models
    write it so.
    """
    thoughts: list[Thought] = []
    start = inside = 0
    closes = _CLOSES.get(opened) or _closed_unopened(message)
    while True:
        if closes is not None:
            stop = message.find(closes, inside)
            end = len(message) if stop < 0 else stop + len(closes)
            thoughts.append(Thought(start, end, message[inside : len(message) if stop < 0 else stop].strip()))
            inside = end
        found = _OPENS.search(message, inside)
        if found is None:
            return thoughts
        start, inside, closes = found.start(), found.end(), _CLOSES[found[0]]


def without(message: str, thoughts: Sequence[Thought]) -> str:
    """What is left of `message` without its thoughts."""
    starts = [0, *(thought.end for thought in thoughts)]
    ends = [*(thought.start for thought in thoughts), len(message)]
    return "".join(message[start:end] for start, end in zip(starts, ends, strict=True))


def split_thought(message: str) -> tuple[str, str]:
    """What `message` says in its thoughts, and what is left of it without them."""
    thoughts = thoughts_of(message)
    return said_in(thoughts), without(message, thoughts)


def said_in(thoughts: Sequence[Thought]) -> str:
    return "\n\n".join(thought.text for thought in thoughts if thought.text)


def _closed_unopened(message: str) -> str | None:
    for opens, closes in THOUGHT_MARKS:
        # <|end|> ends any message of gpt-oss, and a tokenizer of another family may have it, too.
        if closes in message and closes != "<|end|>" and opens not in message[: message.index(closes)]:
            return closes
    return None


def open_mark(prompt: str) -> str:
    """The mark of the thought that `prompt` leaves open; empty if it leaves none."""
    for opens, closes in THOUGHT_MARKS:
        if prompt.rfind(opens) > prompt.rfind(closes):
            return opens
    return ""


def closing(opened: str) -> str:
    """What closes a thought without a word in it, after a prompt that opened it; empty where none is open."""
    return f"\n{_CLOSES[opened]}\n\n" if opened else ""


def without_thoughts(text: str) -> str:
    """A piece of a prompt without thoughts, whole or only opened, and without the space around them."""
    mark = open_mark(text)
    if mark:
        text = text[: text.rindex(mark)]
    return without(text, thoughts_of(text)).rstrip()


# Qwen, SmolLM3, GLM and Gemma know the first, DeepSeek and Granite the second, gpt-oss and Mistral the third.
_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning_effort")


def switches(thinking: Thinking, template: str) -> dict[str, Any]:
    """The arguments by which the chat template of this text is told whether to think."""
    if thinking == "template":
        return {}
    options: dict[str, Any] = dict.fromkeys(_SWITCHES[:2], thinking == "on")
    if "reasoning_effort" in template and "enable_thinking" not in template:
        # gpt-oss cannot be told not to think; Mistral's later models can.
        least = "low" if "<|channel|>" in template else "none"
        options["reasoning_effort"] = "high" if thinking == "on" else least
    return options


def require_thoughts(thinking: Thinking, template: str) -> None:
    """Raises ChatTemplateError if the model is to think and the chat template of this text knows no thoughts."""
    words = (*(mark for marks in THOUGHT_MARKS for mark in marks if mark != "<|end|>"), *_SWITCHES)
    if thinking == "on" and template and not any(word in template for word in words):
        raise ChatTemplateError("the model's chat template knows no thinking; leave --thinking at off or template")

"""What of a message is thinking, in the marks of every family that thinks."""

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


def split_thought(message: str, *, opened: str = "") -> tuple[str, str]:
    """The thoughts of `message`, and what is left of it without them.

    `opened` is the mark that the prompt ended with, if it opened a thought for the model. A thought that is not closed
    reaches to the end. A closing mark without an opening one closes a thought that began with the message: some models
    write it so.
    """
    thoughts: list[str] = []
    kept: list[str] = []
    closes = dict(THOUGHT_MARKS).get(opened)
    if closes is None:
        closes = _closed_unopened(message)
    while True:
        if closes is not None:
            thought, _, message = message.partition(closes)
            thoughts.append(thought.strip())
        found = [(message.index(opens), opens, ends) for opens, ends in THOUGHT_MARKS if opens in message]
        if not found:
            break
        start, opens, closes = min(found)
        kept.append(message[:start])
        message = message[start + len(opens) :]
    return "\n\n".join(filter(None, thoughts)), "".join([*kept, message])


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
    return f"\n{dict(THOUGHT_MARKS)[opened]}\n\n" if opened else ""


def without_thoughts(text: str) -> str:
    """A piece of a prompt without thoughts, whole or only opened, and without the space around them."""
    mark = open_mark(text)
    if mark:
        text = text[: text.rindex(mark)]
    return split_thought(text)[1].rstrip()


def switches(thinking: Thinking, template: str) -> dict[str, Any]:
    """The arguments by which the chat template of this text is told whether to think."""
    if thinking == "template":
        return {}
    # Qwen, SmolLM3, GLM and Gemma know the first, DeepSeek and Granite the second.
    options: dict[str, Any] = dict.fromkeys(("enable_thinking", "thinking"), thinking == "on")
    if "reasoning_effort" in template and "enable_thinking" not in template:
        # gpt-oss cannot be told not to think; Mistral's later models can.
        least = "low" if "<|channel|>" in template else "none"
        options["reasoning_effort"] = "high" if thinking == "on" else least
    return options


def require_thoughts(thinking: Thinking, template: str) -> None:
    """Raises ChatTemplateError if the model is to think and its chat template knows no thoughts."""
    if thinking == "on" and template and not any(opens in template or closes in template for opens, closes in _SPELLED):
        raise ChatTemplateError("the model's chat template knows no thinking; leave --thinking at off or template")


# How templates spell the marks: the channel's name of gpt-oss is an argument.
_SPELLED: Final = (*THOUGHT_MARKS, ("<|channel|>", "<|channel|>"))

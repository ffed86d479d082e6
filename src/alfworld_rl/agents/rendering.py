"""A tokenizer's chat template as a function of messages."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Final

from alfworld_rl.agents.base import ChatTemplateError
from alfworld_rl.agents.calls import TOOL
from alfworld_rl.agents.thinking import Thinking, switches
from alfworld_rl.types import Message, Tokenizer

Render = Callable[[Sequence[Message]], str]


def renderer(tokenizer: Tokenizer, *, tools: bool, thinking: Thinking) -> Render:
    """The tokenizer's chat template as a function of messages; raises ChatTemplateError where it raises anything."""

    template = source(tokenizer)
    options = switches(thinking, template)
    if "strftime_now" in template:
        options["chat_template"] = _stopped_clock(template)

    def render(messages: Sequence[Message]) -> str:
        try:
            text = tokenizer.apply_chat_template(
                list(messages),
                tools=[TOOL] if tools else None,
                tokenize=False,
                add_generation_prompt=True,
                **options,
            )
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ChatTemplateError(
                f"the model's tokenizer has no chat template that works ({reason[:200]}); use a chat model"
            ) from error
        if not isinstance(text, str):
            raise TypeError("apply_chat_template(tokenize=False) gives no text")
        return text

    return render


def source(tokenizer: Tokenizer) -> str:
    """The text of the tokenizer's chat template; empty where it keeps it to itself, or has several by name."""
    template = getattr(tokenizer, "chat_template", None)
    return template if isinstance(template, str) else ""


# Some templates (Llama 3.2, gpt-oss, SmolLM3) tell the model what day it is. A score must not depend on that; the day
# is the one that Llama's templates name where they have no clock.
_THE_DAY: Final = date(2024, 7, 26)


def _stopped_clock(template: str) -> str:
    """`template` with its clock stopped: transformers gives it as a function of a format, which a macro can hide."""
    formats = re.findall(r"strftime_now\(\s*['\"](.+?)['\"]", template)
    days = json.dumps({form: _THE_DAY.strftime(form) for form in formats})
    return f"{{% macro strftime_now(form) %}}{{{{ {days}[form] }}}}{{% endmacro %}}{template}"

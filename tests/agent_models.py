"""Small tokenizers and scripted samplers in the shape of real ones, for the tests of agent, rollout and learning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from alfworld_rl.types import Completion, Sampled, SamplingParams, Usage

_TOOLS = (
    "{%- if tools %}{{ '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{%- endif %}"
    "{{ '# Tools\\n\\n<tools>' }}{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{%- endfor %}"
    "{{ '\\n</tools>" + "EXPLANATION<|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
    "{%- endif %}"
)
_TURNS = (
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}{{ '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + message.content | trim }}"
    "{%- for entry in message.tool_calls or [] %}{%- set call = entry.function %}CALL{%- endfor %}"
    "{{ '<|im_end|>\\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}"
    "{{ '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}"
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{%- endif %}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
_JSON_CALL = (
    '{{ \'<tool_call>\\n{"name": "\' + call.name + \'", "arguments": \' }}'
    "{{ (call.arguments | tojson) + '}\\n</tool_call>' }}"
)
_XML_CALL = (
    "{{ '<tool_call>\\n<function=' + call.name + '>\\n' }}{%- for key, value in call.arguments.items() %}"
    "{{ '<parameter=' + key + '>\\n' + value + '\\n</parameter>\\n' }}{%- endfor %}{{ '</function>\\n</tool_call>' }}"
)
TEMPLATES = {
    "json calls": _TOOLS.replace("EXPLANATION", "") + _TURNS.replace("CALL", _JSON_CALL),
    "xml calls": _TOOLS.replace("EXPLANATION", "\\n\\nCall like <tool_call>...</tool_call>.")
    + _TURNS.replace("CALL", _XML_CALL),
    "no tools": "{%- for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}",
    "no system": "{%- for message in messages %}"
    "{%- if message.role not in ['user', 'assistant'] %}{{ raise_exception('no role ' + message.role) }}{%- endif %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}",
}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
#: Found before tokenization like the special ones, but not special: as in Qwen's tokenizers.
NOT_SPECIAL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def qwen_like(template: str = TEMPLATES["xml calls"], eos: str = "<|im_end|>") -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with Qwen's added tokens."""
    return byte_level(template, SPECIAL, NOT_SPECIAL, eos=eos, pad_token="<|endoftext|>")


def byte_level(
    template: str, special: Sequence[str], not_special: Sequence[str] = (), *, eos: str, **options: str
) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and of the added tokens of a family of models."""
    alphabet = {symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in not_special])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos,
        clean_up_tokenization_spaces=False,
        chat_template=template,
        **options,
    )


def call(action: str) -> str:
    """A message in Qwen3.5's native form, spelled out here so that a change of ours does not go unnoticed."""
    return (
        f"<tool_call>\n<function=alfworld_step>\n<parameter=action>\n{action}\n</parameter>\n</function>\n</tool_call>"
    )


@dataclass
class Request:
    prompt: list[int]
    n: int
    params: SamplingParams
    completions: list[Completion] = field(default_factory=list)

    @property
    def max_tokens(self) -> int:
        return self.params.max_tokens

    @property
    def seed(self) -> int:
        return self.params.seed


class ScriptedSampler:
    """Answers with what `message(text of the prompt, number of the completion)` says; an exception is raised.

    Logprobs are different for every token ever sampled, so that none can be mistaken for another. A subclass that has
    weights writes by `write` and `token_logprobs` (see scripted_backend).
    """

    def __init__(self, tokenizer, message: Callable[[str, int], str | Completion | Exception]) -> None:
        self.tokenizer = tokenizer
        self.requests: list[Request] = []
        self._message = message
        self._sampled = 0

    async def sample(self, prompt, params: SamplingParams, *, n=1) -> Sampled:
        request = Request(list(prompt), n, params)
        self.requests.append(request)
        text = self.tokenizer.decode(request.prompt, skip_special_tokens=False)
        for number in range(n):
            message = self.write(text, number, params)
            if isinstance(message, Exception):
                raise message
            if isinstance(message, str):
                tokens = [*self.tokenizer.encode(message, add_special_tokens=False), self.tokenizer.eos_token_id]
                reason = "stop" if len(tokens) <= params.max_tokens else "length"
                tokens = tokens[: params.max_tokens]
                message = Completion(tuple(tokens), self.token_logprobs(len(tokens)), reason)
            request.completions.append(message)
        sampled = sum(len(completion.tokens) for completion in request.completions)
        return Sampled(tuple(request.completions), Usage(prefill=len(request.prompt), sampled=sampled))

    async def logprobs(self, tokens: Sequence[int]) -> list[float]:
        return [0.0] + [-1.0] * (len(tokens) - 1)

    def write(self, text: str, number: int, params: SamplingParams) -> str | Completion | Exception:
        return self._message(text, number)

    def token_logprobs(self, count: int) -> tuple[float, ...]:
        start, self._sampled = self._sampled, self._sampled + count
        return tuple(-(start + index + 1) / 2**12 for index in range(count))

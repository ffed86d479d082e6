"""The chat templates of families of models, rebuilt small: what matters of each is where its texts stand and its marks.

`call` is a call of the tool with the action look, spelled out as models of the family write it; `form` is the name that
docs/formats.md has for the way in which the tool-call format reads the family.
"""

from dataclasses import dataclass

from agent_models import byte_level


@dataclass(frozen=True)
class Family:
    name: str
    template: str
    special: tuple[str, ...]
    eos: str
    form: str
    call: str
    stop: tuple[str, ...] = ()
    not_special: tuple[str, ...] = ()
    system_role: bool = True
    answer_role: str = "tool"
    thought: tuple[str, str] | None = None

    def tokenizer(self):
        # transformers drops a line's end that directly follows a block.
        template = self.template.replace("%}\n", "%}{{ '\n' }}")
        return byte_level(template, self.special, self.not_special, eos=self.eos)


EXPLAINED = "<tool_call>\n<function=alfworld_step>\n<parameter=action>\nlook\n</parameter>\n</function>\n</tool_call>"
JSON = '<tool_call>\n{"name": "alfworld_step", "arguments": {"action": "look"}}\n</tool_call>'
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML_EXTRA = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# --- Qwen and those who write as it does ---------------------------------------------------------------------------

_QWEN_SYSTEM = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}"
    "{% endif %}"
    "# Tools\n\nThe functions are in <tools></tools>:\n<tools>{% for tool in tools %}{{ '\n' + (tool | tojson) }}"
    "{% endfor %}\n</tools>\n\nTEACHING<|im_end|>\n"
    "{% elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{% set ns = namespace(last_query=0) %}"
    "{% for message in messages %}{% if message.role == 'user' %}{% set ns.last_query = loop.index0 %}{% endif %}"
    "{% endfor %}"
)
_QWEN_TURNS = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}<|im_start|>user\n{{ message.content }}<|im_end|>\n"
    "{% elif message.role == 'assistant' %}<|im_start|>assistant\n"
    "{% set content = CONTENT %}THOUGHT{{ content }}"
    "{% for entry in message.tool_calls or [] %}{% set call = entry.function %}"
    "{% if content or not loop.first %}{{ '\n' }}{% endif %}CALL{% endfor %}<|im_end|>\n"
    "{% elif message.role == 'tool' %}"
    "{% if loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}\n<tool_response>\n{{ message.content }}\n"
    "</tool_response>{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nPROMPT{% endif %}"
)
_WRITE_JSON = '<tool_call>\n{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}\n</tool_call>'
_WRITE_XML = (
    "<tool_call>\n<function={{ call.name }}>\n{% for key, value in call.arguments.items() %}<parameter={{ key }}>\n"
    "{{ value }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)
_TEACH_JSON = 'Answer with JSON in tags:\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call>'
_TEACH_XML = "Answer so:\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>"
_EMPTY_IF_OFF = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
_OPEN_UNLESS_OFF = (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}"
)
_RECENT_THOUGHT = (
    "{% if loop.index0 > ns.last_query %}<think>\n{{ (message.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
)


def _chatml(name, teaching, writing, prompt="", thought_before="", **options):
    template = (_QWEN_SYSTEM + _QWEN_TURNS).replace("TEACHING", teaching)
    said = r"message.content.split('</think>')[-1].lstrip('\n')" if "thought" in options else "message.content"
    template = template.replace("CONTENT", said)
    template = template.replace("CALL", writing).replace("PROMPT", prompt).replace("THOUGHT", thought_before)
    return Family(name, template, CHATML, "<|im_end|>", not_special=CHATML_EXTRA, **options)


_GLM_TURNS = (
    "[gMASK]<sop>{% if tools %}<|system|>\n# Tools\n<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "</tools>\nCall them so:\n<tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}<|user|>\n{{ message.content }}"
    "{% elif message.role == 'assistant' %}<|assistant|>\n<think></think>"
    "{% if message.content.strip() %}{{ '\n' + message.content.strip() }}{% endif %}"
    "{% for entry in message.tool_calls or [] %}{% set call = entry.function %}\n<tool_call>{{ call.name }}\n"
    "{% for key, value in call.arguments.items() %}<arg_key>{{ key }}</arg_key>\n<arg_value>{{ value }}</arg_value>\n"
    "{% endfor %}</tool_call>{% endfor %}"
    "{% elif message.role == 'tool' %}{% if loop.previtem.role != 'tool' %}<|observation|>{% endif %}"
    "\n<tool_response>\n{{ message.content }}\n</tool_response>"
    "{% elif message.role == 'system' %}<|system|>\n{{ message.content }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}\n<think></think>{% endif %}{% endif %}"
)

# --- Llama ---------------------------------------------------------------------------------------------------------

_LLAMA_3 = (
    "<|begin_of_text|>{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_LLAMA_31 = (
    "{% if not date_string is defined %}{% set date_string = DATE %}{% endif %}"
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "{% if tools is not none %}Environment: ipython\n{% endif %}Cutting Knowledge Date: December 2023\n"
    "Today Date: {{ date_string }}\n\n{{ system }}<|eot_id|>"
    "{% if tools is not none %}{% set first = messages[0].content | trim %}{% set messages = messages[1:] %}"
    "<|start_header_id|>user<|end_header_id|>\n\nAnswer with JSON for a function call, "
    '{{ \'{"name": function name, "parameters": dictionary}\' }}.\n\n'
    "{% for tool in tools %}{{ tool | tojson(indent=4) }}\n\n{% endfor %}{{ first }}<|eot_id|>{% endif %}"
    "{% for message in messages %}"
    "{% if message.role in ('tool', 'ipython') %}<|start_header_id|>ipython<|end_header_id|>\n\n"
    "{% if message.content is mapping or message.content is iterable %}{{ message.content | tojson }}"
    "{% else %}{{ message.content }}{% endif %}<|eot_id|>"
    "{% elif message.tool_calls %}{% set call = message.tool_calls[0].function %}"
    '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "{{ call.name }}", '
    '"parameters": {{ call.arguments | tojson }}}<|eot_id|>'
    "{% else %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>"
    "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>")

# --- Gemma ---------------------------------------------------------------------------------------------------------

_GEMMA_2 = (
    "<bos>{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}"
    "{% endif %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n{{ message.content | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_GEMMA_3 = (
    "<bos>{% if messages[0].role == 'system' %}{% set before = messages[0].content + '\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set before = '' %}{% endif %}{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}"
    "{% endif %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ (before if loop.first else '') + (message.content | trim) }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_GEMMA_4 = (
    "{% set quote = '<|\"|>' %}<bos>"
    "{% if enable_thinking or tools or messages[0].role == 'system' %}<|turn>system\n"
    "{% if enable_thinking %}<|think|>\n{% endif %}"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set messages = messages[1:] %}{% endif %}"
    "{% for tool in tools or [] %}<|tool>declaration:{{ tool.function.name }}{description:"
    "{{ quote + tool.function.description + quote + '}' }}<tool|>{% endfor %}<turn|>\n{% endif %}"
    "{% set ns = namespace(before=None) %}"
    "{% for message in messages %}{% if message.role != 'tool' %}"
    "{% if not (message.role == 'assistant' and ns.before == 'assistant') %}"
    "<|turn>{{ 'model' if message.role == 'assistant' else message.role }}\n{% endif %}"
    "{% for entry in message.tool_calls or [] %}<|tool_call>call:{{ entry.function.name + '{' }}"
    "{% for key, value in entry.function.arguments | dictsort %}{{ key + ':' + quote + value + quote }}{% endfor %}}"
    "<tool_call|>{% endfor %}"
    "{% set answered = namespace(some=false) %}"
    "{% if message.tool_calls and loop.nextitem is defined and loop.nextitem.role == 'tool' %}"
    "<|tool_response>response:{{ loop.nextitem.name or 'unknown' }}{value:{{ quote + loop.nextitem.content + quote }}}"
    "<tool_response|>{% set answered.some = true %}{% endif %}"
    "{{- message.content | trim }}"
    "{% if not answered.some %}{{ '<|tool_response>' if message.tool_calls else '<turn|>\n' }}{% endif %}"
    "{% set ns.before = message.role %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role == 'tool' %}"
    "{% if enable_thinking %}<|channel>thought\n{% endif %}"
    "{% elif add_generation_prompt and not messages[-1].tool_calls %}<|turn>model\n"
    "{% endif %}"
)
_GEMMA_4_MARKS = (
    "<bos>", "<eos>", "<|turn>", "<turn|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
    "<tool_response|>", '<|"|>', "<|think|>", "<|channel>", "<channel|>",
)  # fmt: skip

# --- others --------------------------------------------------------------------------------------------------------

_LFM2 = (
    "<|startoftext|>{% set ns = namespace(system='') %}"
    "{% if messages[0].role == 'system' %}{% set ns.system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% endif %}"
    "{% if tools %}"
    "{% set ns.system = (ns.system + '\n' if ns.system else '') + 'List of tools: <|tool_list_start|>[' %}"
    "{% for tool in tools %}{% set ns.system = ns.system + (tool | tojson) %}{% endfor %}"
    "{% set ns.system = ns.system + ']<|tool_list_end|>' %}{% endif %}"
    "{% if ns.system %}<|im_start|>system\n{{ ns.system }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'tool' %}<|tool_response_start|>{{ message.content }}<|tool_response_end|>"
    "{% else %}{{ message.content }}CALLS{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LFM2_CALLS = (
    "{% for entry in message.tool_calls or [] %}<|tool_call_start|>[{{ entry.function.name }}("
    "{% for key, value in entry.function.arguments.items() %}{{ key }}={{ value | tojson }}{% endfor %})]"
    "<|tool_call_end|>{% endfor %}"
)
_LFM2_MARKS = (
    "<|startoftext|>", "<|im_start|>", "<|im_end|>", "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_call_start|>",
    "<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>",
)  # fmt: skip

_HARMONY = (
    "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "<|start|>system<|message|>You are a model.\nCurrent date: {{ strftime_now('%Y-%m-%d') }}\n\n"
    "Reasoning: {{ reasoning_effort }}\n\n# Valid channels: analysis, commentary, final.<|end|>"
    "{% if messages[0].role == 'system' %}{% set told = messages[0].content %}{% set messages = messages[1:] %}"
    "{% endif %}"
    "{% if told or tools %}<|start|>developer<|message|>{% if told %}# Instructions\n\n{{ told }}\n\n{% endif %}"
    "{% if tools %}# Tools\n\n## functions\n\nnamespace functions {\n{% for tool in tools %}"
    "// {{ tool.function.description }}\ntype {{ tool.function.name }} = (_: { action: string }) => any;\n{% endfor %}}"
    "{% endif %}<|end|>{% endif %}"
    "{% set last = namespace(call=none) %}"
    "{% for message in messages %}"
    "{% if message.role == 'assistant' and message.tool_calls %}{% set last.call = message.tool_calls[0].function %}"
    "<|start|>assistant to=functions.{{ last.call.name }}<|channel|>commentary json<|message|>"
    "{{ last.call.arguments | tojson }}<|call|>"
    "{% elif message.role == 'assistant' %}{% set last.call = none %}"
    "<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>"
    "{% elif message.role == 'tool' %}"
    "{% if last.call is none %}{{ raise_exception('a tool message without a call before it') }}{% endif %}"
    "<|start|>functions.{{ last.call.name }} to=assistant<|channel|>commentary<|message|>"
    "{{ message.content | tojson }}<|end|>"
    "{% else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
_HARMONY_MARKS = (
    "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>", "<|endoftext|>"
)  # fmt: skip

_MISTRAL_NEMO = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% endif %}"
    "{% set last = namespace(user=0) %}{% for message in messages %}{% if message.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
    "<s>{% for message in messages %}"
    "{% if message.role == 'user' %}"
    "{% if tools and loop.index0 == last.user %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST]{% if system and loop.last %}{{ system + '\n\n' }}{% endif %}{{ message.content }}[/INST]"
    "{% elif message.tool_calls %}[TOOL_CALLS]{{ message.tool_calls[0].function | tojson }}</s>"
    "{% elif message.role == 'assistant' %}{{ message.content }}</s>"
    "{% elif message.role == 'tool' %}[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]"
    "{% else %}{{ raise_exception('no role ' + message.role) }}{% endif %}{% endfor %}"
)
_MISTRAL_SMALL = _MISTRAL_NEMO.replace(
    "<s>{% for", "<s>{% if system %}[SYSTEM_PROMPT]{{ system }}[/SYSTEM_PROMPT]{% endif %}{% for", 1
).replace("{% if system and loop.last %}{{ system + '\n\n' }}{% endif %}", "")
_MISTRAL_MARKS = (
    "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
)  # fmt: skip

_PHI_3 = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|endoftext|>{% endif %}"
)
_PHI_4 = (
    "{% for message in messages %}<|im_start|>{{ message.role }}<|im_sep|>{{ message.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"
)

_DEEPSEEK = (
    "<｜begin▁of▁sentence｜>{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content }}"
    "{% elif message.role == 'user' %}<｜User｜>{{ message.content }}"
    "{% elif message.role == 'assistant' and message.content is not none %}<｜Assistant｜>MARK"
    "{{ message.content.split('</think>') | last }}<｜end▁of▁sentence｜>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>PROMPT{% endif %}"
)
_DEEPSEEK_MARKS = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")

_SMOLLM3 = (
    "{% if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}"
    "<|im_start|>system\n## Metadata\n\nToday Date: {{ strftime_now('%d %B %Y') }}\n"
    "Reasoning Mode: {{ '/think' if enable_thinking else '/no_think' }}\n\n## Custom Instructions\n\n"
    "{% if messages[0].role == 'system' %}{{ '\n' + messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
    "{% if tools %}\n\n### Tools\n<tools>\n{% for tool in tools %}{{ tool | string }}\n{% endfor %}</tools>\n"
    'Answer with <tool_call>\n{{ \'{"name": NAME, "arguments": OBJECT}\' }}\n</tool_call>{% endif %}<|im_end|>\n'
    "{% for message in messages %}"
    "{% if message.role == 'user' %}<|im_start|>user\n{{ message.content }}<|im_end|>\n"
    "{% elif message.role == 'assistant' %}<|im_start|>assistant\n"
    "{{ '' if enable_thinking else '<think>\n\n</think>\n' }}{{ message.content.lstrip('\n') }}"
    "{% for entry in message.tool_calls or [] %}{% set call = entry.function %}CALL{% endfor %}<|im_end|>\n"
    "{% elif message.role == 'tool' %}<|im_start|>user\n{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{{ '' if enable_thinking else '<think>\n\n</think>\n' }}{% endif %}"
).replace("CALL", _WRITE_JSON)


_THINK = ("<think>", "</think>")


def _deepseek(name, mark, prompt):
    template = _DEEPSEEK.replace("MARK", mark).replace("PROMPT", prompt)
    return Family(
        name,
        template,
        _DEEPSEEK_MARKS,
        "<｜end▁of▁sentence｜>",
        "explained",
        EXPLAINED,
        not_special=_THINK,
        answer_role="user",
        thought=_THINK,
    )


FAMILIES = [
    _chatml("Qwen 2.5", _TEACH_JSON, _WRITE_JSON, form="tool_call", call=JSON),
    _chatml("Qwen 3", _TEACH_JSON, _WRITE_JSON, _EMPTY_IF_OFF, form="tool_call", call=JSON, thought=_THINK),
    _chatml(
        "Qwen 3.5",
        _TEACH_XML,
        _WRITE_XML,
        _OPEN_UNLESS_OFF,
        _RECENT_THOUGHT,
        form="tool_call",
        call=EXPLAINED,
        thought=_THINK,
    ),
    Family(
        "GLM 4.5",
        _GLM_TURNS,
        ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        "<|endoftext|>",
        "glm",
        "<tool_call>alfworld_step\n<arg_key>action</arg_key>\n<arg_value>look</arg_value>\n</tool_call>",
        stop=("<|observation|>", "<|user|>"),
        not_special=(*CHATML_EXTRA, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        thought=_THINK,
    ),
    Family("Llama 3", _LLAMA_3, _LLAMA, "<|eot_id|>", "explained", EXPLAINED, answer_role="user"),
    Family(
        "Llama 3.1",
        _LLAMA_31.replace("DATE", "'26 Jul 2024'"),
        _LLAMA,
        "<|eot_id|>",
        "llama",
        '{"name": "alfworld_step", "parameters": {"action": "look"}}',
    ),
    Family(
        "Llama 3.2",
        _LLAMA_31.replace("DATE", "strftime_now('%d %b %Y')"),
        _LLAMA,
        "<|eot_id|>",
        "llama",
        '{"type": "function", "name": "alfworld_step", "parameters": {"action": "look"}}',
    ),
    Family(
        "Gemma 2",
        _GEMMA_2,
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        "explained",
        EXPLAINED,
        stop=("<end_of_turn>",),
        system_role=False,
        answer_role="user",
    ),
    Family(
        "Gemma 3",
        _GEMMA_3,
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        "explained",
        EXPLAINED,
        stop=("<end_of_turn>",),
        answer_role="user",
    ),
    Family(
        "Gemma 4",
        _GEMMA_4,
        _GEMMA_4_MARKS,
        "<eos>",
        "gemma",
        '<|tool_call>call:alfworld_step{action:<|"|>look<|"|>}<tool_call|>',
        stop=("<|tool_response>", "<turn|>"),
        thought=("<|channel>thought", "<channel|>"),
    ),
    Family(
        "LFM2",
        _LFM2.replace("CALLS", ""),
        _LFM2_MARKS,
        "<|im_end|>",
        "explained",
        EXPLAINED,
        answer_role="user",
    ),
    Family(
        "LFM2.5",
        _LFM2.replace("CALLS", _LFM2_CALLS),
        _LFM2_MARKS,
        "<|im_end|>",
        "lfm2",
        "<|tool_call_start|>[alfworld_step(action='look')]<|tool_call_end|>",
    ),
    Family(
        "gpt-oss",
        _HARMONY,
        _HARMONY_MARKS,
        "<|return|>",
        "harmony",
        '<|channel|>commentary to=functions.alfworld_step <|constrain|>json<|message|>{"action": "look"}',
        stop=("<|call|>",),
        thought=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    ),
    Family(
        "Mistral Nemo",
        _MISTRAL_NEMO,
        _MISTRAL_MARKS,
        "</s>",
        "explained",
        EXPLAINED,
        system_role=False,
        answer_role="user",
    ),
    Family("Mistral Small", _MISTRAL_SMALL, _MISTRAL_MARKS, "</s>", "explained", EXPLAINED, answer_role="user"),
    Family(
        "Phi-3",
        _PHI_3,
        ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        "<|endoftext|>",
        "explained",
        EXPLAINED,
        stop=("<|end|>",),
        answer_role="user",
    ),
    Family(
        "Phi-4",
        _PHI_4,
        ("<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        "<|im_end|>",
        "explained",
        EXPLAINED,
        answer_role="user",
    ),
    _deepseek("DeepSeek R1", "", "<think>\n"),
    _deepseek("DeepSeek V3.1", "</think>", "{% if thinking %}<think>{% else %}</think>{% endif %}"),
    Family(
        "SmolLM3",
        _SMOLLM3,
        CHATML,
        "<|im_end|>",
        "tool_call",
        JSON,
        not_special=CHATML_EXTRA,
        thought=_THINK,
    ),
]
BY_NAME = {family.name: family for family in FAMILIES}

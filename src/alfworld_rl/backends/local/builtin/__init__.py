"""The policies that come with the package: a small Qwen3-style model, its tokenizer and its chat template.

`alfworld-tiny` plays; `alfworld-tiny-start` is an earlier checkpoint of the same training, left weak on purpose so
that the quick start has something to improve. How both were made, from nothing but games of the train split, is
told in docs/built-in-policy.md. Each is a folder that transformers loads like any other model, without a network.
"""

from pathlib import Path

from alfworld_rl.errors import UsageError

_HERE = Path(__file__).parent
NAMES = ("alfworld-tiny", "alfworld-tiny-start")


def path(name: str) -> Path:
    """The folder of the built-in policy `name`. Raises UsageError with the names there are."""
    if name not in NAMES:
        raise UsageError(f"{name!r} is not a built-in policy; there are {' and '.join(NAMES)}")
    return _HERE / name

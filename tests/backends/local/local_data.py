"""Building training data out of completions, as the learner does."""

from collections.abc import Sequence

import numpy as np

from alfworld_rl.backends.protocol import Completion, Datum


def datum(prompt: Sequence[int], completion: Completion, advantage: float) -> Datum:
    return datum_of(prompt, completion.tokens, completion.logprobs, [advantage] * len(completion.tokens))


def datum_of(
    prompt: Sequence[int], written: Sequence[int], logprobs: Sequence[float], advantages: Sequence[float]
) -> Datum:
    row = [*prompt, *written]
    unmasked = len(prompt) - 1
    return Datum(
        np.array(row[:-1], dtype=np.int32),
        np.array(row[1:], dtype=np.int32),
        np.array([False] * unmasked + [True] * len(written)),
        np.array([0.0] * unmasked + [*logprobs], dtype=np.float32),
        np.array([0.0] * unmasked + [*advantages], dtype=np.float32),
    )

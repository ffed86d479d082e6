"""What `doctor` says of a server: whether it answers, what it has, and whether the SDK and it understand each other."""

import asyncio
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from alfworld_rl.backends.tinker.backend import TinkerBackend
from alfworld_rl.backends.tinker.service import FIRST_ANSWER_S, Connection
from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.types import SamplingParams

FITS = "0.25"  # the SDK that SkyRL 0.4.0 understands: each sample of 0.26 to 0.38 fails against it


def check(base_url: str | None) -> Iterator[tuple[bool, str, str]]:
    """Whether it is good, what it is about, what was found: a line each, until one is not good."""
    try:
        installed = version("tinker")
    except PackageNotFoundError:
        yield False, "tinker", "the SDK is not installed"
        return
    fits = installed.startswith(f"{FITS}.")
    yield fits, "tinker", f"{installed}" + ("" if fits else f"; servers of SkyRL 0.4.0 need {FITS}")
    try:
        connection = Connection.find(base_url)
    except AlfworldRLError as error:
        yield False, "server", str(error)
        return
    silence = connection.silence(FIRST_ANSWER_S)
    yield not silence, "server", f"{connection.url} " + (f"does not answer ({silence})" if silence else "answers")
    if silence:
        return
    try:
        backend = TinkerBackend(base_url)
        try:
            models = backend.models()
            yield bool(models), "base models", ", ".join(models) or "none"
            if models and not connection.hosted:  # there it would cost something
                yield True, "sampling", _sampled(backend, next(iter(models)))
        finally:
            backend.close()
    except AlfworldRLError as error:
        yield False, "session", str(error)


def _sampled(backend: TinkerBackend, model: str) -> str:
    """One token, to see that the engine behind the server is up and that its answers can be read."""
    started = time.monotonic()
    sampler = backend.sampler(model)
    prompt = sampler.tokenizer.encode("Hello", add_special_tokens=False)
    asyncio.run(sampler.sample(prompt, SamplingParams(max_tokens=1)))
    return f"works; a token took {time.monotonic() - started:.1f} s, the first of its kind the longest"

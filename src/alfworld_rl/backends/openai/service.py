"""One service: its address and key, requests that the SDK repeats where that helps, and errors that say what to do.

The SDK (openai 2.54; its version 3 goes with no verifiers yet) repeats requests after 408, 409, 429, 5xx, timeouts and
cut connections, waiting as long as Retry-After says (up to two minutes), else 0.5 s, doubled up to 8 s. What is left is
an error of ours.
"""

import asyncio
import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

from alfworld_rl.backends.base import BackendError, BalanceError, BaseModelError, SamplingError
from alfworld_rl.errors import UsageError

OFFICIAL = "https://api.openai.com/v1"
REQUEST_TIMEOUT_S = 600.0  # a model may think for minutes
CONNECT_TIMEOUT_S = 10.0
MAX_RETRIES = 6


class Service:
    """Answers requests with JSON objects that nobody has looked into yet.

    The address is `base_url`, else that of OPENAI_BASE_URL, else OpenAI's; the key that of OPENAI_API_KEY, which a
    server of one's own need not have. Raises UsageError where OpenAI is meant and there is no key.
    """

    def __init__(self, base_url: str | None = None, *, max_retries: int = MAX_RETRIES) -> None:
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL
        self._key = os.environ.get("OPENAI_API_KEY", "")
        if not self._key and self.official:
            raise UsageError(
                "OPENAI_API_KEY is not set: set it to your key, or name a server of your own with --base-url"
            )
        self._sdk: Any = importlib.import_module("openai")
        self._max_retries = max_retries
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._models: Mapping[str, Any] | None = None
        self._answered = False

    @property
    def official(self) -> bool:
        """Whether it is OpenAI's own service."""
        return self.base_url.startswith("https://api.openai.com")

    def models(self) -> Mapping[str, Any]:
        """What the service says of its models, by name; empty where it does not say. Asked once.

        Raises BackendError where nothing answers at the address, or the key is refused.
        """
        if self._models is None:
            client = self._sdk.OpenAI(**self._options(1, CONNECT_TIMEOUT_S))
            try:
                answer = json.loads(client.models.with_raw_response.list().content)
            except (self._sdk.APIConnectionError, self._sdk.AuthenticationError) as error:
                raise self._explained(error) from None
            except (self._sdk.OpenAIError, ValueError):  # not every service has such a list
                answer = {}
            finally:
                client.close()
            match answer:
                case {"data": [*entries]}:
                    self._models = {str(one["id"]): one for one in entries if isinstance(one, dict) and "id" in one}
                case _:
                    self._models = {}
        return self._models

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of /chat/completions. Raises SamplingError, or another BackendError that ends a run."""
        return await self._ask(lambda client: client.chat.completions, body, ("model", "messages"))

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of /completions; raises as `chat` does."""
        return await self._ask(lambda client: client.completions, body, ("model", "prompt"))

    async def _ask(self, endpoint: Any, body: Mapping[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
        more = {name: value for name, value in body.items() if name not in required and value is not None}
        call = endpoint(self._open()).with_raw_response.create
        try:
            raw = await call(**{name: body[name] for name in required}, extra_body=more)
            answer = json.loads(raw.content)
        except self._sdk.OpenAIError as error:
            # Without the error as a cause: it holds the request, and that the key.
            raise self._explained(error) from None
        except ValueError:
            raise SamplingError("the service answered with something that is not JSON") from None
        if not isinstance(answer, dict):
            raise SamplingError("the service answered with JSON that is no object")
        self._answered = True
        return answer

    def close(self) -> None:
        """Nothing to do: connections end with the event loop that they were made in."""

    def _open(self) -> Any:
        """A client of the running event loop: connections do not outlive the loop that they were made in."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            options = self._options(self._max_retries, REQUEST_TIMEOUT_S)
            # The SDK's own choice of this would close itself in whatever loop runs when it is no longer needed.
            transport = self._sdk.DefaultAsyncHttpxClient(base_url=self.base_url, timeout=options["timeout"])
            self._client = self._sdk.AsyncOpenAI(**options, http_client=transport)
        return self._client

    def _options(self, max_retries: int, timeout: float) -> dict[str, Any]:
        timeouts = self._sdk.Timeout(timeout, connect=CONNECT_TIMEOUT_S)
        return {
            "api_key": self._key or "none",
            "base_url": self.base_url,
            "max_retries": max_retries,
            "timeout": timeouts,
        }

    def _explained(self, error: Any) -> BackendError:
        """What one failed request means: for its trajectory alone, or for the whole run."""
        said = self._said(error)
        status = getattr(error, "status_code", None)
        if status is None:
            reason = said if isinstance(error, self._sdk.APITimeoutError) else _cause(error) or said
            if self._answered:
                return SamplingError(f"the service at {self.base_url} could not be reached ({reason})")
            return BackendError(
                f"nothing answers at {self.base_url} ({reason}): start the server, or correct --base-url"
            )
        if status == 401 or (status == 403 and not self._answered):
            return BackendError(f"the service refuses the key in OPENAI_API_KEY ({said}): set the right one")
        if status == 402 or getattr(error, "code", None) == "insufficient_quota":
            return BalanceError(f"the account cannot pay for more ({said})")
        if status == 404 and not self._answered:
            return BaseModelError(f"the service knows no such model or address ({said}): correct --base-model")
        if status in (400, 422) and not self._answered:
            return BackendError(
                f"the service refuses the first request ({said}); --extra-body can add, change and leave out fields"
            )
        return SamplingError(f"the service answered with status {status} ({said})")

    def _said(self, error: Any) -> str:
        """The service's own words in one short line, without the key, should it repeat that."""
        body = getattr(error, "body", None)
        words = body.get("message") if isinstance(body, dict) else None
        line = " ".join(str(words or getattr(error, "message", None) or error).split())[:300].rstrip(" .")
        return line.replace(self._key, "***") if self._key else line


def _cause(error: BaseException) -> str:
    """What lies under the SDK's "Connection error."."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)

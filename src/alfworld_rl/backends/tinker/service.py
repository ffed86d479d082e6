"""One session with a server of the Tinker API: its SDK's futures, watched over, and its errors in one sentence."""

import asyncio
import concurrent.futures
import contextlib
import importlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from alfworld_rl.backends.base import BackendError, BalanceError, Checkpoint, CheckpointError, CheckpointKind
from alfworld_rl.errors import AlfworldRLError, UsageError

log = logging.getLogger(__name__)

HOSTED_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
HOSTED_DOMAIN = ".thinkingmachines."
ANY_KEY = "tml-own-server"  # servers of one's own take any key that begins so

FIRST_ANSWER_S = 8.0  # how long a server may take to answer before anything has started
NOTICE_S = 20.0  # how long a call may be silent before somebody looks whether the server still answers
PATIENCE_S = 15 * 60.0  # how long a server may be gone in the middle of a run
CLOSE_PATIENCE_S = 3.0


def server_url(base_url: str | None) -> str:
    """The server that is meant: by the flag, else by TINKER_BASE_URL, else Thinking Machines' service."""
    return (base_url or os.environ.get("TINKER_BASE_URL") or HOSTED_URL).rstrip("/")


def is_hosted(url: str) -> bool:
    """Whether a server is Thinking Machines' own service, not one's own."""
    return HOSTED_DOMAIN in url


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the server is, and the key for it (which no message ever shows)."""

    url: str
    key: str

    @classmethod
    def find(cls, base_url: str | None) -> "Connection":
        """The server is `server_url(base_url)`, its key that of TINKER_API_KEY.

        Raises UsageError where the key is missing or of another service.
        """
        url = server_url(base_url)
        if not re.match(r"https?://[^/]", url):
            raise UsageError(f"--base-url must begin with http:// or https://, not {url!r}")
        key = os.environ.get("TINKER_API_KEY", "")
        if not key and not is_hosted(url):
            key = ANY_KEY
        if not key.startswith(("tml-", "eyJ")):
            raise UsageError(
                "TINKER_API_KEY holds no key of the Tinker API: set it to one beginning with tml-, or give --base-url "
                "of a server of your own"
            )
        return cls(url, key)

    @property
    def hosted(self) -> bool:
        return is_hosted(self.url)

    def silence(self, patience_s: float) -> str:
        """Why the server does not answer, or an empty text when it does."""
        import httpx  # the SDK's own client, so that proxies are treated alike

        try:
            status = httpx.get(f"{self.url}/api/v1/healthz", timeout=patience_s).status_code
        except httpx.HTTPError as error:
            return str(error) or type(error).__name__
        return f"HTTP {status}" if status >= 500 else ""


def sdk() -> Any:
    """Import tinker; late, because it takes a second."""
    return importlib.import_module("tinker")


class Service:
    """The SDK's session. Raises at once, and in seconds, when the server cannot be used."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sdk = sdk()
        # The SDK tells in warnings and errors of its logger what is raised here in a sentence.
        logging.getLogger("tinker").setLevel(logging.CRITICAL)
        self._last_answer = self._last_notice = time.monotonic()
        self._notice_lock = threading.Lock()
        self._closed = False
        # It would try an absent server for five minutes.
        if silence := connection.silence(FIRST_ANSWER_S):
            raise BackendError(f"the server at {connection.url} does not answer ({silence}): {self._where_to_look()}")
        try:
            self.client = self.sdk.ServiceClient(base_url=connection.url, api_key=connection.key)
            self._holder = self.client.holder
            self._rest = self.client.create_rest_client()
        except Exception as error:
            raise self.explained(error, "opening a session") from error

    def run(self, future: Any, doing: str) -> Any:
        """Wait for a future of the SDK however long the work takes, as long as the server is there."""
        if self._closed:
            raise BackendError(f"the session with {self.connection.url} is closed, so {doing} is not possible")
        if not isinstance(future, concurrent.futures.Future):
            future = future.future()
        try:
            while True:
                try:
                    return future.result(timeout=NOTICE_S)
                except TimeoutError:
                    if future.done():
                        raise
                    self.notice(doing)
        except Exception as error:
            raise self.explained(error, doing) from error
        finally:
            future.cancel()

    def call[T](self, function: Callable[[], T], doing: str) -> T:
        """Run a function of the SDK that blocks until its work is done, as `run` waits for a future."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        # A daemon, since it may wait for a server that never answers, for which the end of the program must not wait.
        threading.Thread(target=work, name=f"tinker: {doing}", daemon=True).start()
        return cast(T, self.run(future, doing))

    async def watched[T](self, future: "concurrent.futures.Future[T]", doing: str) -> T:
        """Await a future of the SDK; gives up when the server has been gone too long."""
        waiting = asyncio.wrap_future(future)
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=NOTICE_S)
                if done:
                    return waiting.result()
                await asyncio.to_thread(self.notice, doing)
        finally:
            waiting.cancel()

    def saved(self, run: str, kind: CheckpointKind) -> list[str]:
        """The names of the checkpoints of one kind that the server has of a run, oldest first."""
        path = "weights" if kind == "training_state" else "sampler_weights"
        found = self.run(self._rest.list_checkpoints(run), f"listing the checkpoints of {run}").checkpoints
        pattern = re.compile(rf"tinker://[^/]+/{path}/([^/]+)")
        # Hosted, an identifier carries the kind as well; the path does everywhere.
        matches = [pattern.fullmatch(one.tinker_path) for one in sorted(found, key=lambda one: one.time)]
        return [match[1] for match in matches if match]

    def delete(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint; one that is not there is no error."""
        try:
            self.run(self._rest.delete_checkpoint_from_tinker_path(str(checkpoint)), f"deleting {checkpoint}")
        except CheckpointError:
            log.debug("%s is gone already", checkpoint)

    def archive(self, run: str, name: str) -> bytes:
        """The archive of sampler weights, as the server packs it."""
        import httpx

        # The hosted service takes the kind with the name, SkyRL the name alone.
        identifier = name if self.connection.hosted else name.rpartition("/")[2]
        url = self.run(self._rest.get_checkpoint_archive_url(run, identifier), f"downloading {name}").url
        headers = {"X-API-Key": self.connection.key} if url.startswith(self.connection.url) else {}
        try:
            response = httpx.get(url, headers=headers, timeout=600, follow_redirects=True)
            response.raise_for_status()
        except httpx.HTTPError as error:
            raise BackendError(f"the weights {name} of {run} could not be downloaded ({error}); try again") from error
        return response.content

    def base_model_of(self, state: Checkpoint) -> str:
        """The base model that a saved state belongs to. Raises CheckpointError where there is no such state."""
        info = self.run(self._rest.get_weights_info_by_tinker_path(str(state)), f"opening {state}")
        return str(info.base_model)

    def unload(self, model_id: str) -> None:
        """Have a server of one's own forget a model, so that its place is free; what was saved of it stays."""
        import httpx

        url, key = f"{self.connection.url}/api/v1/unload_model", self.connection.key
        self.briefly(lambda: httpx.post(url, json={"model_id": model_id}, headers={"X-API-Key": key}, timeout=5))

    def notice(self, doing: str) -> None:
        """Look, at most once every NOTICE_S however many calls wait, whether the server is still there.

        The SDK asks a dead server for its answer for ever, in silence.
        """
        with self._notice_lock:
            if time.monotonic() - self._last_notice < NOTICE_S:
                return
            silence = self.connection.silence(5.0)
            self._last_notice = time.monotonic()
            if not silence:
                self._last_answer = self._last_notice
                return
        gone = time.monotonic() - self._last_answer
        if gone > PATIENCE_S:
            raise BackendError(
                f"the server at {self.connection.url} has not answered for {gone / 60:.0f} minutes while {doing} "
                f"({silence}): {self._where_to_look()}"
            )
        log.warning(
            "the server at %s does not answer (%s); trying again for up to %.0f minutes, Ctrl-C gives up",
            self.connection.url,
            silence,
            PATIENCE_S / 60,
        )

    def explained(self, error: Exception, doing: str) -> AlfworldRLError:
        """One sentence for an error of the SDK: what failed and what to do; never the key."""
        if isinstance(error, AlfworldRLError):
            return error
        url, said, status = self.connection.url, self._said(error), _status(error)
        if status in (401, 403):
            return BackendError(f"the server at {url} does not accept TINKER_API_KEY while {doing} ({said})")
        if status == 402:
            return BalanceError(f"the account at {url} has no balance left for {doing}: add credit, then go on")
        if "not loaded" in said:
            return BackendError(
                f"the server at {url} holds this run's model no longer ({said}): it was started again or has ended the "
                "session, so go on from the last saved state with --resume"
            )
        if rank := re.search(r"rank \d+ must be between 1 and (\d+)", said):
            return UsageError(
                f"the server trains LoRA adapters of rank 1 to {rank[1]}: set --lora-rank to one of these, or start "
                "the server with a larger max_lora_rank"
            )
        if "Maximum number of LoRA adapters" in said:
            return BackendError(
                f"the server has no room for one more model ({said}): wait five minutes for those of ended programs "
                "to go, or start it with a larger max_lora_adapters"
            )
        if "already exists" in said:
            return BackendError(
                f"the server at {url} failed at {doing} ({said}): go on from the last saved state with --resume"
            )
        if status == 404 or "Checkpoint" in said:
            return CheckpointError(f"the server at {url} refused {doing} ({said}): use a URI that a run printed")
        if isinstance(error, self.sdk.APIConnectionError):
            return BackendError(f"the server at {url} does not answer ({said}): {self._where_to_look()}")
        if status == 422 or "sample_sequence_ids" in said or "payload" in said:
            return BackendError(
                f"the server at {url} and tinker {self.sdk.__version__} do not understand each other ({said}): "
                "`alfworld-rl doctor --backend tinker` says which versions fit"
            )
        return BackendError(f"the server at {url} failed at {doing}: {said}")

    def _said(self, error: Exception) -> str:
        """What went wrong by the server's own words, without the SDK's wrapping and without the key."""
        body = getattr(error, "body", None)
        text = str(body.get("detail") or body) if isinstance(body, dict) else str(error) or type(error).__name__
        text = re.sub(r"^(Error retrieving result|Request failed): ", "", text)
        text = re.sub(r" (\(status|with status|for self\.request_id).*", "", text, flags=re.DOTALL)
        text = text.replace(self.connection.key, "***") if self.connection.key else text
        return (text.splitlines() or [type(error).__name__])[0].strip(" .")[:300]

    def _where_to_look(self) -> str:
        if self.connection.hosted:
            return "check the network, or try later"
        return "see whether it runs there (docs/own-cluster.md), and check --base-url"

    def briefly(self, function: Callable[[], object]) -> None:
        """Run a function that tidies up; whatever becomes of it, the program goes on within seconds."""

        def quietly() -> None:
            with contextlib.suppress(Exception):
                function()

        thread = threading.Thread(target=quietly, name="tinker: closing", daemon=True)
        thread.start()
        thread.join(CLOSE_PATIENCE_S)

    def close(self) -> None:
        """End the session; within seconds, and without a word, if the server is not there to hear of it."""
        if self._closed:
            return
        self._closed = True
        self.briefly(self._holder.close)


def _status(error: Exception) -> int:
    """The HTTP status behind an error of the SDK, or 0."""
    if status := getattr(error, "status_code", None):
        return int(status)
    found = re.search(r"\bstatus (\d{3})\b", str(error))
    return int(found[1]) if found else 0

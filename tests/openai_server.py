"""A service on loopback that speaks OpenAI's protocol as strictly as the strictest one does, and fails on demand."""

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Json = dict[str, Any]


@dataclass
class Fault:
    """How one request goes wrong: a status with headers, a `body` that is not an answer, or a connection that is cut.

    `wait_s`: a rate limit; whatever comes before it is over is refused again, and counted as too early.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    wait_s: float = 0.0


FOR_GOOD = {"x-should-retry": "false"}
"""A header by which a service tells the SDK to give up at once."""


class OpenAIServer:
    """`reply(body of the request)` is the assistant's message of /chat/completions, or a whole choice.

    - complete: the answer of /completions to the body of a request.
    - key: what the Authorization has to hold; empty: anything goes.
    - faults: taken by the next requests for an answer, one each; `fault_of` may name one by the request's body.
    - requests: bodies of all requests that were answered with a message; `seen` of all, in order.
    """

    def __init__(
        self,
        reply: Callable[[Json], Json] = lambda body: {"content": ""},
        *,
        complete: Callable[[Json], Json] | None = None,
        key: str = "",
        models: list[Json] | None = None,
    ) -> None:
        self.reply = reply
        self.complete = complete
        self.key = key
        self.models = models
        self.faults: deque[Fault] = deque()
        self.fault_of: Callable[[Json], Fault | None] = lambda body: None
        self.requests: list[Json] = []
        self.seen: list[Json] = []
        self.counted: list[tuple[int, int]] = []
        self.too_early = 0
        self.refused_until = 0.0
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fault(self, body: Json) -> Fault | None:
        with self.lock:
            self.seen.append(body)
            if time.monotonic() < self.refused_until:
                self.too_early += 1
                return Fault(429, headers={"retry-after": "1"})
            fault = self.fault_of(body) or (self.faults.popleft() if self.faults else None)
            if fault is not None and fault.wait_s:
                self.refused_until = time.monotonic() + fault.wait_s
            return fault

    def chat(self, body: Json) -> tuple[int, Json]:
        if problem := _refusal(body):
            return 400, {"error": {"message": problem, "type": "invalid_request_error"}}
        choice = self.reply(body)
        choice = choice if "message" in choice else {"message": choice}
        choice["message"] = {"role": "assistant", **choice["message"]}
        choice.setdefault("finish_reason", "tool_calls" if choice["message"].get("tool_calls") else "stop")
        usage = {"prompt_tokens": words(body["messages"]), "completion_tokens": words(choice["message"])}
        thought = choice["message"].get("reasoning_content") or choice["message"].get("reasoning")
        details = {"completion_tokens_details": {"reasoning_tokens": words(thought)}} if thought else {}
        with self.lock:
            self.requests.append(body)
            self.counted.append((usage["prompt_tokens"], usage["completion_tokens"]))
        return 200, {"object": "chat.completion", "choices": [{"index": 0, **choice}], "usage": usage | details}


def words(value: Any) -> int:
    return len(re.findall(r"\w+", json.dumps(value)))


def _refusal(body: Json) -> str | None:
    """What a strict service finds wrong with a request."""
    open_calls: list[str] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                return "a tool message answers no call"
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return "a call was not answered"
        if role == "assistant":
            for call in message.get("tool_calls") or []:
                try:
                    json.loads(call["function"]["arguments"])
                except ValueError:
                    return "arguments of a call are not JSON"
                open_calls.append(call["id"])
            if content is None and not message.get("tool_calls"):
                return "an assistant message needs content or calls"
        elif role not in ("system", "user") or not isinstance(content, str):
            return "a message is of no known kind"
    return "a call was not answered" if open_calls else None


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            if self._refused():
                return
            if server.models is None:
                self._answer(404, {"error": {"message": "no such path"}})
            else:
                self._answer(200, {"object": "list", "data": server.models})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self._refused():
                return
            fault = server.fault(body)
            if fault is not None and fault.cut:
                self.wfile.write(
                    b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"ch'
                )
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
            elif fault is not None:
                self._answer(fault.status, fault.body, fault.headers)
            elif self.path == "/v1/chat/completions":
                self._answer(*server.chat(body))
            elif self.path == "/v1/completions" and server.complete is not None:
                self._answer(200, server.complete(body))
            else:
                self._answer(404, {"error": {"message": "no such path"}})

        def _refused(self) -> bool:
            sent = self.headers.get("authorization", "").removeprefix("Bearer ")
            if not server.key or sent == server.key:
                return False
            self._answer(401, {"error": {"message": f"Incorrect API key provided: {sent}", "code": "invalid_api_key"}})
            return True

        def _answer(self, status: int, body: Any, headers: Mapping[str, str] = {}) -> None:
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler

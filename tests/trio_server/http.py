"""HTTP/1.1 on loopback, with the misbehaviour that `faults` asks for."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import msgpack
from pydantic import BaseModel, ValidationError

from trio_server.faults import Fault
from trio_server.service import Refusal, Service

JSON, MSGPACK = "application/json", "application/msgpack"


class TrioServer:
    """Serves `service` on 127.0.0.1 from `start` to `stop`; can be started again, on the same port.

    - streamed: sampling responses come in chunks, the first before the model has written anything.
    """

    def __init__(self, service: Service, port: int = 0, *, streamed: bool = False) -> None:
        self.service = service
        self.port = port
        self.streamed = streamed
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        self._server = _Server(("127.0.0.1", self.port), self.service, self.streamed)
        self.port = self._server.server_address[1]
        self.service.actor_url = f"{self.url}/actor"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="trio-server", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port and break every connection, as a crash would."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.break_connections()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], service: Service, streamed: bool) -> None:
        self.service, self.streamed = service, streamed
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self._connections.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections that break are what this server is for; nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_any(self) -> None:
        url = urlsplit(self.path)
        request = f"{self.command} {url.path}"
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        service = self.server.service
        service.ledger.requests[request] += 1
        fault = service.faults.next_for(request)
        if fault is not None and fault.trouble == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault is not None and fault.trouble == "answer":
            self._refuse(Refusal(fault.status, fault.code, fault.message))
            return
        try:
            if url.path.startswith("/api/"):
                query = dict(parse_qsl(url.query))
                path = url.path.removeprefix("/api/")
                self._send(service.control(self.command, path, query, body, _lowered(self.headers)), JSON, fault)
            elif url.path.startswith("/actor/"):
                self._actor(url.path.removeprefix("/actor/"), body, fault)
            else:
                self._write(200, b"", JSON, None)
        except Refusal as refusal:
            self._refuse(refusal)
        except ValidationError as error:
            self._refuse(Refusal(422, "validation_failed", str(error)))

    do_GET = do_POST = do_PATCH = do_DELETE = do_HEAD = do_any

    def _actor(self, path: str, body: bytes, fault: Fault | None) -> None:
        service = self.server.service
        service.authorize_actor(_lowered(self.headers))
        if path == "v1/events":
            self._send(service.submit_event(body), MSGPACK, fault)
        elif match := re.fullmatch("v1/events/([^/]+)", path):
            wait = re.search(r"wait=(\d+)", self.headers.get("prefer", "wait=0"))
            self._send(service.get_event(match[1], float(wait[1]) if wait else 0.0), MSGPACK, fault)
        elif match := re.fullmatch("v1/sampling-runs/([^/]+)/sample", path):
            if self.server.streamed:
                self._stream(lambda: service.sample(match[1], body), fault)
            else:
                self._send(service.sample(match[1], body), JSON, fault)
        elif path == "v1/client/heartbeat":
            self._write(200, json.dumps({"heartbeat_ms": 60_000}).encode(), JSON, fault)
        else:
            raise Refusal(404, "not_found", f"there is no {path}")

    def _stream(self, sample: Callable[[], BaseModel], fault: Fault | None) -> None:
        """A space at once, which JSON allows and which tells the client that the service is alive; then the rest."""
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n \r\n"
        )
        body = sample().model_dump_json().encode()
        half = len(body) // 2
        self.wfile.write(b"%x\r\n%s\r\n" % (half, body[:half]))
        if fault is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - half, body[half:]))

    def _send(self, response: BaseModel | None, content_type: str, fault: Fault | None) -> None:
        if response is None:
            self._write(204, b"", content_type, None)
        elif content_type == JSON:
            self._write(200, response.model_dump_json().encode(), JSON, fault)
        else:
            self._write(200, msgpack.packb(response.model_dump(mode="python") | _plain(response)), MSGPACK, fault)

    def _refuse(self, refusal: Refusal) -> None:
        error = {"code": refusal.code, "message": refusal.message}
        self._write(refusal.status, json.dumps(error).encode(), JSON, None)

    def _write(self, status: int, body: bytes, content_type: str, fault: Fault | None) -> None:
        head = f"HTTP/1.1 {status} -\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        if self.command == "HEAD":
            body = b""
        if fault is not None:  # only `cut` comes this far
            self.wfile.write(head + body[: len(body) // 2])
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(head + body)

    def log_message(self, format: str, *args: object) -> None:
        """The ledger counts requests; a line for each would drown the tests."""


def _lowered(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _plain(response: BaseModel) -> dict[str, str]:
    """The enumerations of an event response as MessagePack can carry them."""
    return {name: getattr(response, name).value for name in ("type", "status")}

"""What stands between the network and OpenEnv's application: idle sessions end, and no request is too large.

OpenEnv forgets an idle session and leaves its connection open, so a client that is gone would hold a connection
for ever; here the connection ends, and the session with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from alfworld_rl.compat.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

IDLE = 4408
"""The close code of an idle session: 4000 to 4999 are an application's own, 408 is HTTP's "request timeout"."""


class Guard:
    """An ASGI application around another.

    - idle_seconds: a WebSocket that says nothing for so long is closed with code 4408.
    - max_message_bytes: an HTTP request with a larger body is answered 413. WebSocket messages are bounded by the
      server itself (uvicorn's `ws_max_size`), which need not read one to its end to refuse it.
    """

    def __init__(self, app: Application, metrics: Metrics, *, idle_seconds: float, max_message_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._idle_seconds = idle_seconds
        self._max_message_bytes = max_message_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            await self._app(scope, self._bounded(receive), send)
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        expired = False

        async def receive_or_expire() -> Message:
            nonlocal expired
            try:
                async with asyncio.timeout(self._idle_seconds):
                    return await receive()
            except TimeoutError:
                expired = True
                self._metrics.expired.inc()
                reason = f"idle for {self._idle_seconds:g} s"
                await send({"type": "websocket.close", "code": IDLE, "reason": reason})
                return {"type": "websocket.disconnect", "code": IDLE, "reason": reason}

        async def send_if_open(message: Message) -> None:
            if not expired:  # the application closes in its turn what is closed already
                await send(message)

        await self._app(scope, receive_or_expire, send_if_open)

    def _bounded(self, receive: Receive) -> Receive:
        received = 0

        async def receive_bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_message_bytes:
                raise HTTPException(413, f"a request may have {self._max_message_bytes} bytes")
            return message

        return receive_bounded

"""An OpenAI-compatible chat endpoint on loopback that plays games by their walkthroughs, with mistakes."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from alfworld_rl.agents.calls import XML_CALL
from alfworld_rl.games import GameRef
from alfworld_rl.world import Game, World

GIVES_UP = "I do not know what to do."


def messages_of(game: GameRef) -> list[str]:
    """What the stand-in writes in `game`: nothing that can be read, something that is not admissible, and then the
    walkthrough; in every second game, by the length of its task, nothing but that it gives up."""
    loaded = Game.load(game.path)
    if len(loaded.task) % 2:
        return []
    commands = ("fly to the moon", *loaded.walkthrough)
    return ["Let me think.", *(f"So:\n{XML_CALL.format(action=command)}" for command in commands)]


@contextmanager
def openai_stand_in(games: Sequence[GameRef]) -> Iterator[str]:
    """The base URL of a running one."""
    scripts = {World(Game.load(game.path)).view.observation: messages_of(game) for game in games}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            first = next(message for message in asked["messages"] if message["role"] == "user")
            script = next(script for opening, script in scripts.items() if first["content"].startswith(opening))
            turn = sum(message["role"] == "assistant" for message in asked["messages"])
            content = script[turn] if turn < len(script) else GIVES_UP
            if asked.get("stream"):
                parts = [_chunk({"role": "assistant", "content": content}, None), _chunk({}, "stop")]
                body = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
                self._answer("text/event-stream", body)
            else:
                choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
                self._answer("application/json", json.dumps(_completion("chat.completion", choice)))

        def _answer(self, kind: str, body: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return _completion("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": finish})


def _completion(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "1", "object": kind, "created": 1, "model": "stand-in", "choices": [choice], "usage": usage}

"""`serve`: the world as a service for trainers on other machines, by OpenEnv's protocol."""

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from alfworld_rl.commands.common import GAMES_HELP, CommandConfig
from alfworld_rl.config import Name, option
from alfworld_rl.config.workspace import alfworld_games
from alfworld_rl.envs import ENVIRONMENTS, EnvironmentFamily
from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games import SPLITS
from alfworld_rl.types import Task

_FILES_BESIDE_SESSIONS = 256
"""Open files that are no session's: libraries, games being read, connections of scrapers, refused ones."""


class ServeConfig(CommandConfig):
    """The world as a service, by OpenEnv's protocol."""

    data_root: Path | None = option(None, GAMES_HELP)
    splits: tuple[Literal["train", "valid_seen", "valid_unseen"], ...] = option(
        (), "splits to serve (default: all that are there); a reset that names none draws from the first"
    )
    environment: Annotated[str, Name(ENVIRONMENTS)] = option("fast", "what plays the games")
    host: str = option("127.0.0.1", "address to listen at; 0.0.0.0 is every network, and there is no password")
    port: int = option(8000, "port to listen at; 0 takes a free one", ge=0, le=65535)
    max_sessions: int = option(1000, "sessions at once; one more is refused", ge=1)
    idle_timeout: float = option(600.0, "seconds after which a session that says nothing ends", gt=0)
    max_message_bytes: int = option(65536, "bytes of one message; a longer one ends its session", ge=1024)
    max_episode_steps: int = option(50, "steps a game may take, unless a reset says otherwise; 0 is no limit", ge=0)


CONFIG = ServeConfig


def run(config: ServeConfig) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises UsageError where the extra `serve` or the games are missing, or the address cannot be had.
    """
    if find_spec("openenv") is None or find_spec("prometheus_client") is None:
        raise UsageError(f"serving needs the extra serve: run `{installing('serve')}`")
    family = ENVIRONMENTS[config.environment](alfworld_games(config.data_root))
    splits = _listed(family, config.splits)
    _allow_open_files(config.max_sessions + _FILES_BESIDE_SESSIONS)
    with _listening(config.host, config.port) as listener, family.pool() as pool:
        import uvicorn  # late, as openenv takes seconds to import

        from alfworld_rl.compat.serve.openenv import Games, create_app

        app = create_app(
            Games(splits),
            pool,
            max_sessions=config.max_sessions,
            idle_seconds=config.idle_timeout,
            max_message_bytes=config.max_message_bytes,
            max_episode_steps=config.max_episode_steps,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                ws_max_size=config.max_message_bytes,
                # A message has about a kilobyte: packing it costs as much time as the rest, and memory a session.
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=5,
            )
        )
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        counts = ", ".join(f"{len(games)} {split}" for split, games in splits.items())
        print(f"Serving {counts} games at http://{shown}:{port} (OpenEnv; metrics at /metrics). Ctrl-C ends it.")
        if not ipaddress.ip_address(host).is_loopback:
            print(
                f"warning: {host} can be reached from other machines, and there is no password; "
                "let only machines that you trust reach it",
                file=sys.stderr,
            )
        sys.stdout.flush()
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            print("Stopped.")


def _listed(family: EnvironmentFamily, wanted: Sequence[str]) -> Mapping[str, Sequence[Task]]:
    """The games of the wanted splits, or of all splits that are there."""
    found: dict[str, Sequence[Task]] = {}
    for split in wanted or SPLITS:
        try:
            found[split] = family.tasks(split)
        except UsageError:
            if wanted or (split == SPLITS[-1] and not found):
                raise
    return found


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UsageError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        # What create_server says holds the address again; a name that is not found has a number of its own.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise UsageError(f"cannot listen at {host} port {port} ({reason}); give another --host or --port") from None


def _allow_open_files(count: int) -> None:
    """A session is an open file. Raises UsageError where the system allows fewer."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and count > hard:
        raise UsageError(
            f"--max-sessions needs {count} open files, and the system allows {hard} (`ulimit -Hn`); give fewer sessions"
        )
    if soft != resource.RLIM_INFINITY and count > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))

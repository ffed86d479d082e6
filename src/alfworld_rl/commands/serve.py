"""`serve`: the world as a service for trainers on other machines, by OpenEnv's protocol."""

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from alfworld_rl.envs.alfworld import AlfworldFamily
from alfworld_rl.errors import UsageError, installing
from alfworld_rl.games import SPLITS, GameRef
from alfworld_rl.runs.flags import add_flags, flag, read_flags
from alfworld_rl.runs.settings import CommandSettings, alfworld_games

_FILES_BESIDE_SESSIONS = 256
"""Open files that are no session's: libraries, games being read, connections of scrapers, refused ones."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings(CommandSettings):
    """The world as a service, in the words of OpenEnv."""

    data_root: Path | None = flag(None, "folder that holds json_2.1.1 (default: 08-alfworld/datasets/alfworld)")
    splits: tuple[Literal["train", "valid_seen", "valid_unseen"], ...] = flag(
        (), "splits to serve (default: all that are there); a reset that names none draws from the first"
    )
    environment: Literal["fast", "textworld"] = flag("fast", "this project's engine, or the official stack")
    host: str = flag("127.0.0.1", "address to listen at; 0.0.0.0 is every network, and there is no password")
    port: int = flag(8000, "port to listen at; 0 takes a free one", low=0, high=65535)
    max_sessions: int = flag(1000, "sessions at once; one more is refused", low=1)
    idle_timeout: float = flag(600.0, "seconds after which a session that says nothing ends", above=0)
    max_message_bytes: int = flag(65536, "bytes of one message; a longer one ends its session", low=1024)
    max_episode_steps: int = flag(50, "steps a game may take, unless a reset says otherwise; 0 is no limit", low=0)


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add `serve`; it sets `run_command`."""
    text = "serve the world to trainers on other machines (OpenEnv)"
    parser = subparsers.add_parser("serve", help=text, description=text, allow_abbrev=False)
    add_flags(parser, ServeSettings)
    parser.set_defaults(run_command=_run)


def _run(arguments: argparse.Namespace) -> int:
    given = {name: value for name, value in vars(arguments).items() if name not in ("command", "run_command")}
    serve(read_flags(ServeSettings, given))
    return 0


def serve(settings: ServeSettings) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises UsageError where the extra `serve` or the games are missing, or the address cannot be had.
    """
    if find_spec("openenv") is None or find_spec("prometheus_client") is None:
        raise UsageError(f"serving needs the extra serve: run `{installing('serve')}`")
    family = AlfworldFamily(settings.data_root or alfworld_games(), official=settings.environment == "textworld")
    splits = _listed(family, settings.splits)
    _allow_open_files(settings.max_sessions + _FILES_BESIDE_SESSIONS)
    with _listening(settings.host, settings.port) as listener, family.pool() as pool:
        import uvicorn  # late, as openenv takes seconds to import

        from alfworld_rl.compat.serve.openenv import Games, create_app

        app = create_app(
            Games(splits),
            pool,
            max_sessions=settings.max_sessions,
            idle_seconds=settings.idle_timeout,
            max_message_bytes=settings.max_message_bytes,
            max_episode_steps=settings.max_episode_steps,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                ws_max_size=settings.max_message_bytes,
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


def _listed(family: AlfworldFamily, wanted: Sequence[str]) -> Mapping[str, Sequence[GameRef]]:
    """The games of the wanted splits, or of all splits that are there."""
    found: dict[str, Sequence[GameRef]] = {}
    for split in wanted or SPLITS:
        try:
            found[split] = family.tasks(split)
        except UsageError:
            if wanted or split == SPLITS[-1] and not found:
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

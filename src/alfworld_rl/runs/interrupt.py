"""Ctrl-C: once to stop when what is going on is finished, twice to leave now."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether a person asked the run to end. Read it where ending is safe."""

    def __init__(self) -> None:
        self.asked = False

    def leave_if_asked(self, way_on: str) -> None:
        """Say how to go on and raise KeyboardInterrupt, if the end was asked for."""
        if self.asked:
            print(f"Go on with {way_on}", flush=True)
            raise KeyboardInterrupt


@contextlib.contextmanager
def stop_on_interrupt(what: str) -> Iterator[StopRequest]:
    """While the block runs, the first Ctrl-C (or SIGTERM) only asks for the end; the second raises KeyboardInterrupt.

    `what` says what is finished first ("the update"). Outside the main thread, where Python allows no handlers,
    signals keep their meaning.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.asked:
            raise KeyboardInterrupt
        request.asked = True
        print(f"\nfinishing {what}, then stopping; Ctrl-C again leaves now", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

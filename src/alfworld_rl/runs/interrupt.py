"""How a run is asked to end: Ctrl-C, or the signals by which schedulers, containers and terminals end a process."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The run ended because a signal asked for it; everything is saved. `exit_code` is 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopRequest:
    """Whether the run was asked to end. Read it where ending is safe; `leave` holds where work may be thrown away."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._may_leave = False

    @property
    def asked(self) -> bool:
        return self.number is not None

    @contextlib.contextmanager
    def leave(self) -> Iterator[None]:
        """While the block runs, a signal that cannot wait (SIGTERM, SIGHUP, a second Ctrl-C) raises Interrupted.

        Schedulers and containers kill half a minute after their SIGTERM, and one update may take longer.
        """
        self._may_leave = True
        try:
            if self.asked and self.number != signal.SIGINT:
                raise Interrupted(self.number or 0)
            yield
        finally:
            self._may_leave = False

    def handle(self, number: int) -> None:
        """Take a signal in; raises Interrupted where the work under way may be left, and for a second Ctrl-C anywhere.

        What is on the disk is whole at any moment, and whoever asks twice may be waiting for a service that hangs.
        Other signals come twice by themselves, to a process and to its group.
        """
        again, self.number = self.asked, number
        if (again and number == signal.SIGINT) or (self._may_leave and (again or number != signal.SIGINT)):
            raise Interrupted(number)
        if again:
            print("\nsaving; this takes a moment", file=sys.stderr, flush=True)
        else:
            print("\nfinishing the update, then stopping; Ctrl-C again leaves it", file=sys.stderr, flush=True)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While the block runs, signals only ask for the end (see `StopRequest`).

    Outside the main thread, where Python allows no handlers, signals keep their meaning.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        request.handle(number)

    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {getattr(signal, name): signal.signal(getattr(signal, name), handle) for name in names}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

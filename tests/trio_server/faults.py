"""Misbehaviour on demand."""

import math
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Trouble = Literal["answer", "drop", "cut"]


@dataclass
class Fault:
    """What happens to the next `times` requests whose "METHOD /path" matches `pattern`.

    `answer` sends an error, `drop` closes the connection without a word, `cut` breaks off in the middle of the body
    of the true response.
    """

    pattern: re.Pattern[str]
    times: float
    trouble: Trouble
    status: int = 0
    code: str = ""
    message: str = ""


@dataclass
class EventFault:
    event_type: str
    times: float
    code: str
    message: str


@dataclass
class Faults:
    """All empty at first: a service that behaves."""

    sampling_latency_s: tuple[float, float] = (0.0, 0.0)
    flaky_rate: float = 0.0
    seed: int = 0
    before_event: Callable[[str], None] | None = None  # called with the type of every event, before it is done
    _faults: list[Fault] = field(default_factory=list)
    _event_faults: list[EventFault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _gate: threading.Barrier | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def answer(self, pattern: str, status: int, code: str = "", message: str = "", *, times: float = 1) -> None:
        self._add(Fault(re.compile(pattern), times, "answer", status, code, message or f"scripted HTTP {status}"))

    def drop(self, pattern: str, *, times: float = 1) -> None:
        self._add(Fault(re.compile(pattern), times, "drop"))

    def cut(self, pattern: str, *, times: float = 1) -> None:
        self._add(Fault(re.compile(pattern), times, "cut"))

    def at_capacity(self, *, times: float) -> None:
        """No trainer is free for the next `times` requests for one."""
        self.answer(r"POST .*/training-runs$", 429, "actor_capacity_exceeded", times=times)

    def fail_event(self, event_type: str, code: str, message: str, *, times: float = 1) -> None:
        """The next events of this type are accepted and then fail."""
        with self._lock:
            self._event_faults.append(EventFault(event_type, times, code, message))

    def gather(self, requests: int) -> None:
        """Hold the next requests for one completion back until this many are in flight together (or 30 s passed).

        The first turn of a group is one request for all its trajectories; from the second on each asks for itself.
        """

        def open_gate() -> None:
            self._gate = None

        self._gate = threading.Barrier(requests, action=open_gate)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()
            self._event_faults.clear()
        self._gate = None
        self.sampling_latency_s, self.flaky_rate = (0.0, 0.0), 0.0

    def next_for(self, request: str) -> Fault | None:
        """The fault that this request meets, counted as met."""
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.pattern.search(request):
                    fault.times -= 1
                    return fault
            if self.flaky_rate and "telemetry" not in request and self._random.random() < self.flaky_rate:
                status = self._random.choice((500, 502, 503, 504, 429))
                return Fault(re.compile(""), 1, "answer", status, "", "flaky")
        return None

    def next_event_fault(self, event_type: str) -> EventFault | None:
        with self._lock:
            for fault in self._event_faults:
                if fault.times > 0 and fault.event_type == event_type:
                    fault.times -= 1
                    return fault
        return None

    def hold_sampling(self, completions: int) -> None:
        if completions == 1 and (gate := self._gate) is not None:
            try:
                gate.wait(timeout=30)
            except threading.BrokenBarrierError:
                self._gate = None
        low, high = self.sampling_latency_s
        if high:
            time.sleep(self._random.uniform(low, high))

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)


ALWAYS = math.inf

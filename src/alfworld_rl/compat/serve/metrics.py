"""What a server counts, in Prometheus' text format at /metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_STEP_SECONDS = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)


class Metrics:
    """Counters of one server; two servers of a process share none."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.sessions = Gauge("alfworld_sessions", "Sessions that are open now.", registry=registry)
        self.expired = Counter("alfworld_sessions_expired", "Sessions ended for being idle.", registry=registry)
        self.resets = Counter("alfworld_resets", "Games begun.", registry=registry)
        self.steps = Counter("alfworld_steps", "Commands done.", registry=registry)
        self.wins = Counter("alfworld_wins", "Games won.", registry=registry)
        self.step_seconds = Histogram(
            "alfworld_step_seconds",
            "Seconds that the world took for a command; the network is not in it.",
            buckets=_STEP_SECONDS,
            registry=registry,
        )

    def text(self) -> bytes:
        """All of it, as a scraper reads it."""
        return generate_latest(self._registry)

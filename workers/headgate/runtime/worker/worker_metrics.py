"""The counters of a worker. docs/workers.md lists these for users."""

from __future__ import annotations

from headgate.telemetry.metrics import CounterMetric, Histogram, Registry


class WorkerMetrics:
    def __init__(self, registry: Registry, queue: str) -> None:
        self.registry = registry

        def count(name: str, description: str) -> CounterMetric:
            return registry.counter(f"headgate_worker_{name}", description, "queue").of(queue)

        def measure(name: str, description: str) -> Histogram:
            return registry.histogram(f"headgate_worker_{name}", description, "queue").of(queue)

        self.received = count("received", "Messages received.")
        self.acked = count("acked", "Messages handled and settled.")
        self.nacked = count("nacked", "Messages returned to be delivered again.")
        self.dead = count("dead", "Messages moved to the dead-letter queue, by a reject or at their last receive.")
        self.lost = count("lost", "Messages whose lease or visibility timeout ended in flight.")
        self.returned = count("returned", "Messages released without an attempt.")
        self.suspects = count("suspects", "Messages run in a separate process after one of them ended a process.")
        self.child_deaths = count("child_deaths", "Processes that ended while running a crash suspect.")
        failures = registry.counter(
            "headgate_worker_settle_failures", "Settles that were stale or of unknown durability.", "queue", "result"
        )
        self.settle_stale, self.settle_unknown = failures.of(queue, "stale"), failures.of(queue, "unknown")
        self.receive_failures = count("receive_failures", "Receives that failed.")
        self.lag = measure("lag_seconds", "Time from a message's due time to the start of its handler.")
        self.handled = measure("handler_seconds", "Run time of handlers.")

"""The counters of a worker. docs/workers.md lists these for users."""

from __future__ import annotations

from headgate.telemetry.metrics import Registry


class WorkerMetrics:
    def __init__(self, registry: Registry, queue: str) -> None:
        self.registry = registry
        name = "headgate_worker_"
        count = registry.counter
        self.received = count(name + "received", "Messages received.", "queue").of(queue)
        self.acked = count(name + "acked", "Messages handled and settled.", "queue").of(queue)
        self.nacked = count(name + "nacked", "Messages returned to be delivered again.", "queue").of(queue)
        self.dead = count(
            name + "dead", "Messages moved to the dead-letter queue, by a reject or at their last receive.", "queue"
        ).of(queue)
        self.lost = count(name + "lost", "Messages whose lease or visibility timeout ended in flight.", "queue").of(
            queue
        )
        self.returned = count(name + "returned", "Messages released without an attempt.", "queue").of(queue)
        self.suspects = count(
            name + "suspects", "Messages run in a separate process after one of them ended a process.", "queue"
        ).of(queue)
        self.child_deaths = count(
            name + "child_deaths", "Processes that ended while running a crash suspect.", "queue"
        ).of(queue)
        failures = count(
            name + "settle_failures", "Settles that were stale or of unknown durability.", "queue", "result"
        )
        self.settle_stale = failures.of(queue, "stale")
        self.settle_unknown = failures.of(queue, "unknown")
        self.receive_failures = count(name + "receive_failures", "Receives that failed.", "queue").of(queue)
        self.lag = registry.histogram(
            name + "lag_seconds", "Time from a message's due time to the start of its handler.", "queue"
        ).of(queue)
        self.handled = registry.histogram(name + "handler_seconds", "Run time of handlers.", "queue").of(queue)

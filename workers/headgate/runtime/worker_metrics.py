"""What a worker counts. docs/workers.md lists these for people."""

from __future__ import annotations

from headgate.telemetry.metrics import Registry


class WorkerMetrics:
    """Of one worker on one queue."""

    def __init__(self, registry: Registry, queue: str) -> None:
        self.registry = registry
        name = "headgate_worker_"
        count = registry.counter
        self.received = count(name + "received", "Messages received.", "queue").of(queue)
        self.acked = count(name + "acked", "Messages handled and settled.", "queue").of(queue)
        self.nacked = count(name + "nacked", "Messages given back to be delivered again.", "queue").of(queue)
        self.dead = count(
            name + "dead", "Messages sent to the dead letter queue at once, or at their last receive.", "queue"
        ).of(queue)
        self.lost = count(name + "lost", "Messages whose lease or visibility ended in hand.", "queue").of(queue)
        self.returned = count(name + "returned", "Messages given back without a try.", "queue").of(queue)
        self.suspects = count(name + "suspects", "Messages run apart because a process died of one.", "queue").of(
            queue
        )
        self.child_deaths = count(name + "child_deaths", "Processes that died of a message.", "queue").of(queue)
        failures = count(
            name + "settle_failures", "Settles that were stale, or whose outcome is unknown.", "queue", "result"
        )
        self.settle_stale = failures.of(queue, "stale")
        self.settle_unknown = failures.of(queue, "unknown")
        self.receive_failures = count(name + "receive_failures", "Receives that failed.", "queue").of(queue)
        self.lag = registry.histogram(
            name + "lag_seconds", "From a message's due moment to the start of its handler.", "queue"
        ).of(queue)
        self.handled = registry.histogram(name + "handler_seconds", "How long handlers took.", "queue").of(queue)

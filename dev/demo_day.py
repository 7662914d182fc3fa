"""The content of the demo, on any cluster: a queue from zero to many workers and back, a counter, a dead letter.

Each step prints the command that a person would type, runs exactly it, and waits for its result, with a time limit.
"""

from __future__ import annotations

import json
import time

from dev.demo_shell import Shell, Watch, print_line
from headgate.local.progress import duration, print_progress, step

MESSAGES = 20_000
QUEUE, DEAD, COUNTER = "shop/emails", "shop/emails-dead", "shop/page-views"
POISON = '{"to": "", "order": "X-1"}'
PAYLOAD = '{"to": "customer-{n}@example.org", "order": {n}}'
RELEASED = json.dumps([{"op": "replace", "path": "/spec/consumers/0/handler", "value": "mailer:send_or_ask"}])
APPLY = "kubectl apply -f examples/shop.yaml"
PUT = f"headgate put {QUEUE} '{PAYLOAD}' --count {MESSAGES} --quiet"
PUT_POISON = f"headgate put {QUEUE} '{POISON}' --quiet"
COUNT, SHOW_COUNTER = "python examples/python/count.py", f"headgate counter top {COUNTER} --limit 3"
SHOW_DEAD = f"headgate peek {DEAD}"
RELEASE = f"kubectl patch queue emails -n shop --type=json -p '{RELEASED}'"
REDRIVE = "kubectl headgate redrive queue/emails-dead -n shop"
LINES = (APPLY, PUT, PUT_POISON, COUNT, SHOW_COUNTER, SHOW_DEAD, RELEASE, REDRIVE)
"""All that the demo types."""
READY_WITHIN_S, DRAINED_WITHIN_S, ASLEEP_WITHIN_S, DEAD_WITHIN_S = 180.0, 600.0, 240.0, 240.0


class Day:
    """A cluster with the operator, a Cassandra, and a person at a shell."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._kubectl = shell.kubectl
        self._most_workers = 0

    def show(self) -> None:
        """All of it."""
        self._apply()
        watch = Watch(self._kubectl)
        try:
            self._put()
            self._drain()
            self._count()
            self._die()
            self._sleep()
            self._redrive()
        finally:
            watch.end()

    def _apply(self) -> None:
        with step("declare two queues and a counter", expect_s=15):
            named = ("queue/emails", "queue/emails-dead", "counter/page-views")
            self._shell.apply(APPLY, *named, within_s=READY_WITHIN_S)

    def _put(self) -> None:
        with step(f"put {MESSAGES:,} messages", expect_s=5):
            self._shell.type(PUT)
        with step("put one that its handler refuses", expect_s=2):
            self._shell.type(PUT_POISON)

    def _drain(self) -> None:
        began = time.monotonic()
        with step("workers start, as the queue's status shows, and handle them all", expect_s=30):
            self._shell.wait(lambda: self._workers() > 0, READY_WITHIN_S, "a worker that is ready")
            self._shell.wait(self._is_drained, DRAINED_WITHIN_S, "an empty queue")
        took = duration(time.monotonic() - began)
        print_progress(f"      {MESSAGES:,} handled {took} after the last put, including the workers' start")

    def _count(self) -> None:
        with step("count page views", expect_s=5):
            print_line(self._shell.type(COUNT))
            print_line(self._shell.type(SHOW_COUNTER))

    def _die(self) -> None:
        with step("the refused message goes to the dead-letter queue", expect_s=15):
            self._shell.wait(lambda: self._shell.held(DEAD) == 1, DEAD_WITHIN_S, "a dead letter")
            print_line(self._shell.type(SHOW_DEAD))

    def _sleep(self) -> None:
        with step("the operator scales the idle workers to zero", expect_s=35):
            self._shell.wait(lambda: self._workers() == 0, ASLEEP_WITHIN_S, "no worker")
        print_progress(f"      workers: 0, up to {self._most_workers}, and 0 again")

    def _redrive(self) -> None:
        with step("fix the handler by a release", expect_s=5):
            print_line(self._shell.type(RELEASE))
            self._shell.wait(self._is_released, READY_WITHIN_S, "the new release")
        with step("redrive the dead letter", expect_s=10):
            print_line(self._shell.type(REDRIVE))
        with step("a worker starts and handles it", expect_s=15):
            self._shell.wait(self._is_over, DRAINED_WITHIN_S, "two empty queues")

    def _is_drained(self) -> bool:
        """All but the one that fails again and again."""
        self._workers()
        return self._shell.held(QUEUE) <= 1

    def _is_over(self) -> bool:
        """Nothing is left in either queue."""
        return self._shell.held(DEAD) == 0 and self._shell.held(QUEUE) == 0

    def _workers(self) -> int:
        """The number of ready ones, from the queue's status."""
        consumers = self._kubectl.get("queue", "emails").get("status", {}).get("consumers") or [{}]
        ready = int(consumers[0].get("ready", 0))
        self._most_workers = max(self._most_workers, ready)
        return ready

    def _is_released(self) -> bool:
        queue = self._kubectl.get("queue", "emails")
        return bool(queue["status"].get("observedGeneration") == queue["metadata"]["generation"])

"""What the demo shows, on whatever ground: a queue from none to many workers and back, a counter, a dead letter.

Each step says the command that a person would type, runs it, and waits for what it promises, within a bound.
"""

from __future__ import annotations

import json
import time

from dev.demo_ground import ROOT, SHOP, VENV
from dev.demo_shell import NAMESPACE, Shell, Watch, tell
from headgate.testing.progress import duration, say, step

MESSAGES = 20_000
QUEUE, DEAD, COUNTER = "shop/emails", "shop/emails-dead", "shop/page-views"
POISON = '{"to": "", "order": "X-1"}'
RELEASED = json.dumps([{"op": "replace", "path": "/spec/consumers/0/handler", "value": "mailer:send_or_ask"}])
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
        with step("kubectl apply -f examples/shop.yaml", expect_s=15):
            named = ("queue/emails", "queue/emails-dead", "counter/page-views")
            self._shell.apply(SHOP, *named, within_s=READY_WITHIN_S)

    def _put(self) -> None:
        payload = '{"to": "customer-{n}@example.org", "order": {n}}'
        with step(f"headgate send --queue {QUEUE} '{payload}' --count {MESSAGES}"):
            self._shell.headgate("send", "--queue", QUEUE, payload, "--count", str(MESSAGES), "--quiet")
        with step(f"and one that cannot be sent: headgate send --queue {QUEUE} '{POISON}'"):
            self._shell.headgate("send", "--queue", QUEUE, POISON, "--quiet")

    def _drain(self) -> None:
        began = time.monotonic()
        with step("workers start, as kubectl get queues -w shows, and handle them all", expect_s=30):
            self._shell.wait(lambda: self._workers() > 0, READY_WITHIN_S, "a ready worker")
            self._shell.wait(self._is_drained, DRAINED_WITHIN_S, "an empty queue")
        took = duration(time.monotonic() - began)
        say(f"      {MESSAGES:,} handled {took} after the last put, including the workers' start")

    def _count(self) -> None:
        program = ROOT / "examples" / "python" / "count.py"
        with step(f"count: {program.relative_to(ROOT)}; headgate counter top {COUNTER}"):
            tell(self._shell.run([str(VENV / "bin" / "python"), str(program)]))
            tell(self._shell.headgate("counter", "top", COUNTER, "--limit", "3"))

    def _die(self) -> None:
        with step(f"the failed message moves to the dead-letter queue: headgate peek --queue {DEAD}", expect_s=15):
            self._shell.wait(lambda: self._shell.held(DEAD) == 1, DEAD_WITHIN_S, "a dead letter")
            tell(self._shell.headgate("peek", "--queue", DEAD))

    def _sleep(self) -> None:
        with step("without messages the workers stop", expect_s=35):
            self._shell.wait(lambda: self._workers() == 0, ASLEEP_WITHIN_S, "no worker")
        say(f"      workers: 0, up to {self._most_workers}, and 0 again")

    def _redrive(self) -> None:
        with step("a release fixes the handler: kubectl patch queue emails ... mailer:send_or_ask"):
            self._kubectl.run("patch", "queue", "emails", "--type=json", "-p", RELEASED)
            self._shell.wait(self._is_released, READY_WITHIN_S, "the new release")
        with step("kubectl headgate redrive queue/emails-dead -n shop", expect_s=10):
            plugin = [str(VENV / "bin" / "kubectl-headgate"), "redrive", "queue/emails-dead"]
            tell(self._shell.run([*plugin, "-n", NAMESPACE, *self._shell.context]))
        with step("a worker starts for it and handles it", expect_s=15):
            self._shell.wait(self._is_over, DRAINED_WITHIN_S, "two empty queues")

    def _is_drained(self) -> bool:
        """All but the one that fails again and again."""
        self._workers()
        return self._shell.held(QUEUE) <= 1

    def _is_over(self) -> bool:
        """Nothing is left in either queue."""
        return self._shell.held(DEAD) == 0 and self._shell.held(QUEUE) == 0

    def _workers(self) -> int:
        """How many are ready, as the queue's status tells it."""
        consumers = self._kubectl.get("queue", "emails").get("status", {}).get("consumers") or [{}]
        ready = int(consumers[0].get("ready", 0))
        self._most_workers = max(self._most_workers, ready)
        return ready

    def _is_released(self) -> bool:
        queue = self._kubectl.get("queue", "emails")
        return bool(queue["status"].get("observedGeneration") == queue["metadata"]["generation"])

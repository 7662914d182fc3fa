"""What the demo shows, on whatever ground: a queue from none to many workers and back, a counter, a dead letter.

Each step says the command that a person would type, runs it, and waits for what it promises, within a bound.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.cluster.kubectl import Kubectl
from dev.demo_ground import ROOT, SHOP, VENV, Connection
from penstock.errors import Surroundings
from penstock.testing.processes import wait_until
from penstock.testing.progress import duration, say, step

MESSAGES = 20_000
NAMESPACE, QUEUE, DEAD, COUNTER = "shop", "shop/emails", "shop/emails-dead", "shop/page-views"
POISON = '{"to": "", "order": "X-1"}'
RELEASED = json.dumps([{"op": "replace", "path": "/spec/consumers/0/handler", "value": "mailer:send_or_ask"}])
READY_WITHIN_S, DRAINED_WITHIN_S, ASLEEP_WITHIN_S, DEAD_WITHIN_S = 180.0, 600.0, 240.0, 240.0


class Watch:
    """`kubectl get queues -w` in the background: each line is shown that says more than its age."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._process = subprocess.Popen(kubectl.command("get", "queues", "-w"), stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        last: dict[str, list[str]] = {}
        for line in self._process.stdout:
            name, *told = line.split()[:-1]
            if last.get(name) != told:
                say(f"      {line.rstrip()}")
            last[name] = told

    def end(self) -> None:
        """No more of it."""
        self._process.terminate()
        self._process.wait()
        self._reader.join(timeout=5)


class Day:
    """A cluster with the operator, a Cassandra, and a person at a shell."""

    def __init__(self, kubectl: Kubectl, connection: Connection) -> None:
        self._kubectl = kubectl.in_namespace(NAMESPACE)
        path = f"{Path(kubectl.program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        told = {"KUBECONFIG": kubectl.kubeconfig, "PATH": path}
        self._environment: Mapping[str, str] = {**os.environ, **connection, **told}
        self._context = [f"--context={kubectl.context}"] if kubectl.context else []
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
            for line in self._kubectl.run("apply", "-f", str(SHOP)).splitlines():
                say(f"      {line}")
            ready = ("--for=condition=Ready", f"--timeout={READY_WITHIN_S:.0f}s")
            named = ("queue/emails", "queue/emails-dead", "counter/page-views")
            self._kubectl.run("wait", *ready, *named, timeout_s=READY_WITHIN_S + 30)

    def _put(self) -> None:
        payload = '{"to": "customer-{n}@example.org", "order": {n}}'
        with step(f"penstock send --queue {QUEUE} '{payload}' --count {MESSAGES}"):
            self._penstock("send", "--queue", QUEUE, payload, "--count", str(MESSAGES), "--quiet")
        with step(f"and one that can not be sent: penstock send --queue {QUEUE} '{POISON}'"):
            self._penstock("send", "--queue", QUEUE, POISON, "--quiet")

    def _drain(self) -> None:
        began = time.monotonic()
        with step("workers come, as kubectl get queues -w shows it, and handle them all", expect_s=30):
            self._wait(lambda: self._workers() > 0, READY_WITHIN_S, "a worker that is ready")
            self._wait(self._is_drained, DRAINED_WITHIN_S, "an empty queue")
        took = duration(time.monotonic() - began)
        say(f"      {MESSAGES:,} handled {took} after the last put, the workers' start included")

    def _count(self) -> None:
        program = ROOT / "examples" / "python" / "count.py"
        with step(f"count: {program.relative_to(ROOT)}; penstock counter top {COUNTER}"):
            self._tell(self._run([str(VENV / "bin" / "python"), str(program)]))
            self._tell(self._penstock("counter", "top", COUNTER, "--limit", "3"))

    def _die(self) -> None:
        with step(f"the one that fails comes to the dead letter queue: penstock peek --queue {DEAD}", expect_s=15):
            self._wait(lambda: self._held(DEAD) == 1, DEAD_WITHIN_S, "a dead letter")
            self._tell(self._penstock("peek", "--queue", DEAD))

    def _sleep(self) -> None:
        with step("with nothing to do the workers go", expect_s=35):
            self._wait(lambda: self._workers() == 0, ASLEEP_WITHIN_S, "no worker")
        say(f"      workers: 0, up to {self._most_workers}, and 0 again")

    def _redrive(self) -> None:
        with step("the handler is mended by a release: kubectl patch queue emails ... mailer:send_or_ask"):
            self._kubectl.run("patch", "queue", "emails", "--type=json", "-p", RELEASED)
            self._wait(self._is_released, READY_WITHIN_S, "the new release")
        with step("kubectl penstock redrive queue/emails-dead -n shop", expect_s=10):
            plugin = [str(VENV / "bin" / "kubectl-penstock"), "redrive", "queue/emails-dead"]
            self._tell(self._run([*plugin, "-n", NAMESPACE, *self._context]))
        with step("a worker comes for it, and it is handled", expect_s=15):
            self._wait(lambda: self._held(DEAD) == 0 and self._held(QUEUE) == 0, DRAINED_WITHIN_S, "two empty queues")

    def _is_drained(self) -> bool:
        """All but the one that fails again and again."""
        self._workers()
        return self._held(QUEUE) <= 1

    def _workers(self) -> int:
        """How many are ready, as the queue's status tells it."""
        consumers = self._kubectl.get("queue", "emails").get("status", {}).get("consumers") or [{}]
        ready = int(consumers[0].get("ready", 0))
        self._most_workers = max(self._most_workers, ready)
        return ready

    def _is_released(self) -> bool:
        queue = self._kubectl.get("queue", "emails")
        return bool(queue["status"].get("observedGeneration") == queue["metadata"]["generation"])

    def _held(self, queue: str) -> int:
        """Messages that are there, due, in hands or later."""
        told: dict[str, Any] = json.loads(self._penstock("stats", "--queue", queue, "--json"))
        return int(told["backlog"]) + int(told["in_flight"]) + int(told["delayed"])

    def _penstock(self, *arguments: str) -> str:
        return self._run([str(VENV / "bin" / "penstock"), *arguments])

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, env=dict(self._environment), capture_output=True, text=True, check=False, timeout=180, cwd=ROOT
        )
        if done.returncode != 0:
            told = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it said nothing"]
            name = f"{Path(command[0]).name} {command[1]}"
            raise Surroundings("a command of the demo failed", remedy="see what it says", command=name, said=told[-1])
        return done.stdout

    def _tell(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            say(f"      {line}")

    def _wait(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        if not wait_until(holds, timeout_s=within_s, every_s=0.5):
            told = self._kubectl.run("get", "queues,deployments,pods").strip().splitlines()
            raise Surroundings(
                "the demo waited in vain",
                remedy="kubectl penstock why queue/emails -n shop; make down ends it",
                waited_for=what,
                seconds=round(within_s),
                seen="; ".join(told[-6:]),
            )

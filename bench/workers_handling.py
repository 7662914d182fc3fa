"""The handling side of bench-workers: a real `headgate worker`, a process of its own, watched by its metrics.

Its CPU time counts as this process's, whose child it is; that of watching it is counted too, and is small. At the end
of a window it gets a signal, has to end cleanly, and must have handled every message.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from bench.client_process import ROOT
from bench.contender import ClientReport, Contender, Job, Ran
from bench.workers_handlers import NOTES
from bench.workers_work import HANDLERS, Handling, Work, work_of
from headgate.errors import Bug, Unavailable

CHECK_S_MIN, CHECK_S_MAX = 0.05, 0.5
"""A read of its metrics costs a worker a millisecond or two: it is read less often while the end is far."""
LANES_WITHIN_S = 60.0
TOUCHED_AFTER_S = 3.0
"""Requirements on lanes apply to those in use: a lane is, a second after it was taken."""
ENDS_WITHIN_S = 40.0
SETTLED = ("acked_total", "settle_failures_total")
"""If the machine stands still for a second it is not known whether some are settled: they count as failed."""
BEGINS = "worker started"


class WorkerProcess:
    """One `headgate worker`."""

    def __init__(self, work: Work, environment: Mapping[str, str], folder: Path) -> None:
        self._log = folder / f"{work.queue.replace('/', '-')}.log"
        self.notes = self._log.with_suffix(".json")
        command = [sys.executable, "-m", "headgate.cli.main", "worker", work.queue]
        command += ["--handler", f"{HANDLERS}:{work.handling.value}", "--health", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env={**environment, NOTES: str(self.notes)}, stdout=log, stderr=log
            )
        self._port = 0

    @property
    def pid(self) -> int:
        """Of the worker."""
        return self._process.pid

    def until(self, metrics: Collection[str], least: float, within_s: float) -> float:
        """Wait until the sum of these has reached this value; returns the time at which it had."""
        began_s = time.perf_counter()
        while True:
            asked_s = time.perf_counter()
            output = self.metrics()
            value = sum(output.get(metric, 0.0) for metric in metrics)
            if value >= least:
                return asked_s
            if self._process.poll() is not None:
                raise Bug("the worker ended", log=self.last_lines())
            if asked_s > began_s + within_s:
                raise Unavailable("the worker makes no progress", is_at=value, of=least, log=self.last_lines())
            left_s = (least / value - 1) * (asked_s - began_s) if value else 0.0
            time.sleep(min(max(left_s / 2, CHECK_S_MIN), CHECK_S_MAX))

    def metrics(self) -> dict[str, float]:
        """Its own, summed over labels, by the name after `headgate_worker_`; none before it listens."""
        if not self._port:
            self._port = self._find_port()
        if not self._port:
            return {}
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as page:
            return parse_metrics(page.read().decode())
        return {}

    def end(self) -> None:
        """SIGTERM, and it has to end well."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Bug("the worker did not stop", log=self.last_lines()) from None
        if code != 0:
            raise Bug("the worker failed", code=code, log=self.last_lines())

    def kill(self) -> None:
        """At once, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> str:
        """Its last log lines."""
        return "; ".join(self._log.read_text(errors="replace").splitlines()[-3:])

    def _find_port(self) -> int:
        for line in self._log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                text = json.loads(line)
                if text.get("message") == BEGINS:
                    return int(text["health_port"])
        return 0


class HandlingContender(Contender):
    """Workers, one after the other, each with a queue of its own."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-bench-worker-")
        self._worker: WorkerProcess | None = None
        self._work: Work | None = None

    def prepare(self, job: Job) -> int:
        """Start a worker and wait until it holds all lanes; its process id."""
        self._stop()
        work = work_of(job)
        worker = self._worker = WorkerProcess(work, self._environment, Path(self._folder.name))
        worker.until(("lanes",), work.lanes, LANES_WITHIN_S)
        if work.handling is not Handling.NOTHING:
            time.sleep(TOUCHED_AFTER_S)
        return worker.pid

    def run(self, job: Job) -> Ran:
        """Wait until all messages are settled, or where there are none, this many seconds."""
        self._work = work = work_of(job)
        worker = self._current()
        began_s = time.perf_counter()
        if not work.messages:
            time.sleep(work.seconds)
            return Ran(time.perf_counter() - began_s, 0, 0, 0)
        ended_s = worker.until(SETTLED, work.messages, work.seconds)
        acked = int(worker.metrics().get("acked_total", 0))
        return Ran(ended_s - began_s, acked, acked, work.messages - acked)

    def report(self) -> ClientReport:
        """Every message was handled, and the worker ended well. Of the lanes: the longest wait of the middle one, and
        of the worst."""
        worker, work = self._current(), self._work
        if work is None:
            raise Bug("the run did nothing")
        handled = worker.metrics().get("handler_seconds_count", 0)
        if handled < work.messages:
            raise Bug("some messages were not handled", handled=handled, messages=work.messages)
        worker.end()
        self._worker = None
        if work.handling is Handling.NOTHING:
            return ClientReport(0.0, 0.0, work.messages)
        longest_us = list(json.loads(worker.notes.read_text(encoding="utf-8")).values())
        if len(longest_us) != work.lanes:
            raise Bug("some lanes were not served", served=len(longest_us), lanes=work.lanes)
        return ClientReport(statistics.median(longest_us) / 1000, max(longest_us) / 1000, work.messages)

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _current(self) -> WorkerProcess:
        if self._worker is None:
            raise Bug("a run without a worker")
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def parse_metrics(text: str) -> dict[str, float]:
    """Samples of a worker in Prometheus' form, summed over labels; those of histograms by their buckets are left
    out."""
    prefix = "headgate_worker_"
    entries: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(prefix):
            sample, _, value = line.rpartition(" ")
            name = sample.partition("{")[0].removeprefix(prefix)
            if not name.endswith("_bucket"):
                entries[name] = entries.get(name, 0.0) + float(value)
    return entries


def open_contender(environment: Mapping[str, str]) -> HandlingContender:
    """Nothing runs yet."""
    return HandlingContender(dict(os.environ) | dict(environment))

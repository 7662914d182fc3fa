"""The interface of a client process: work for a bounded time, then report the rest.

Only `run` is measured; percentiles and the check of receipts (every acknowledged write exists) belong in the other
call.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Job = dict[str, Any]
"""The request to a contender: names and numbers, as JSON carries them."""


@dataclass(frozen=True)
class Ran:
    """The work of a measured run. Rows are rows of messages, however many a request holds."""

    wall_s: float
    rows: int
    requests: int
    failed: int


@dataclass(frozen=True)
class ClientReport:
    """The results that may be computed after it."""

    p50_ms: float
    p99_ms: float
    receipts_checked: int


class Contender(ABC):
    """One way to do the work, in a process of its own."""

    @abstractmethod
    def prepare(self, job: Job) -> int:
        """Create the data that the work reads; returns the number of rows."""

    @abstractmethod
    def run(self, job: Job) -> Ran:
        """Do the work until its time or its count is up."""

    @abstractmethod
    def report(self) -> ClientReport:
        """Of the last run. Raises Bug when an acknowledged write is missing."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values is (nearest rank); of at least one value."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


@dataclass
class Tally:
    """Counts of one run. Requests are timed by the caller, from sending to answer."""

    seconds: float
    requests_max: int
    begun: int = 0
    requests: int = 0
    rows: int = 0
    failed: int = 0
    first_error: str = ""
    latencies_s: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    wall_s: float = 0.0

    def may_begin(self) -> bool:
        """Whether another request is to be sent; counts it."""
        if self.begun >= self.requests_max or time.perf_counter() - self.started >= self.seconds:
            return False
        self.begun += 1
        return True

    def done(self, sent: float, rows: int) -> None:
        """A request was answered as it should."""
        self.latencies_s.append(time.perf_counter() - sent)
        self.requests += 1
        self.rows += rows

    def fail(self, error: BaseException) -> None:
        """A request was not."""
        self.failed += 1
        self.first_error = self.first_error or f"{type(error).__name__}: {error}"

    def end(self) -> Ran:
        """Stop the clock."""
        self.wall_s = time.perf_counter() - self.started
        return Ran(self.wall_s, self.rows, self.requests, self.failed)

    def summarize(self, receipts_checked: int) -> ClientReport:
        """The percentiles of the answered requests."""
        return ClientReport(
            percentile(self.latencies_s, 0.50) * 1000, percentile(self.latencies_s, 0.99) * 1000, receipts_checked
        )

"""bench-counters: the requests to a contender, and names that contenders share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from uuid import UUID, uuid4

from bench.contender import Job
from headgate.counters.model.settings import CounterSettings
from headgate.counters.model.tables import CounterTables, shared_tables
from headgate.store.model.table import Table

NATIVE_TABLE = "bench_native_counters"
SLICE_ROWS = 20
"""Live mutators of the key that is read."""
SLICE_KEY = "read"
DAY_US = 86_400_000_000
OLD_US = (9 * DAY_US, 8 * DAY_US)
"""The age of the mutators whose shards are collected: two of each key."""


class Do(Enum):
    """The kind of a run."""

    COUNT = "count"
    READ = "read"
    COLLECT = "collect"


@dataclass(frozen=True)
class CounterWork:
    """One window of one contender."""

    do: Do
    counter: UUID
    seconds: float
    keys: int = 1
    in_flight: int = 1_000
    updates_max: int = 10**9
    ambiguous: float = 0.0
    """The share of requests whose answer is lost: of half of these the request is, too."""

    def job(self) -> Job:
        """As JSON carries it."""
        return {**asdict(self), "do": self.do.value, "counter": str(self.counter)}

    @classmethod
    def of(cls, job: Job) -> CounterWork:
        """Back again."""
        return cls(**{**job, "do": Do(job["do"]), "counter": UUID(job["counter"])})


def new_counter() -> UUID:
    """A fresh counter."""
    return uuid4()


def settings_of(counter: UUID) -> CounterSettings:
    """As a resource without any settings makes it."""
    return CounterSettings(counter, "bench/counter", shared_tables())


def tables() -> tuple[Table, ...]:
    """All tables of counters."""
    result: CounterTables = shared_tables()
    return result.shards, result.tokens, result.minutes, result.windows, result.passes

"""The work of bench-timeline: which queue, which messages, what a client process is asked for.

Every window works on a queue of its own, so that nothing of one window is met by the next. Tables are shared, unless
a part says otherwise. It knows no engine call and no driver; both contenders read their jobs from here.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from enum import StrEnum

from bench.contender import Job
from bench.store_work import message
from headgate.engines.timeline.settings import Generation, TimelineSettings
from headgate.engines.timeline.tables import ALL, TimelineTables, dedicated_tables, shared_tables
from headgate.store.table import Table

LANES = 4
SECOND_US = 1_000_000
TIMED_ONE_IN = 16
"""Of many callers one in so many is timed: reading a clock for each would be a good part of what is measured."""
STAMP_BYTES = 16
"""A stamped message begins with the moment of its put, in microseconds."""
NO_END = 2**40
WORKERS_VISIBILITY_US = 8 * SECOND_US
"""As `headgate worker` receives: no longer than its lease is trusted (decision 8)."""


class Do(StrEnum):
    """What one run of a client process is."""

    PUT = "put"
    """Put for so many seconds, or so many messages."""
    PACE = "pace"
    """Put so many messages a second, singly, each stamped."""
    CONSUME = "consume"
    """Receive and acknowledge so many messages; what is timed is how late each came."""
    DRAIN = "drain"
    """The same, one after the other; what is timed is each call of receive that brought something."""
    SLICES = "slices"
    """Read from the position of each lane, as the owner's reader does, and take nothing."""


@dataclass(frozen=True)
class Work:
    """One run. `queue` and `creation` are uuids in hexadecimal; without a creation the tables are shared."""

    do: Do
    queue: str
    seconds: float
    messages_max: int = NO_END
    callers: int = 1
    batch: int = 1
    delay_us: int = 0
    """Due this long after the put; 0 is at once."""
    rate: int = 0
    visibility_us: int | None = None
    """How long what is received is hidden; None is as long as the queue says."""
    creation: str = ""
    beside: bool = False
    """Whether another process does the work that counts: what this one did is neither rows nor latencies."""
    keeps: bool = False
    """Whether the queue stays open, with its lanes, for the next run."""

    def job(self) -> Job:
        """As a client process is asked for it."""
        return asdict(self)


def work_of(job: Job) -> Work:
    """What a client process was asked for."""
    return Work(**{**job, "do": Do(job["do"])})


def new_queue() -> str:
    """A name that nothing else has."""
    return uuid.uuid4().hex


def tables_of(creation: str) -> TimelineTables:
    """The tables of a queue."""
    return dedicated_tables(uuid.UUID(hex=creation)) if creation else shared_tables()


def shared() -> list[Table]:
    """What has to be there for queues with shared tables."""
    return [table.named(f"timeline_{table.name}") for table in ALL]


def settings_of(work: Work) -> TimelineSettings:
    """The queue of a run: four lanes, all else as a queue has it that says nothing."""
    return TimelineSettings(
        uuid.UUID(hex=work.queue),
        "bench",
        tables_of(work.creation),
        (Generation(1, LANES),),
        receipt_key=b"a key of thirty-two bytes, or so",
    )


PAYLOADS = [message(number) for number in range(1_000)]


def stamped(payload: bytes, now_us: int) -> bytes:
    """As long as before, and bearing the moment of its put."""
    return b"%0*d" % (STAMP_BYTES, now_us) + payload[STAMP_BYTES:]


def stamp_of(payload: bytes) -> int:
    """That moment."""
    return int(payload[:STAMP_BYTES])

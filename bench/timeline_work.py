"""The work of bench-timeline: the queue, the messages, the request to a client process.

Every window works on a queue of its own, so that no window meets messages of another. Tables are shared, unless a
part sets otherwise. It knows no engine call and no driver; both contenders read their jobs from this module.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from enum import StrEnum

from bench.contender import Job
from bench.store_work import message
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.model.tables import ALL, TimelineTables, dedicated_tables, shared_tables
from headgate.store.model.table import Table

LANES = 4
SECOND_US = 1_000_000
TIMED_ONE_IN = 16
"""Of many callers one in this many is timed: reading a clock for each would be a good part of the measured work."""
STAMP_BYTES = 16
"""A stamped message begins with the time of its put, in microseconds."""
NO_END = 2**40
WORKERS_VISIBILITY_US = 8 * SECOND_US
"""As `headgate worker` receives: no longer than its lease is trusted (decision 8)."""


class Do(StrEnum):
    """The kind of one run of a client process."""

    PUT = "put"
    """Put for this many seconds, or this many messages."""
    PACE = "pace"
    """Put this many messages per second, singly, each stamped."""
    CONSUME = "consume"
    """Receive and acknowledge this many messages; the lateness of each is measured."""
    DRAIN = "drain"
    """The same, one after the other; each call of receive that returned messages is timed."""
    SLICES = "slices"
    """Read from the position of each lane, as the owner's reader does, and take nothing."""
    HOLD = "hold"
    """Hold lanes in which nothing lies."""


class Form(StrEnum):
    """The payload of a single put, and its encoder."""

    BYTES = "bytes"
    TYPED = "bytes with a content type"
    ENCODED = "dicts, encoded by the caller"
    DICTS = "dicts"


class Keys(StrEnum):
    """The once keys of a producer's messages."""

    EACH = "each for itself"
    """Keys without a scope, as an application passes them."""
    SCOPED = "in scopes"
    """A scope for each call, as bulk writers pass them."""
    REPEATED = "repeated"
    """As in scopes, and each call has the keys of the first: a message that was put before."""


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
    keys: Keys | None = None
    form: Form | None = None
    """Messages are built from this as the SDK builds them; None: they are the engine's."""
    visibility_us: int | None = None
    """How long a received message is hidden; None is the queue's own setting."""
    creation: str = ""
    baseline_name: bool = False
    """Whether another process does the work that counts: this one's rows and latencies do not."""
    keeps: bool = False
    """Whether the queue stays open, with its lanes, for the next run."""
    lanes: int = LANES
    payload_bytes: int = 0
    """Of a stamped message; 0: as all others."""
    slow_one_in: int = 0
    """The handler of one message in this many takes longer than the window; 0: of none."""

    def job(self) -> Job:
        """In the form of a client process's request."""
        return asdict(self)


def work_of(job: Job) -> Work:
    """The request to a client process."""
    form, keys = job.get("form"), job.get("keys")
    own = {"do": Do(job["do"]), "form": form and Form(form), "keys": keys and Keys(keys)}
    return Work(**{**job, **own})


def new_queue() -> str:
    """A unique name."""
    return uuid.uuid4().hex


def tables_of(creation: str) -> TimelineTables:
    """The tables of a queue."""
    return dedicated_tables(uuid.UUID(hex=creation)) if creation else shared_tables()


def shared() -> list[Table]:
    """The requirements of queues with shared tables."""
    return [table.named(f"timeline_{table.name}") for table in ALL]


def settings_of(work: Work) -> TimelineSettings:
    """The queue of a run: all but its lanes by default."""
    return TimelineSettings(
        uuid.UUID(hex=work.queue),
        "bench",
        tables_of(work.creation),
        (GenerationSettings(1, work.lanes),),
        receipt_key=b"a key of thirty-two bytes, or so",
    )


PAYLOADS = [message(number) for number in range(1_000)]
DICTS = [json.loads(payload) for payload in PAYLOADS]


def stamped(payload: bytes, now_us: int) -> bytes:
    """Of the same length, with the time of its put."""
    return b"%0*d" % (STAMP_BYTES, now_us) + payload[STAMP_BYTES:]


def padded(payload: bytes, size: int) -> bytes:
    """With zeros, to this size."""
    return payload.ljust(size, b"0")


def stamp_of(payload: bytes) -> int:
    """That time."""
    return int(payload[:STAMP_BYTES])

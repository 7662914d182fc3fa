"""The values that the SDK returns: times are `datetime` in UTC, lengths of time are seconds (`..._s`).

Engines count in microseconds. Their values are converted here, so that no microseconds reach an application. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import TypeVar

from headgate.client.catalogue.overview import QueueOverview
from headgate.client.model.payloads import PayloadForms
from headgate.client.model.times import datetime_of
from headgate.counters.collect.collector import PassReport
from headgate.engines import contract
from headgate.expiry import SECOND_US

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PeekedMessage(PayloadForms):
    """A live message that `peek` shows without receiving it."""

    id: str
    payload: bytes
    attributes: contract.Attributes
    group: str | None
    due: datetime
    put_at: datetime
    attempt: int
    """The number of recorded deliveries."""
    state: contract.Visibility
    hidden_until: datetime | None
    """When a message in flight is delivered again. None: it is not hidden."""


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """The state of one message, and the places where the engine stored it."""

    id: str
    state: contract.MessageState
    places: tuple[str, ...] = ()
    """The first place, then each place that the message moved to, in the engine's notation."""
    due: datetime | None = None
    attempt: int = 0
    hidden_until: datetime | None = None


class RescheduleOutcome(Enum):
    """How a reschedule ended."""

    MOVED = "moved"
    """The message is delivered at the new time only."""
    TOO_LATE = "too late"
    """Nothing changed: the message may have been delivered."""
    MAYBE_TWICE = "maybe twice"
    """The message is delivered at the old time, at the new time, or at both."""


@dataclass(frozen=True, slots=True)
class RescheduleResult:
    """The outcome of a reschedule, and the id that the message has from now on."""

    outcome: RescheduleOutcome
    id: str | None
    """The id at the new time. None: nothing changed."""

    @property
    def moved(self) -> bool:
        """Whether the message is delivered at the new time only."""
        return self.outcome is RescheduleOutcome.MOVED


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane of a queue. `waiting` and `in_flight` are known in the process that owns the lane."""

    generation: int
    shard: int
    owner: str | None
    fencing_token: int
    settled_to: datetime
    """Every message that was due earlier is settled."""
    read_to: datetime
    """The owner has read no further; elsewhere as of the latest renewal."""
    renewed_at: datetime
    oldest_due: datetime | None
    is_mine: bool
    is_blocked: bool
    """Too much is settled out of order: the lane delivers nothing new until its oldest message is settled."""
    is_stopped: bool
    is_reserved: bool
    """A bulk job has reserved messages of the lane."""
    is_retired: bool
    waiting: int | None
    in_flight: int | None
    lease_left_s: float | None
    progress: int
    hidden: int
    settled_out_of_order: int
    unreadable_rows: int
    """Rows that were set aside, since their stored bytes cannot be read."""


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """How far repair of a queue is, by its own records."""

    is_running: bool
    passes: int
    last_pass: datetime | None
    checked_to: datetime | None
    """Everything that was due earlier had its first check."""
    overdue_since: datetime | None
    """Since when the oldest missing check has been due. None: none is missing."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The exact figures of one queue; each live message is counted once."""

    backlog: int
    in_flight: int
    delayed: int
    oldest_due: datetime | None
    lanes: tuple[LaneStatus, ...] = ()
    complete: bool = True
    """False: the queue holds more than one call counts."""
    repair: RepairProgress | None = None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of one pass of repair."""

    outcome: contract.PassEnd
    checked: int
    late: int
    """Rows of messages that their lane had passed without delivering them."""
    rewritten: int
    waiting: int
    lanes_retired: int
    generations_left: tuple[int, ...]
    overdue_since: datetime | None
    waits_for_replicas_since: datetime | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """The figures of one queue as its producers and workers last wrote them, a second or two ago."""

    name: str
    at: datetime
    """When the figures were read."""
    backlog: int | None
    """None: the queue has no active worker."""
    in_flight: int
    oldest_due: datetime | None
    rate_per_s: float
    workers: int
    lanes: int
    blocked_lanes: int
    unreadable_rows: int
    last_put: datetime | None
    next_due: datetime | None

    @property
    def oldest_age_s(self) -> float | None:
        """For how long the oldest unsettled message has been due."""
        return None if self.oldest_due is None else max(0.0, (self.at - self.oldest_due).total_seconds())


@dataclass(frozen=True, slots=True)
class CollectReport:
    """The result of one pass of the collector over a counter."""

    keys: int
    shards: int
    expired: int
    collected: int
    skipped: int
    """Keys for which not all replicas answered."""
    minutes_folded: int
    full: bool
    """The pass read every key."""
    refused: str | None
    waits: str | None
    unreachable: bool
    """The pass stopped early, since replicas are unavailable."""


# ---- from the engine's values


def _build(kind: type[T], value: object, **others: object) -> T:
    """The fields of the same name are copied; the others are given."""
    names = [each.name for each in fields(kind) if each.name not in others]  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: getattr(value, name) for name in names}, **others)


def _time_of(us: int | None) -> datetime | None:
    return None if us is None else datetime_of(us)


def _time_or_none(us: int) -> datetime | None:
    """Engines write 0 where there is no time."""
    return datetime_of(us) if us else None


def build_peeked(peeked: contract.Peeked) -> PeekedMessage:
    return _build(
        PeekedMessage,
        peeked,
        id=peeked.message_id,
        due=datetime_of(peeked.due_us),
        put_at=datetime_of(peeked.put_us),
        state=peeked.standing,
        hidden_until=_time_or_none(peeked.hidden_until_us),
    )


def build_status(location: contract.MessageLocation) -> MessageStatus:
    return _build(
        MessageStatus,
        location,
        id=location.message_id,
        state=location.fate,
        due=_time_or_none(location.due_us),
        hidden_until=_time_or_none(location.hidden_until_us),
    )


def build_reschedule_result(cancelled: contract.Cancelled, new_id: str | None) -> RescheduleResult:
    if cancelled is contract.Cancelled.CANCELLED:
        return RescheduleResult(RescheduleOutcome.MOVED, new_id)
    outcome = RescheduleOutcome.TOO_LATE if new_id is None else RescheduleOutcome.MAYBE_TWICE
    return RescheduleResult(outcome, new_id)


def build_stats(stats: contract.Stats) -> QueueStats:
    return _build(
        QueueStats,
        stats,
        oldest_due=_time_of(stats.oldest_due_us),
        lanes=tuple(map(_build_lane_status, stats.lanes)),
        repair=None if stats.repair is None else _build_repair_progress(stats.repair),
    )


def _build_lane_status(lane: contract.LaneStats) -> LaneStatus:
    return _build(
        LaneStatus,
        lane,
        fencing_token=lane.epoch,
        settled_to=datetime_of(lane.last_us),
        read_to=datetime_of(lane.read_to_us),
        renewed_at=datetime_of(lane.touched_us),
        oldest_due=_time_of(lane.oldest_due_us),
        is_blocked=lane.is_held,
        lease_left_s=None if lane.lease_left_us is None else lane.lease_left_us / SECOND_US,
        settled_out_of_order=lane.settled_above,
    )


def _build_repair_progress(standing: contract.RepairStanding) -> RepairProgress:
    return _build(
        RepairProgress,
        standing,
        is_running=standing.runs_now,
        last_pass=_time_of(standing.last_pass_us),
        checked_to=_time_of(standing.checked_to_us),
        overdue_since=_time_of(standing.owed_since_us),
    )


def build_repair_report(repaired: contract.Repaired) -> RepairReport:
    return _build(
        RepairReport,
        repaired,
        outcome=repaired.end,
        rewritten=repaired.put_again,
        overdue_since=_time_of(repaired.owed_us),
        waits_for_replicas_since=_time_of(repaired.waits_for_all_us),
    )


def build_summary(overview: QueueOverview) -> QueueSummary:
    figures = overview.figures
    return _build(
        QueueSummary,
        figures,
        name=overview.name,
        at=datetime_of(overview.at_us),
        oldest_due=_time_of(figures.oldest_us),
        rate_per_s=figures.rate,
        blocked_lanes=figures.held,
        unreadable_rows=figures.unreadable,
        last_put=_time_of(figures.put_us),
        next_due=_time_of(figures.next_due_us(overview.at_us)),
    )


def build_collect_report(report: PassReport) -> CollectReport:
    return _build(CollectReport, report, minutes_folded=report.minutes)

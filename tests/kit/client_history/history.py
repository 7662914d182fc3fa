"""The history of a queue's clients: what they asked, were answered and received, and what that is for each message.

It knows messages, receipts and answers, and imports no code of Headgate: what is judged does not judge itself.
A history is built from events, one JSON object each, which have `at` (us), `actor`, `what` and the facts of that
kind:

    putting      put, call, producer, content; group, once, scope, due_us; since_us
    put          put, message_id                acknowledged
    not put      put, sure                      sure: nothing was sent, so nothing may come
    receiving    call, hides_us                 a receive with this visibility begins
    received     call, how                      messages, cancelled (it gave nothing), failed (it may have given some)
    given        message_id, receipt, content, group, attempt, due_us, put_us, given_us, until_us, early;
                 epoch, suspect
    asking       settle, receipt, how           ack, nack, reject, extend; charged, hides_us
    answered     settle, answer                 done, stale, unknown
    job asking   settle, message_id             a bulk job settles a message of the range that it reserved
    cancelling   message_id                     replaced_by: what takes its place where the cancel comes too late
    cancelled    message_id                     it is promised never to come
    purging      purge
    purged       purge, before_us
    dead         message_id                     it is in the dead-letter queue
    keys forgotten                              the window of all once keys is over

Times are of one clock for all actors; `early` alone is judged by the receiver's own. `put`, `call`, `settle` and
`purge` are names that the recorder chooses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DONE, STALE, UNKNOWN = "done", "stale", "unknown"
ROUNDING_US = 2
"""Of two times by clocks that each round to a microsecond."""


@dataclass(eq=False)
class PutRecord:
    """A message on its way into the queue; `id` once it was acknowledged."""

    name: str
    call: str
    producer: str
    content: str
    began_us: int
    group: str | None = None
    once: str | None = None
    scope: str | None = None
    due_us: int | None = None
    era: int = 0
    """How often the windows of all once keys were over before."""
    id: str | None = None
    acknowledged_us: int | None = None
    is_unsent: bool = False

    @property
    def key(self) -> tuple[str | None, str] | None:
        """Its once key."""
        return None if self.once is None else (self.scope, self.once)


@dataclass(eq=False)
class DeliveryRecord:
    """`given_us` is when the queue handed it out, which may be long before its receiver noted it."""

    actor: str
    id: str
    receipt: str
    content: str
    group: str | None
    attempt: int
    due_us: int
    put_us: int
    given_us: int
    until_us: int
    is_early: bool
    epoch: int = 0
    suspect: bool = False


@dataclass(eq=False)
class SettleRecord:
    """A settle that was asked for, and its answer if one came. A job's has no receipt."""

    actor: str
    receipt: str | None
    how: str
    asked_us: int
    charged: bool = True
    hides_us: int = 0
    """For how long a nack, a reject or an extend hides the message."""
    answer: str | None = None
    answered_us: int | None = None


@dataclass
class PurgeRecord:
    """A purge that was asked for: `before_us` once it was answered."""

    asked_us: int
    before_us: int | None = None
    answered_us: int | None = None


@dataclass
class ReceiveRecord:
    """A call of receive, and how it ended; None: its process ended first, or it still waits."""

    actor: str
    began_us: int
    hides_us: int
    how: str | None = None
    ended_us: int | None = None

    @property
    def may_have_lost_one(self) -> bool:
        """Whether it may have been given a message that it did not return: its answer was lost, or it took longer
        than the message was hidden."""
        ended_us = 2**62 if self.ended_us is None else self.ended_us
        return self.how in (None, "failed") or ended_us - self.began_us > self.hides_us


@dataclass(eq=False)
class MessageRecord:
    """All that happened to one message."""

    id: str
    put: PutRecord | None = None
    deliveries: list[DeliveryRecord] = field(default_factory=list)
    settles: list[SettleRecord] = field(default_factory=list)
    by_jobs: list[SettleRecord] = field(default_factory=list)
    cancel_asked_us: int | None = None
    cancels: int = 0
    """How often that was asked for, by cancels and reschedules."""
    other: str | None = None
    """The message that it was to take the place of, when that came too late: one of the two comes, or both."""
    cancelled_us: int | None = None
    dead_us: list[int] = field(default_factory=list)
    """When it was found in the dead-letter queue."""

    @property
    def dead(self) -> int:
        """How many dead letters of it there are."""
        return len(self.dead_us)

    def finished_us(self) -> int | None:
        """When a consumer, or a job, first reported it done, to a queue that did not refuse."""
        asked = [each.asked_us for each in self.settles if each.how == "ack" and each.answer != STALE]
        return min([*asked, *(each.asked_us for each in self.by_jobs if each.answer != STALE)], default=None)

    def honoured(self) -> list[SettleRecord]:
        """The acknowledgements that were answered with done."""
        return [each for each in self.settles if each.how == "ack" and each.answer == DONE]

    def settles_of(self, delivery: DeliveryRecord) -> list[SettleRecord]:
        """Those of one delivery that were not refused."""
        return [each for each in self.settles if each.receipt == delivery.receipt and each.answer != STALE]

    def in_order(self) -> list[DeliveryRecord]:
        """Its deliveries by the time at which they were handed out."""
        return sorted(self.deliveries, key=lambda each: each.given_us)


class History:
    """All events, and what they make of each message."""

    def __init__(self) -> None:
        self.puts: list[PutRecord] = []
        self.messages: dict[str, MessageRecord] = {}
        self.purges: list[PurgeRecord] = []
        self.receives: list[ReceiveRecord] = []
        self.by_receipt: dict[str, MessageRecord] = {}
        self.began_us = self.ends_us = 0
        self.era = 0
        self._settles: dict[str, SettleRecord] = {}
        self._puts: dict[str, PutRecord] = {}
        self._purges: dict[str, PurgeRecord] = {}
        self._receives: dict[str, ReceiveRecord] = {}
        self._kinds = {
            name.removeprefix("_on_").replace("_", " "): getattr(self, name)
            for name in dir(self)
            if name.startswith("_on_")
        }

    @classmethod
    def read(cls, events: Iterable[Mapping[str, Any]]) -> History:
        """The history of these events, in order of time whatever their order."""
        self = cls()
        for event in sorted(events, key=lambda each: int(each["at"])):
            facts = dict(event)
            self.record(facts.pop("at"), facts.pop("actor"), facts.pop("what"), **facts)
        return self

    def record(self, at_us: int, actor: str, what: str, **facts: Any) -> Any:
        """Add an event; the record that it made, if it made one."""
        self.began_us = self.began_us or at_us
        self.ends_us = max(self.ends_us, at_us)
        return self._kinds[what](at_us, actor, **facts)

    def message(self, message_id: str) -> MessageRecord:
        """The history of a message so far."""
        record = self.messages.get(message_id)
        if record is None:
            record = self.messages[message_id] = MessageRecord(message_id)
        return record

    # ---- one function for each kind of event

    def _on_putting(
        self, at_us: int, actor: str, *, put: str, call: str, producer: str, content: str, **options: Any
    ) -> PutRecord:
        began_us = options.pop("since_us", None)
        began_us = at_us if began_us is None else began_us
        record = PutRecord(put, call, producer, content, began_us, era=self.era, **options)
        self._puts[put] = record
        self.puts.append(record)
        return record

    def _on_put(self, at_us: int, actor: str, *, put: str, message_id: str) -> None:
        record = self._puts[put]
        record.id, record.acknowledged_us = message_id, at_us
        message = self.message(message_id)
        message.put = message.put or record

    def _on_not_put(self, at_us: int, actor: str, *, put: str, sure: bool = False) -> None:
        self._puts[put].is_unsent = sure

    def _on_receiving(self, at_us: int, actor: str, *, call: str, hides_us: int) -> None:
        self._receives[call] = ReceiveRecord(actor, at_us, hides_us)
        self.receives.append(self._receives[call])

    def _on_received(self, at_us: int, actor: str, *, call: str, how: str) -> None:
        record = self._receives[call]
        record.how, record.ended_us = how, at_us

    def _on_given(self, at_us: int, actor: str, *, message_id: str, early: bool, **facts: Any) -> None:
        message = self.message(message_id)
        message.deliveries.append(DeliveryRecord(actor, message_id, is_early=early, **facts))
        self.by_receipt[facts["receipt"]] = message

    def _on_asking(self, at_us: int, actor: str, *, settle: str, receipt: str, how: str, **options: Any) -> None:
        self._settles[settle] = SettleRecord(actor, receipt, how, at_us, **options)
        self.by_receipt[receipt].settles.append(self._settles[settle])

    def _on_job_asking(self, at_us: int, actor: str, *, settle: str, message_id: str) -> None:
        self._settles[settle] = SettleRecord(actor, None, "ack", at_us)
        self.message(message_id).by_jobs.append(self._settles[settle])

    def _on_answered(self, at_us: int, actor: str, *, settle: str, answer: str) -> None:
        record = self._settles[settle]
        record.answer, record.answered_us = answer, at_us

    def _on_cancelling(self, at_us: int, actor: str, *, message_id: str, replaced_by: str | None = None) -> None:
        message = self.message(message_id)
        message.cancel_asked_us = message.cancel_asked_us or at_us
        message.cancels += 1
        if replaced_by is not None:
            message.other = replaced_by

    def _on_cancelled(self, at_us: int, actor: str, *, message_id: str) -> None:
        self.message(message_id).cancelled_us = at_us

    def _on_purging(self, at_us: int, actor: str, *, purge: str) -> None:
        self._purges[purge] = PurgeRecord(at_us)
        self.purges.append(self._purges[purge])

    def _on_purged(self, at_us: int, actor: str, *, purge: str, before_us: int) -> None:
        record = self._purges[purge]
        record.before_us, record.answered_us = before_us, at_us

    def _on_dead(self, at_us: int, actor: str, *, message_id: str) -> None:
        self.message(message_id).dead_us.append(at_us)

    def _on_keys_forgotten(self, at_us: int, actor: str) -> None:
        self.era += 1

    # ---- for readers

    def story(self, message_id: str) -> str:
        """All that is known of a message, in order of time."""
        lines = sorted(self._lines_of(self.message(message_id)), key=lambda line: line[0])
        times = (f"  {(at_us - self.began_us) / 1e6:9.3f}  {text}" for at_us, text in lines)
        return "\n".join([f"  {message_id}", *times])

    def _lines_of(self, message: MessageRecord) -> Iterator[tuple[int, str]]:
        put = message.put
        if put is not None:
            yield put.began_us, f"{put.producer} puts {put.content[:40]!r} group={put.group}"
            yield put.acknowledged_us or 0, f"{put.producer} is answered with the id"
        for each in message.deliveries:
            flag = ", suspect" if each.suspect else ""
            hidden_s = (each.until_us - each.given_us) / 1e6
            what = f"for {hidden_s:g} s: attempt {each.attempt}, epoch {each.epoch}{flag}"
            yield each.given_us, f"given to {each.actor} {what}"
        for settle in (*message.settles, *message.by_jobs):
            how = settle.how + ("" if settle.charged else ", not charged") + ("" if settle.receipt else " as a job")
            hides = f" for {settle.hides_us / 1e6:g} s" if settle.hides_us else ""
            yield settle.asked_us, f"{settle.actor} asks for {how}{hides}"
            answered_us = settle.asked_us if settle.answered_us is None else settle.answered_us
            yield answered_us, f"{settle.actor} is answered: {settle.answer or 'no answer'}"
        if message.cancel_asked_us is not None:
            yield message.cancel_asked_us, "somebody cancels it"
        if message.cancelled_us is not None:
            yield message.cancelled_us, "it is answered cancelled"
        for purge in self.purges:
            yield purge.asked_us, "a purge"
        for at_us in message.dead_us:
            yield at_us, "a dead letter of it"


def read_events(*files: Path) -> Iterator[dict[str, Any]]:
    """The events of files of JSON lines, one object each. A last line without its end was cut by a kill."""
    for file in files:
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n") and line.startswith("{"):
                yield json.loads(line)

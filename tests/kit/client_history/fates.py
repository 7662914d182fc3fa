"""What became of each message, by its history: gone for sure, perhaps, or not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.kit.client_history.history import (
    DONE,
    ROUNDING_US,
    DeliveryRecord,
    History,
    MessageRecord,
    PutRecord,
    SettleRecord,
)


@dataclass(frozen=True)
class Promises:
    """What was promised of one queue; None: nothing of that kind."""

    retention_us: int | None = None
    skew_us: int = 0
    """How far the clocks of processes may be from the history's: what compares the two allows for it."""
    max_receives: int | None = None
    """The number of receives before a dead letter, where the queue has dead letters."""
    charges: bool = False
    """Whether attempts are judged: each receive is in the history."""


class Fates:
    """One history, and what was promised. `there` are the messages that are still seen in the queue."""

    def __init__(self, history: History, promises: Promises, *, there: Collection[str] = (), now_us: int = 0) -> None:
        self.history = history
        self.promises = promises
        self.there = frozenset(there)
        self.now_us = max(now_us, history.ends_us)
        self._puts_of_key: dict[tuple[str | None, str], list[PutRecord]] = {}
        self._puts_of_group: dict[str, list[PutRecord]] = {}
        for put in history.puts:
            if put.key is not None:
                self._puts_of_key.setdefault(put.key, []).append(put)
            if put.group is not None:
                self._puts_of_group.setdefault(put.group, []).append(put)

    def may_be_gone(self, message: MessageRecord, *, by_us: int | None = None) -> bool:
        """Whether there is evidence that it need not come (any more), by a given time or at all."""
        return message.cancel_asked_us is not None or self.has_ended(message, by_us=by_us)

    def has_ended(self, message: MessageRecord, *, by_us: int | None = None) -> bool:
        """The same, but for a cancel."""
        if message.dead or self._may_be_purged(message) or self._is_expired(message):
            return True
        finished_us = message.finished_us()
        return finished_us is not None and (by_us is None or finished_us <= by_us + ROUNDING_US)

    def is_gone(self, message: MessageRecord) -> bool:
        put_us = None if message.put is None else message.put.acknowledged_us
        return bool(
            message.dead or message.cancelled_us is not None or message.honoured() or done(message.by_jobs)
        ) or any(
            purge.before_us is not None and put_us is not None and put_us < purge.before_us - self.promises.skew_us
            for purge in self.history.purges
        )

    def _may_be_purged(self, message: MessageRecord) -> bool:
        """A purge without an answer may cover whatever there is; one with an answer, what began before it. Of a put
        without an answer its deliveries show the time that a purge uses."""
        purges = self.history.purges
        if not purges:
            return False
        if message.put is None:
            puts_us = [each.put_us for each in message.deliveries]
            return any(each.before_us is None or put_us < each.before_us for each in purges for put_us in puts_us)
        began_us = min(put.began_us for put in self._may_have_made(message.put))
        return any(each.before_us is None or began_us < each.before_us + self.promises.skew_us for each in purges)

    def _may_have_made(self, put: PutRecord) -> list[PutRecord]:
        """The puts of which one made this message. Of a once key that is any that was not answered with another id:
        its claimer may have had no answer, and the first answered may have found the key taken."""
        if put.key is None:
            return [put]
        return [each for each in self._puts_of_key[put.key] if each.id in (None, put.id)]

    def asked_us(self, put: PutRecord) -> int | None:
        """For when it was put; None where that is at once. Of a once key one put claims the time, and any of them
        may be the one: so it is the earliest of theirs."""
        if put.key is None:
            return put.due_us
        return min((each.due_us or 0 for each in self._puts_of_key[put.key]), default=0) or None

    def _is_expired(self, message: MessageRecord) -> bool:
        """Of a put without an answer its deliveries show the start of its retention."""
        over_us, retention_us = self._over_us(message), self.promises.retention_us
        if message.put is None and message.deliveries and retention_us is not None:
            over_us = min(max(each.put_us, each.due_us) for each in message.deliveries) + retention_us
        return over_us is not None and over_us < self.now_us

    def _over_us(self, message: MessageRecord) -> int | None:
        """When its retention is over, if it has one."""
        if self.promises.retention_us is None or message.put is None:
            return None
        return max(message.put.began_us, message.put.due_us or 0) + self.promises.retention_us

    def in_time(self, message: MessageRecord) -> list[DeliveryRecord]:
        """The deliveries within its retention. A restamped row outlives the rest of its family, and what was
        known of that: it may come once more where its lane was behind for the whole retention."""
        over_us = self._over_us(message)
        return [each for each in message.deliveries if over_us is None or each.given_us <= over_us]

    def honoured_in_time(self, message: MessageRecord) -> list[SettleRecord]:
        receipts = {each.receipt for each in self.in_time(message)}
        return [each for each in message.honoured() if each.receipt in receipts]

    def may_be_counted(self, message: MessageRecord) -> bool:
        """A purged message counts until its time where others were put to its part after the purge."""
        ahead = message.put is not None and (message.put.due_us or 0) > self.now_us
        return ahead and self.way(message) == "purged"

    def way(self, message: MessageRecord) -> str:
        if message.honoured():
            return "acknowledged"
        if message.cancelled_us is not None:
            return "cancelled"
        if message.dead:
            return "dead"
        if self.is_gone(message):
            return "purged"
        return "in doubt" if self.may_be_gone(message) else "live"


def done(settles: Sequence[SettleRecord]) -> list[SettleRecord]:
    return [each for each in settles if each.answer == DONE]

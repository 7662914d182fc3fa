"""Judges what clients of a queue saw (history.py) by what a queue promises them, and by nothing else.

    python -m tests.kit.client_history.judge FILE...      histories of real processes, a file of JSON lines each

What nobody can know is taken in favour of the queue: a put or a settle without an answer may have happened, or not; a
receive that failed, or whose process ended, may have been given a message. Imports no code of Headgate.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.kit.client_history.fates import Fates, Promises, done
from tests.kit.client_history.history import DONE, STALE, DeliveryRecord, History, MessageRecord, read_events

SECOND_US = 1_000_000
MILLISECOND_US = 1_000
WAITS_US_MAX = 30 * SECOND_US
"""What may be handed out comes within this time while consumers ask (lease, taking over, one backlog of suspects)."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, and the message of which it was."""

    rule: str
    what: str
    story: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}\n{self.story}".rstrip()


@dataclass(frozen=True)
class Asked:
    """A time in which consumers asked without a pause and nothing was broken: whatever can be handed out is handed
    out within `waits_us_max`."""

    from_us: int
    until_us: int
    waits_us_max: int = WAITS_US_MAX


class Judge(Fates):
    """The promises, each with what breaks it."""

    def violations(self, asked: Sequence[Asked] = (), *, late: Collection[str] = ()) -> Iterator[Violation]:
        """All promises that were broken. What is `late` comes when repair checks for it, and is not waited for."""
        contents = {each.content for each in self.history.puts}
        unsent = {each.content for each in self.history.puts if each.is_unsent and each.once is None}
        unsent -= {each.content for each in self.history.puts if not each.is_unsent}
        for message in self.history.messages.values():
            yield from self._lost(message)
            yield from self._settled_once(message)
            yield from self._comes_after_its_settle(message)
            yield from self._early(message)
            yield from self._voided(message)
            yield from self._as_it_was_put(message, contents, unsent)
            yield from self._one_receipt(message)
            yield from self._dead_before_its_time(message)
            if self.promises.charges:
                yield from self._charged(message)
        yield from self._in_order()
        yield from self._made_once()
        yield from self._waits(asked, late)

    def balance(self, live: int, report: str) -> Iterator[Violation]:
        """put = live + in flight + acknowledged + dead + cancelled + expired + purged, as far as anybody can know:
        what has no answer widens the bounds."""
        certain = {each.id for each in self.history.puts if each.id is not None}
        doubtful = sum(each.id is None for each in self.history.puts)
        messages = [each for each in self.history.messages.values() if each.id in certain]
        gone = [each for each in messages if self.is_gone(each)]
        least = len(certain) - sum(self.may_be_gone(each) for each in messages)
        most = len(certain) - len(gone) + doubtful + sum(self.may_be_counted(each) for each in gone)
        if not least <= live <= most:
            ways = dict(Counter(self.way(each) for each in messages))
            yield Violation(
                "the books balance",
                f"{len(certain)} put (and {doubtful} without an answer), {live} there ({report}), between {least} "
                f"and {most} expected; by the history {ways}",
            )

    # ---- each promise

    def _lost(self, message: MessageRecord) -> Iterator[Violation]:
        if message.put is not None and message.id not in self.there and not self.may_be_gone(message):
            how = "never delivered" if not message.deliveries else "delivered, never settled"
            yield self._broken("an acknowledged put is settled, dead or still there", message, how)
        other = None if message.other is None else self.history.messages.get(message.other)
        if other is None or not message.cancels == other.cancels == 1:  # somebody else cancels too
            return
        if not any(each.id in self.there or self.has_ended(each) for each in (message, other)):
            rule = "of a message and what takes its place one comes"
            yield self._broken(rule, message, f"nor does {message.other}")

    def _settled_once(self, message: MessageRecord) -> Iterator[Violation]:
        honoured, by_jobs = self.honoured_in_time(message), done(message.by_jobs)
        if len({each.receipt for each in honoured}) > 1:
            what = f"{len(honoured)} acknowledgements were done"
            yield self._broken("at most one receipt is honoured", message, what)
        if honoured and by_jobs:
            yield self._broken("at most one receipt is honoured", message, "done by a consumer and by a job")
        if message.dead > 1:
            yield self._broken("at most one dead letter of a message", message, f"{message.dead} of it")
        if message.dead and (honoured or by_jobs):
            what = "acknowledged with done, and a dead letter"
            yield self._broken("acknowledged or dead, not both", message, what)

    def _comes_after_its_settle(self, message: MessageRecord) -> Iterator[Violation]:
        for settle in (*self.honoured_in_time(message), *done(message.by_jobs)):
            for each in self.in_time(message):
                if settle.answered_us is not None and each.given_us > settle.answered_us:
                    what = f"delivered to {each.actor} after that of {settle.actor}"
                    yield self._broken("what is settled does not come again", message, what)

    def _early(self, message: MessageRecord) -> Iterator[Violation]:
        asked_us = self.asked_us(message.put) if message.put is not None else None
        for each in message.deliveries:
            if each.is_early or (asked_us is not None and each.due_us < asked_us):
                yield self._broken("nothing early", message, f"delivered to {each.actor} before it was due")
        for settle in message.settles:
            if settle.how in ("nack", "reject") and settle.answer == DONE:
                from_us = settle.asked_us + MILLISECOND_US
                until_us = (
                    settle.asked_us + settle.hides_us - 2 * self.promises.skew_us - MILLISECOND_US
                )  # two owners
                if any(from_us < each.given_us < until_us for each in message.deliveries):
                    yield self._broken("nothing early", message, "again before the delay of its nack was over")

    def _voided(self, message: MessageRecord) -> Iterator[Violation]:
        if message.cancelled_us is not None and message.deliveries:
            what = f"delivered {len(message.deliveries)} times"
            yield self._broken("what was cancelled is never delivered", message, what)
        for purge in self.history.purges:
            if purge.before_us is None or purge.answered_us is None:
                continue
            for each in message.deliveries:
                if each.put_us < purge.before_us and each.given_us > purge.answered_us:
                    what = f"delivered to {each.actor} after"
                    yield self._broken("what was purged is not delivered", message, what)

    def _as_it_was_put(
        self, message: MessageRecord, contents: Collection[str], unsent: Collection[str]
    ) -> Iterator[Violation]:
        for each in message.deliveries[:1]:
            if each.content in unsent:
                yield self._broken("what was not sent does not come", message, "its put was answered as not sent")
            if message.put is None and each.content not in contents:
                yield self._broken("what comes was put", message, f"{each.content[:40]!r} was put by nobody")
            elif message.put is not None and message.put.once is None:
                wanted = (message.put.content, message.put.group)
                if wanted != (each.content, each.group):
                    yield self._broken("it comes as it was put", message, f"{wanted!r} was put")

    def _one_receipt(self, message: MessageRecord) -> Iterator[Violation]:
        """Only a delivery that does not count may be followed by one of the same receipt."""
        for earlier, later in pairwise(message.in_order()):
            returned = any(not each.charged for each in message.settles_of(earlier))
            if earlier.receipt == later.receipt and not returned:
                yield self._broken("a receipt is of one delivery", message, f"given to {later.actor} as well")

    def _charged(self, message: MessageRecord) -> Iterator[Violation]:
        """An attempt counts the deliveries before it but those that were returned without charge, and those of
        receives that ended without an answer: also of one whose owner lost its lane between its record and its
        answer."""
        free = [each.asked_us for each in message.settles if not each.charged and each.answer == DONE]
        owners, epoch = 0, 0
        for before, each in enumerate(message.in_order()):
            owners, epoch = owners + (each.epoch > epoch > 0 or each.suspect), each.epoch
            charged = before - sum(asked_us <= each.given_us for asked_us in free) + owners
            unseen = self._unseen(each.given_us) if each.attempt > charged + 1 else 0
            if each.attempt > charged + unseen + 1:
                what = f"attempt {each.attempt} after {charged} charged, and {unseen} receives without an answer"
                yield self._broken("a delivery is charged once", message, what)
                return

    def _unseen(self, by_us: int) -> int:
        return sum(each.may_have_lost_one and each.began_us <= by_us for each in self.history.receives)

    def _dead_before_its_time(self, message: MessageRecord) -> Iterator[Violation]:
        most = self.promises.max_receives
        if most is None:
            return
        if any(each.attempt > most for each in message.deliveries):
            yield self._broken("no attempt exceeds the maximum of receives", message, f"at most {most}")
        rejected = any(each.how == "reject" and each.answer != STALE for each in message.settles)
        attempts = max((each.attempt for each in message.deliveries), default=0)
        if message.dead and not rejected and attempts + self._unseen(message.dead_us[0]) < most:
            what = f"a dead letter at attempt {attempts} of {most}"
            yield self._broken("a dead letter had all its receives", message, what)

    def _in_order(self) -> Iterator[Violation]:
        """Of a group, as one producer put it: what comes was preceded by all before it, and those are finished."""
        lines: dict[tuple[str, str], list[MessageRecord]] = {}
        for put in self.history.puts:
            if put.group is not None and put.id is not None and self.history.messages[put.id].put is put:
                lines.setdefault((put.producer, put.group), []).append(self.history.messages[put.id])
        for line in lines.values():
            for place, later in enumerate(line):
                for earlier in line[:place]:
                    if _came_before(earlier, later):
                        yield from self._pair_in_order(earlier, later)

    def _pair_in_order(self, earlier: MessageRecord, later: MessageRecord) -> Iterator[Violation]:
        rule = "a group comes in order"
        first_us = min((each.given_us for each in later.deliveries), default=None)
        if first_us is not None and not self.may_be_gone(earlier, by_us=first_us):
            yield self._broken(rule, later, "delivered before an earlier one was finished", earlier)
        for settle in later.honoured():
            for each in self.in_time(earlier):
                if settle.answered_us is not None and each.given_us > settle.answered_us:
                    yield self._broken(rule, later, "settled, and an earlier one came after that", earlier)

    def _made_once(self) -> Iterator[Violation]:
        """Within a run that is shorter than the window of keys, or since the last `keys forgotten`."""
        puts = [each for each in self.history.puts if each.key is not None and each.era == self.history.era]
        made: dict[tuple[str | None, str], set[str]] = {}
        keys = {each.content: each.key for each in puts}
        for put in puts:
            if put.key is not None and put.id is not None:
                made.setdefault(put.key, set()).add(put.id)
        for message in self.history.messages.values():
            for each in message.deliveries[:1]:
                key = keys.get(each.content)
                if key is not None:
                    made.setdefault(key, set()).add(message.id)
        for key, ids in made.items():
            if len(ids) > 1:
                story = "\n".join(self.history.story(each) for each in sorted(ids))
                yield Violation("a once key makes one message", f"{key} made {len(ids)}", story)

    # ---- how long what can be handed out waits

    def _waits(self, asked: Sequence[Asked], late: Collection[str]) -> Iterator[Violation]:
        for message in self.history.messages.values() if asked else ():
            if message.id in late or message.dead or (message.put is None and not message.deliveries):
                continue
            if message.finished_us() is None and self.may_be_gone(message):
                continue
            for ready_us, came_us in self._ready(message):
                for each in asked:
                    waited_us = min(came_us, each.until_us) - max(ready_us, each.from_us)
                    if waited_us > each.waits_us_max + self.promises.skew_us:
                        what = f"it waited {waited_us / SECOND_US:.1f} s, at most {each.waits_us_max / SECOND_US:g} s"
                        yield self._broken("nothing waits while a consumer asks", message, what)

    def _ready(self, message: MessageRecord) -> Iterator[tuple[int, int]]:
        """From when to when it could be handed out: until its first delivery, and after each unfinished one."""
        finished_us = message.finished_us()
        over_us = self.now_us if finished_us is None else finished_us
        starts: list[int] = []
        if message.put is not None and message.put.acknowledged_us is not None:
            starts.append(
                max(message.put.acknowledged_us, self.asked_us(message.put) or 0, self._blocked_us(message))
            )
        else:
            starts.append(2**62)
        deliveries = message.in_order()
        starts += [max([each.until_us, *_hidden_until_us(message, each)]) for each in deliveries]
        ends = [*(each.given_us for each in deliveries), over_us]
        yield from zip(starts, ends, strict=True)

    def _blocked_us(self, message: MessageRecord) -> int:
        """When the last of its group that may be before it had ended; later than all where that is not known."""
        put = message.put
        if put is None or put.group is None or put.acknowledged_us is None:
            return 0
        until_us = 0
        for other in self._puts_of_group[put.group]:
            if other is not put and other.began_us <= put.acknowledged_us:
                ended_us = None if other.id is None else self._ended_us(self.history.messages[other.id])
                if ended_us is None:
                    return 2**62
                until_us = max(until_us, ended_us)
        return until_us

    def _ended_us(self, message: MessageRecord) -> int | None:
        answered = [each.answered_us for each in (*message.honoured(), *done(message.by_jobs))]
        known = [each for each in (*answered, message.cancelled_us, *message.dead_us) if each is not None]
        return min(known, default=None)

    def _broken(self, rule: str, message: MessageRecord, what: str, other: MessageRecord | None = None) -> Violation:
        stories = [self.history.story(each.id) for each in (other, message) if each is not None]
        return Violation(rule, f"{message.id}: {what}", "\n".join(stories))


def _hidden_until_us(message: MessageRecord, delivery: DeliveryRecord) -> Iterator[int]:
    for settle in message.settles_of(delivery):
        if settle.how != "ack":
            yield (settle.asked_us if settle.answered_us is None else settle.answered_us) + settle.hides_us


def _came_before(earlier: MessageRecord, later: MessageRecord) -> bool:
    """Whether one producer put this one before that: in one call, or having heard of the first."""
    if earlier.put is None or later.put is None:
        return False
    if earlier.put.call == later.put.call:
        return True
    acknowledged_us = earlier.put.acknowledged_us
    return acknowledged_us is not None and acknowledged_us <= later.put.began_us


def main(files: Sequence[str]) -> int:
    """Print what was broken in the merged histories of these files."""
    judge = Judge(History.read(read_events(*map(Path, files))), Promises())
    broken = list(judge.violations())
    sys.stdout.write("".join(f"{each}\n" for each in broken))
    sys.stdout.write(f"{len(judge.history.messages)} messages, {len(broken)} promises broken\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

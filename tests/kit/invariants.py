"""Invariants of every queue, whatever fails: one ledger of all calls and their answers, checked at the end.

A `Ledger` records puts, deliveries, settles, cancels and purges as they happen; `violations` judges all of it, and
`check` raises with each violation and the whole story of its message. It knows the contract of engines and nothing
below it, so simulation, conformance and real servers are judged by the same sentences.

Times are the ledger's own clock's (in a simulation the truth), in us; only "nothing early" is judged by the
clock of the process that received. What nobody can know is taken in favour of the queue: a put or a settle without an
answer may have happened, or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headgate.engines.contract import (
    Ack,
    Cancelled,
    DeadLetterDelivery,
    Delivery,
    ExtendDelivery,
    NackDelivery,
    NewMessage,
    Settle,
    Settled,
    Stats,
)

SECOND_US = 1_000_000
AGAIN_WITHIN_US = 30 * SECOND_US
"""Redelivery comes at most this long after the visibility is over (lease, taking over, one backlog of suspects)."""
MILLISECOND_US = 1_000
ROUNDING_US = 2
"""Of two times by clocks that each round to a microsecond."""


@dataclass(frozen=True)
class Violation:
    """A sentence that did not hold, and the message of which it did not."""

    rule: str
    what: str
    story: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}\n{self.story}".rstrip()


@dataclass(eq=False)
class Put:
    """A message on its way into the queue; `message_id` once it was acknowledged."""

    message: NewMessage
    producer: str
    turn: int
    began_us: int
    message_id: str | None = None
    acknowledged_us: int | None = None
    failed: str | None = None


@dataclass(eq=False)
class Hand:
    """One delivery. `given_us` is when the queue handed it out, which may be long before its receiver noted it."""

    actor: str
    delivery: Delivery
    given_us: int
    until_us: int
    is_early: bool


@dataclass(eq=False)
class Word:
    """A settle that was asked for, and its answer if one came."""

    actor: str
    settle: Settle
    asked_us: int
    how: Settled | None = None
    answered_us: int | None = None


@dataclass(eq=False)
class ReservedWord:
    """A settle by a job that borrowed the message, and its answer if one came."""

    actor: str
    asked_us: int
    how: Settled | None = None
    answered_us: int | None = None


@dataclass(eq=False)
class Tale:
    """All that happened to one message."""

    message_id: str
    put: Put | None = None
    deliveries: list[Hand] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    cancel_asked_us: int | None = None
    cancels: int = 0
    """How often that was asked for, by cancels and reschedules."""
    other: str | None = None
    """The message that it was to take the place of, when that came too late: one of the two comes, or both."""
    cancelled_us: int | None = None
    dead: int = 0
    reserved: list[ReservedWord] = field(default_factory=list)
    """The reports of jobs that borrowed it."""

    def finished_us(self) -> int | None:
        """When a consumer, or a job, first reported it done, to a queue that did not refuse."""
        message = [it.asked_us for it in self.words if isinstance(it.settle, Ack) and it.how is not STALE]
        return min([*message, *(it.asked_us for it in self.reserved if it.how is not STALE)], default=None)

    def honoured(self) -> list[Word]:
        """The acknowledgements that were answered with done."""
        return [it for it in self.words if isinstance(it.settle, Ack) and it.how is Settled.DONE]


@dataclass
class Purge:
    """A purge that was asked for: `before_us` once it was answered."""

    asked_us: int
    before_us: int | None = None
    answered_us: int | None = None


STALE = Settled.STALE


class Ledger:
    """The calls of all processes to one queue, and their answers."""

    def __init__(self, now_us: Callable[[], int], *, retention_us: int | None = None, skew_us: int = 0) -> None:
        self.now_us = now_us
        self.retention_us = retention_us
        self.skew_us = skew_us
        """How far the clocks of processes may be from the ledger's: what compares the two allows for it."""
        self.began_us = now_us()
        self.puts: list[Put] = []
        self.tales: dict[str, Tale] = {}
        self.purges: list[Purge] = []
        self._by_receipt: dict[str, Tale] = {}
        self._turn = self._forgotten = 0

    # ---- recorded by producers

    def trying(self, messages: Sequence[NewMessage], producer: str) -> list[Put]:
        """These are about to be put by one call."""
        self._turn += 1
        now_us = self.now_us()
        puts = [Put(message, producer, self._turn, now_us) for message in messages]
        self.puts += puts
        return puts

    def acknowledged(self, puts: Sequence[Put], ids: Sequence[str]) -> None:
        """They were answered with these ids."""
        now_us = self.now_us()
        for put, message_id in zip(puts, ids, strict=True):
            put.message_id, put.acknowledged_us = message_id, now_us
            tale = self.tale(message_id)
            tale.put = tale.put or put

    def not_acknowledged(self, puts: Sequence[Put], error: BaseException) -> None:
        """They were not answered with ids: they may be there or not."""
        for put in puts:
            put.failed = str(error)

    async def put(
        self,
        put: Callable[[Sequence[NewMessage]], Awaitable[Sequence[str]]],
        messages: Sequence[NewMessage],
        producer: str,
    ) -> list[str]:
        """Put by this function, and take down how it ended."""
        puts = self.trying(messages, producer)
        try:
            ids = list(await put(messages))
        except Exception as error:
            self.not_acknowledged(puts, error)
            raise
        self.acknowledged(puts, ids)
        return ids

    def forget_keys(self) -> None:
        """The window of all once keys so far is over: they may make another message each."""
        self._forgotten = self._turn

    # ---- recorded by consumers

    def delivered(self, actor: str, result: Sequence[Delivery], *, clock_us: int, visibility_us: int) -> None:
        """These came out of a receive with this visibility; `clock_us` is the time on the receiver's own clock."""
        now_us = self.now_us()
        for each in result:
            ago_us = max(0, clock_us - (each.visible_until_us - visibility_us))
            given_us = now_us - ago_us
            hand = Hand(actor, each, given_us, given_us + visibility_us, clock_us - ago_us < each.due_us)
            tale = self.tale(each.message_id)
            tale.deliveries.append(hand)
            self._by_receipt[each.receipt] = tale

    def settling(self, actor: str, settles: Sequence[Settle]) -> list[Word]:
        """These are about to be settled."""
        now_us = self.now_us()
        words = [Word(actor, settle, now_us) for settle in settles]
        for word in words:
            self._by_receipt[word.settle.receipt].words.append(word)
        return words

    def settled(self, words: Sequence[Word], answers: Sequence[Settled]) -> None:
        """And were answered so."""
        now_us = self.now_us()
        for word, how in zip(words, answers, strict=True):
            word.how, word.answered_us = how, now_us

    async def settle(
        self,
        settle: Callable[[Sequence[Settle]], Awaitable[Sequence[Settled]]],
        settles: Sequence[Settle],
        actor: str,
    ) -> list[Settled]:
        """Settle by this function, and take down how it ended."""
        words = self.settling(actor, settles)
        answers = list(await settle(settles))
        self.settled(words, answers)
        return answers

    # ---- recorded by others

    async def settle_reserved(
        self, settle: Callable[[], Awaitable[Settled]], ids: Sequence[str], actor: str
    ) -> Settled:
        """A job settles messages of a range that it borrowed, by this function."""
        words = [ReservedWord(actor, self.now_us()) for _ in ids]
        for message_id, word in zip(ids, words, strict=True):
            self.tale(message_id).reserved.append(word)
        how = await settle()
        for word in words:
            word.how, word.answered_us = how, self.now_us()
        return how

    def cancelling(self, message_id: str) -> None:
        """Somebody is about to cancel it, or to reschedule it."""
        tale = self.tale(message_id)
        tale.cancel_asked_us = tale.cancel_asked_us or self.now_us()
        tale.cancels += 1

    def rescheduled_too_late(self, message_id: str, new_id: str) -> None:
        """Both may come: the old one though its cancel was sent, the new one though it may have been taken back."""
        self.cancelling(new_id)
        self.tale(new_id).other = message_id

    def cancel_answered(self, message_id: str, how: Cancelled) -> None:
        """With this answer. A cancel that came too late may have taken effect all the same."""
        if how is Cancelled.CANCELLED:
            self.tale(message_id).cancelled_us = self.now_us()

    def purging(self) -> Purge:
        """Somebody is about to purge."""
        self.purges.append(Purge(self.now_us()))
        return self.purges[-1]

    def purged(self, purge: Purge, before_us: int) -> None:
        """With the time of put up to which it held."""
        purge.before_us, purge.answered_us = before_us, self.now_us()

    def dead(self, message_ids: Iterable[str]) -> None:
        """These were found in the dead letter queue, each as often as it is named."""
        for message_id in message_ids:
            self.tale(message_id).dead += 1

    def tale(self, message_id: str) -> Tale:
        """The history of a message so far."""
        result = self.tales.get(message_id)
        if result is None:
            result = self.tales[message_id] = Tale(message_id)
        return result

    # ---- short questions, for scenarios

    @property
    def acknowledged_ids(self) -> set[str]:
        """Every message whose put was acknowledged."""
        return {each.message_id for each in self.puts if each.message_id is not None}

    def open_ids(self, there: Collection[str] = ()) -> set[str]:
        """Messages without evidence that they are settled: they have to come yet, or be `there`."""
        return {
            tale.message_id
            for tale in self.tales.values()
            if tale.put is not None and tale.message_id not in there and not self._may_be_gone(tale)
        }

    def need_not_come(self, message_id: str) -> bool:
        """Whether a message that lies somewhere was met, or may be left there: by id, acknowledged or not."""
        tale = self.tale(message_id)
        return (
            bool(tale.deliveries or tale.reserved)
            or self._may_be_gone(tale)
            or (tale.put is None and bool(self.purges))
        )

    def times(self, message_id: str) -> int:
        """How often it was delivered."""
        return len(self.tale(message_id).deliveries)

    # ---- the judgement

    def check(self, *, there: Collection[str] = (), calm_us: int | None = None) -> None:
        """Raise with every sentence that does not hold. The arguments are those of `violations`."""
        matches = list(self.violations(there=there, calm_us=calm_us))
        if matches:
            raise AssertionError(f"{len(matches)} violations\n" + "\n".join(map(str, matches[:10])))

    def violations(
        self, *, there: Collection[str] = (), calm_us: int | None = None, late: Collection[str] = ()
    ) -> Iterator[Violation]:
        """All that does not hold. `there` are the messages still seen in the queue; from `calm_us` on the store, and
        a receiver, were at work all the time, so that redelivery can be asked for (None: never), but of
        what is `late`: that comes when repair checks for it."""
        keys = self._keys_by_payload()
        known = {each.message.payload for each in self.puts}
        for tale in self.tales.values():
            yield from self._lost(tale, there)
            yield from self._honoured_once(tale)
            yield from self._early(tale)
            yield from self._voided(tale)
            yield from self._as_it_was_put(tale, known)
            if calm_us is not None and tale.message_id not in late:
                yield from self._comes_again(tale, calm_us)
        yield from self._in_order()
        yield from self._made_once(keys)

    def check_balance(self, there: Stats, *, dead: int = 0) -> Iterator[Violation]:
        """put = live + in flight + acknowledged + dead + cancelled + expired + purged, as far as anybody can know:
        what has no answer widens the bounds."""
        live = there.backlog + there.in_flight + there.delayed
        certain = self.acknowledged_ids
        doubtful_puts = sum(each.message_id is None for each in self.puts)
        gone = {tale.message_id for tale in self.tales.values() if self._is_gone(tale)} & certain
        may_be_gone = {tale.message_id for tale in self.tales.values() if self._may_be_gone(tale)} & certain
        least, most = len(certain) - len(may_be_gone), len(certain) - len(gone) + doubtful_puts
        most += sum(self._may_be_counted(self.tales[each]) for each in gone)
        if not least <= live <= most:
            ways = Counter(self._way(self.tales[each]) for each in certain)
            yield Violation(
                "the books balance",
                f"{len(certain)} put (and {doubtful_puts} without an answer), {live} there ({there}), "
                f"between {least} and {most} expected; by the ledger {dict(ways)}, {dead} dead letters",
            )

    def _may_be_counted(self, tale: Tale) -> bool:
        """A purged message counts until its time where others were put to its part after the purge."""
        ahead = tale.put is not None and (tale.put.message.due_us or 0) > self.now_us()
        return ahead and self._way(tale) == "purged"

    # ---- each sentence

    def _lost(self, tale: Tale, there: Collection[str]) -> Iterator[Violation]:
        if tale.put is not None and tale.message_id not in there and not self._may_be_gone(tale):
            how = "never delivered" if not tale.deliveries else "delivered, never settled"
            yield self._violation("an acknowledged put is settled, dead or still there", tale, how)
        other = None if tale.other is None else self.tales.get(tale.other)
        if other is not None and tale.cancels == other.cancels == 1:  # nobody else cancels either
            both = (tale, other)
            if not any(each.message_id in there or self._has_ended(each) for each in both):
                yield self._violation(
                    "of a message and what takes its place one comes", tale, f"nor does {tale.other}"
                )

    def _honoured_once(self, tale: Tale) -> Iterator[Violation]:
        deliveries = self.in_time(tale)
        receipts = {hand.delivery.receipt for hand in deliveries}
        honoured = [it for it in tale.honoured() if it.settle.receipt in receipts]
        if len({it.settle.receipt for it in honoured}) > 1:
            yield self._violation(
                "at most one receipt is honoured", tale, f"{len(honoured)} acknowledgements were done"
            )
        by_jobs = [it for it in tale.reserved if it.how is Settled.DONE]
        if honoured and by_jobs:
            yield self._violation("at most one receipt is honoured", tale, "done by a consumer and by a job")
        for each in by_jobs:
            if any(hand.given_us > (each.answered_us or 0) for hand in deliveries):
                yield self._violation("what is settled does not come again", tale, f"delivered after {each.actor}")
        if tale.dead > 1:
            yield self._violation("at most one dead letter of a message", tale, f"{tale.dead} of it")
        if tale.dead and (honoured or by_jobs):
            yield self._violation("acknowledged or dead, not both", tale, "acknowledged with done, and a dead letter")
        for word in honoured:
            for hand in deliveries:
                if word.answered_us is not None and hand.given_us > word.answered_us:
                    yield self._violation(
                        "what is settled does not come again", tale, f"delivered to {hand.actor} after"
                    )

    def _asked_us(self, put: Put) -> int | None:
        """For when it was put; None where that is at once. Of a once key one put claims the time, and any of them
        may be the one: so it is the earliest of theirs."""
        if put.message.once is None:
            return put.message.due_us
        key = (put.message.once_scope, put.message.once)
        asked = [it.message.due_us for it in self.puts if (it.message.once_scope, it.message.once) == key]
        return min((due_us or 0 for due_us in asked), default=0) or None

    def _early(self, tale: Tale) -> Iterator[Violation]:
        for hand in tale.deliveries:
            asked_us = self._asked_us(tale.put) if tale.put is not None else None
            if hand.is_early or (asked_us is not None and hand.delivery.due_us < asked_us):
                yield self._violation("nothing early", tale, f"delivered to {hand.actor} before it was due")
        for word in tale.words:
            if isinstance(word.settle, NackDelivery | DeadLetterDelivery) and word.how is Settled.DONE:
                waits_us = word.asked_us + word.settle.delay_us - 2 * self.skew_us - MILLISECOND_US  # two owners
                if any(word.asked_us + MILLISECOND_US < hand.given_us < waits_us for hand in tale.deliveries):
                    yield self._violation("nothing early", tale, "again before the delay of its nack was over")

    def _voided(self, tale: Tale) -> Iterator[Violation]:
        if tale.cancelled_us is not None and tale.deliveries:
            yield self._violation(
                "what was cancelled is never delivered", tale, f"delivered {len(tale.deliveries)} times"
            )
        for purge in self.purges:
            for hand in tale.deliveries:
                before_us, answered_us = purge.before_us, purge.answered_us
                if before_us is None or answered_us is None or hand.delivery.put_us >= before_us:
                    continue
                if hand.given_us > answered_us:
                    yield self._violation(
                        "what was purged is not delivered", tale, f"delivered to {hand.actor} after"
                    )

    def _as_it_was_put(self, tale: Tale, known: Collection[bytes]) -> Iterator[Violation]:
        for hand in tale.deliveries[:1]:
            got = hand.delivery
            if tale.put is None:
                if got.payload not in known:
                    yield self._violation("what comes was put", tale, f"{got.payload[:40]!r} was put by nobody")
            elif tale.put.message.once is None:
                put = tale.put.message
                wanted = (put.payload, dict(put.attributes), put.group)
                if wanted != (got.payload, dict(got.attributes), got.group):
                    yield self._violation("it comes as it was put", tale, f"{wanted!r} was put")

    def _comes_again(self, tale: Tale, calm_us: int) -> Iterator[Violation]:
        """After each delivery that was not finished: another one, in time."""
        if not tale.deliveries or tale.dead or tale.finished_us() is not None or self._may_be_gone(tale):
            return
        deliveries = sorted(tale.deliveries, key=lambda hand: hand.given_us)
        for hand, later in zip(deliveries, [*deliveries[1:], None], strict=True):
            hidden_us = max([hand.until_us, *self._hidden_by_words(tale, hand)])
            latest_us = max(hidden_us, calm_us) + AGAIN_WITHIN_US + self.skew_us
            came_us = later.given_us if later is not None else self.now_us()
            if came_us > latest_us:
                over_s = (came_us - max(hidden_us, calm_us)) / SECOND_US
                yield self._violation(
                    "redelivery within visibility + 30 s", tale, f"not again {over_s:.1f} s after its visibility"
                )

    def _hidden_by_words(self, tale: Tale, hand: Hand) -> Iterator[int]:
        for word in tale.words:
            if word.settle.receipt != hand.delivery.receipt or word.how is STALE:
                continue
            answered_us = word.asked_us if word.answered_us is None else word.answered_us
            if isinstance(word.settle, NackDelivery | DeadLetterDelivery):
                yield answered_us + word.settle.delay_us
            elif isinstance(word.settle, ExtendDelivery):
                yield answered_us + word.settle.visibility_us

    def _in_order(self) -> Iterator[Violation]:
        """Of a group, as one producer put it: what comes was preceded by all before it, and those are finished."""
        lines: dict[tuple[str, str], list[Tale]] = {}
        for put in self.puts:
            if put.message.group is not None and put.message_id is not None:
                tale = self.tales[put.message_id]
                if tale.put is put:
                    lines.setdefault((put.producer, put.message.group), []).append(tale)
        for line in lines.values():
            for place, later in enumerate(line):
                for earlier in line[:place]:
                    if _came_before(earlier, later):
                        yield from self._pair_in_order(earlier, later)

    def _pair_in_order(self, earlier: Tale, later: Tale) -> Iterator[Violation]:
        rule = "a group comes in order"
        first_us = min((hand.given_us for hand in later.deliveries), default=None)
        if first_us is not None and not self._may_be_gone(earlier, by_us=first_us):
            yield self._violation(rule, later, "delivered before an earlier one was finished", earlier)
        for word in later.honoured():
            for hand in self.in_time(earlier):
                if word.answered_us is not None and hand.given_us > word.answered_us:
                    yield self._violation(rule, later, "settled, and an earlier one came after that", earlier)

    def _made_once(self, keys: dict[bytes, tuple[str | None, str]]) -> Iterator[Violation]:
        """Within a run that is shorter than onceWindow, or since `forget_keys` recorded that one was over."""
        made: dict[tuple[str | None, str], set[str]] = {}
        for put in self.puts:
            if put.message.once is not None and put.message_id is not None and put.turn > self._forgotten:
                made.setdefault((put.message.once_scope, put.message.once), set()).add(put.message_id)
        for tale in self.tales.values():
            for hand in tale.deliveries[:1]:
                key = keys.get(hand.delivery.payload)
                if key is not None:
                    made.setdefault(key, set()).add(tale.message_id)
        for key, ids in made.items():
            if len(ids) > 1:
                story = "\n".join(self.story(each) for each in sorted(ids))
                yield Violation("a once key makes one message", f"{key} made {len(ids)}", story)

    def _keys_by_payload(self) -> dict[bytes, tuple[str | None, str]]:
        return {
            put.message.payload: (put.message.once_scope, put.message.once)
            for put in self.puts
            if put.message.once is not None and put.turn > self._forgotten
        }

    # ---- what became of a message

    def _may_be_gone(self, tale: Tale, *, by_us: int | None = None) -> bool:
        """Whether there is evidence that it need not come (any more), by a given time or at all."""
        return tale.cancel_asked_us is not None or self._has_ended(tale, by_us=by_us)

    def _has_ended(self, tale: Tale, *, by_us: int | None = None) -> bool:
        """The same, but for a cancel."""
        if tale.dead or self._may_be_purged(tale) or self._is_expired(tale):
            return True
        finished_us = tale.finished_us()
        return finished_us is not None and (by_us is None or finished_us <= by_us + ROUNDING_US)

    def _is_gone(self, tale: Tale) -> bool:
        by_jobs = any(it.how is Settled.DONE for it in tale.reserved)
        return bool(tale.dead or tale.cancelled_us is not None or tale.honoured() or by_jobs) or any(
            purge.before_us is not None
            and tale.put is not None
            and tale.put.acknowledged_us is not None
            and tale.put.acknowledged_us < purge.before_us - self.skew_us
            for purge in self.purges
        )

    def _may_be_purged(self, tale: Tale) -> bool:
        """A purge without an answer may cover whatever there is; one with an answer, what began before it. Of a put
        without an answer its deliveries show the time that a purge uses."""
        if tale.put is None:
            puts_us = [hand.delivery.put_us for hand in tale.deliveries]
            return any(
                each.before_us is None or put_us < each.before_us for each in self.purges for put_us in puts_us
            )
        began_us = min(put.began_us for put in self._may_have_made(tale.put))
        return any(each.before_us is None or began_us < each.before_us + self.skew_us for each in self.purges)

    def _may_have_made(self, put: Put) -> list[Put]:
        """The puts of which one made this message. Of a once key that is any that was not answered with another id:
        its claimer may have had no answer, and the first answered may have found the key taken."""
        if put.message.once is None:
            return [put]
        key, ids = (put.message.once_scope, put.message.once), (None, put.message_id)
        return [it for it in self.puts if (it.message.once_scope, it.message.once) == key and it.message_id in ids]

    def _is_expired(self, tale: Tale) -> bool:
        """Of a put without an answer its deliveries show the start of its retention."""
        over_us = self._over_us(tale)
        if tale.put is None and tale.deliveries and self.retention_us is not None:
            over_us = min(max(it.delivery.put_us, it.delivery.due_us) for it in tale.deliveries) + self.retention_us
        return over_us is not None and over_us < self.now_us()

    def _over_us(self, tale: Tale) -> int | None:
        """When its retention is over, if it has one."""
        if self.retention_us is None or tale.put is None:
            return None
        return max(tale.put.began_us, tale.put.message.due_us or 0) + self.retention_us

    def in_time(self, tale: Tale) -> list[Hand]:
        """The deliveries within its retention. A restamped row outlives the rest of its family, and what was
        known of that: it may come once more where its lane was behind for the whole retention."""
        over_us = self._over_us(tale)
        return [hand for hand in tale.deliveries if over_us is None or hand.given_us <= over_us]

    def _way(self, tale: Tale) -> str:
        if tale.honoured():
            return "acknowledged"
        if tale.cancelled_us is not None:
            return "cancelled"
        if tale.dead:
            return "dead"
        if self._is_gone(tale):
            return "purged"
        return "in doubt" if self._may_be_gone(tale) else "live"

    # ---- describing it

    def _violation(self, rule: str, tale: Tale, what: str, other: Tale | None = None) -> Violation:
        stories = [self.story(each.message_id) for each in (other, tale) if each is not None]
        return Violation(rule, f"{tale.message_id}: {what}", "\n".join(stories))

    def story(self, message_id: str) -> str:
        """All that is known of a message, in order of time."""
        tale = self.tale(message_id)
        lines: list[tuple[int, str]] = []
        if tale.put is not None:
            put = tale.put
            lines.append(
                (put.began_us, f"{put.producer} puts {put.message.payload[:40]!r} group={put.message.group}")
            )
            lines.append((put.acknowledged_us or 0, f"{put.producer} is answered with the id"))
        for hand in tale.deliveries:
            it = hand.delivery
            seconds = (hand.until_us - hand.given_us) / SECOND_US
            text = f"given to {hand.actor} for {seconds:g} s: attempt {it.attempt}, epoch {it.epoch}"
            lines.append((hand.given_us, text + (", suspect" if it.suspect else "")))
        for word in tale.words:
            answer = "no answer" if word.how is None else word.how.value
            lines.append((word.asked_us, f"{word.actor} asks for {_text_of(word.settle)}"))
            lines.append((word.answered_us or word.asked_us, f"{word.actor} is answered: {answer}"))
        if tale.cancel_asked_us is not None:
            lines.append((tale.cancel_asked_us, "somebody cancels it"))
        if tale.cancelled_us is not None:
            lines.append((tale.cancelled_us, "it is answered cancelled"))
        for purge in self.purges:
            lines.append((purge.asked_us, "a purge"))
        for each in tale.reserved:
            lines.append((each.asked_us, f"{each.actor}, which borrowed it, settles it"))
            answer = "no answer" if each.how is None else each.how.value
            lines.append((each.answered_us or each.asked_us, f"{each.actor} is answered: {answer}"))
        if tale.dead:
            lines.append((self.now_us(), f"{tale.dead} dead letters of it"))
        lines.sort(key=lambda line: line[0])
        return "\n".join(
            [f"  {message_id}", *(f"  {(at_us - self.began_us) / SECOND_US:9.3f}  {text}" for at_us, text in lines)]
        )


def _came_before(earlier: Tale, later: Tale) -> bool:
    """Whether one producer put this one before that: in one call, or having heard of the first."""
    if earlier.put is None or later.put is None:
        return False
    if earlier.put.turn == later.put.turn:
        return True
    acknowledged_us = earlier.put.acknowledged_us
    return acknowledged_us is not None and acknowledged_us <= later.put.began_us


def _text_of(settle: Settle) -> str:
    if isinstance(settle, Ack):
        return "ack"
    if isinstance(settle, NackDelivery):
        return f"nack after {settle.delay_us / SECOND_US:g} s" + ("" if settle.charged else ", not charged")
    if isinstance(settle, DeadLetterDelivery):
        return f"reject: {settle.reason}"
    return f"extend by {settle.visibility_us / SECOND_US:g} s"

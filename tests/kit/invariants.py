"""Records what a process asks of an engine and what it is answered: a history that tests/kit/client_history judges.

A `Ledger` records puts, deliveries, settles, cancels and purges as they happen; `violations` has them judged, and
`check` raises with each violation and the whole story of its message. It knows the contract of engines and nothing
below it, so simulation and conformance are judged by the same sentences as the histories of real processes.

Times are the ledger's own clock's (in a simulation the truth), in us; only "nothing early" is judged by the clock of
the process that received.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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
from headgate.errors import HeadgateError, OperationRefused
from headgate.store.store import NotSent
from tests.kit.client_history.fates import Promises
from tests.kit.client_history.history import History, MessageRecord, PutRecord
from tests.kit.client_history.judge import Asked, Judge, Violation

SECOND_US = 1_000_000
SHOWN_BYTES_MAX = 60
"""A longer payload is in a history by its first word and a checksum."""


class Ledger:
    """The calls of all processes to one queue, and their answers."""

    def __init__(
        self,
        now_us: Callable[[], int],
        *,
        retention_us: int | None = None,
        skew_us: int = 0,
        max_receives: int | None = None,
        charges: bool = False,
    ) -> None:
        self.now_us = now_us
        self.promises = Promises(retention_us, skew_us, max_receives, charges)
        self.history = History()
        self.messages_put: dict[str, NewMessage] = {}
        """By the name of the put."""
        self._names = 0

    def _record(self, what: str, actor: str, **facts: Any) -> Any:
        return self.history.record(self.now_us(), actor, what, **facts)

    def _name(self) -> str:
        self._names += 1
        return str(self._names)

    # ---- recorded by producers

    def trying(
        self, messages: Sequence[NewMessage], producer: str, *, since_us: int | None = None
    ) -> list[PutRecord]:
        """These are about to be put by one call. `since_us`: when what they replace was put first."""
        call, puts = self._name(), []
        for each in messages:
            facts = {"group": each.group, "once": each.once, "scope": each.once_scope, "due_us": each.due_us}
            facts |= {"call": call, "producer": producer, "content": content_of(each), "since_us": since_us}
            put: PutRecord = self._record("putting", producer, put=self._name(), **facts)
            self.messages_put[put.name] = each
            puts.append(put)
        return puts

    def acknowledged(self, puts: Sequence[PutRecord], ids: Sequence[str]) -> None:
        """They were answered with these ids."""
        for put, message_id in zip(puts, ids, strict=True):
            self._record("put", put.producer, put=put.name, message_id=message_id)

    def not_acknowledged(self, puts: Sequence[PutRecord], error: BaseException) -> None:
        """They were not answered with ids: they may be there or not, unless nothing was sent."""
        for put in puts:
            self._record("not put", put.producer, put=put.name, sure=isinstance(error, NotSent | OperationRefused))

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
        self._record("keys forgotten", "time")

    # ---- recorded by consumers

    @contextmanager
    def receiving(self, actor: str, *, visibility_us: int) -> Iterator[None]:
        """A receive is under way; within, its deliveries are recorded."""
        call = self._name()
        self._record("receiving", actor, call=call, hides_us=visibility_us)
        try:
            yield
        except HeadgateError:
            self._record("received", actor, call=call, how="failed")
            raise
        except BaseException:
            self._record("received", actor, call=call, how="cancelled")
            raise
        self._record("received", actor, call=call, how="messages")

    def delivered(self, actor: str, result: Sequence[Delivery], *, clock_us: int, visibility_us: int) -> None:
        """These came out of a receive with this visibility; `clock_us` is the time on the receiver's own clock."""
        for each in result:
            ago_us = max(0, clock_us - (each.visible_until_us - visibility_us))
            given_us = self.now_us() - ago_us
            self._record(
                "given",
                actor,
                message_id=each.message_id,
                receipt=each.receipt,
                content=content_of(each),
                group=each.group,
                attempt=each.attempt,
                due_us=each.due_us,
                put_us=each.put_us,
                given_us=given_us,
                until_us=given_us + visibility_us,
                early=clock_us - ago_us < each.due_us,
                epoch=each.epoch,
                suspect=each.suspect,
            )

    def settling(self, actor: str, settles: Sequence[Settle]) -> list[str]:
        """These are about to be settled; their names."""
        names = [self._name() for _ in settles]
        for name, settle in zip(names, settles, strict=True):
            self._record("asking", actor, settle=name, receipt=settle.receipt, **facts_of(settle))
        return names

    def settled(self, actor: str, names: Sequence[str], answers: Sequence[Settled]) -> None:
        """And were answered so."""
        for name, answer in zip(names, answers, strict=True):
            self._record("answered", actor, settle=name, answer=answer.value)

    async def settle(
        self,
        settle: Callable[[Sequence[Settle]], Awaitable[Sequence[Settled]]],
        settles: Sequence[Settle],
        actor: str,
    ) -> list[Settled]:
        """Settle by this function, and take down how it ended."""
        names = self.settling(actor, settles)
        answers = list(await settle(settles))
        self.settled(actor, names, answers)
        return answers

    # ---- recorded by others

    async def settle_reserved(
        self, settle: Callable[[], Awaitable[Settled]], ids: Sequence[str], actor: str
    ) -> Settled:
        """A job settles messages of a range that it borrowed, by this function."""
        names = [self._name() for _ in ids]
        for message_id, name in zip(ids, names, strict=True):
            self._record("job asking", actor, settle=name, message_id=message_id)
        how = await settle()
        self.settled(actor, names, [how] * len(names))
        return how

    def cancelling(self, message_id: str) -> None:
        """Somebody is about to cancel it, or to reschedule it."""
        self._record("cancelling", "somebody", message_id=message_id)

    def rescheduled_too_late(self, message_id: str, new_id: str) -> None:
        """Both may come: the old one though its cancel was sent, the new one though it may have been taken back."""
        self._record("cancelling", "somebody", message_id=new_id, replaced_by=message_id)

    def cancel_answered(self, message_id: str, how: Cancelled) -> None:
        """With this answer. A cancel that came too late may have taken effect all the same."""
        if how is Cancelled.CANCELLED:
            self._record("cancelled", "somebody", message_id=message_id)

    def purging(self) -> str:
        """Somebody is about to purge; its name."""
        name = self._name()
        self._record("purging", "somebody", purge=name)
        return name

    def purged(self, name: str, before_us: int) -> None:
        """With the time of put up to which it held."""
        self._record("purged", "somebody", purge=name, before_us=before_us)

    def dead(self, message_ids: Iterable[str]) -> None:
        """These were found in the dead letter queue, each as often as it is named."""
        for message_id in message_ids:
            self._record("dead", "digger", message_id=message_id)

    # ---- short questions, for scenarios

    @property
    def tales(self) -> dict[str, MessageRecord]:
        """The history of each message."""
        return self.history.messages

    def tale(self, message_id: str) -> MessageRecord:
        """The history of a message so far."""
        return self.history.message(message_id)

    def message(self, message_id: str) -> NewMessage | None:
        """What was put as this message."""
        put = self.tale(message_id).put
        return None if put is None else self.messages_put[put.name]

    @property
    def payloads(self) -> dict[str, bytes]:
        """What was put as each acknowledged message."""
        puts = self.history.puts
        return {each.id: self.messages_put[each.name].payload for each in puts if each.id is not None}

    @property
    def acknowledged_ids(self) -> set[str]:
        """Every message whose put was acknowledged."""
        return {each.id for each in self.history.puts if each.id is not None}

    def open_ids(self, there: Collection[str] = ()) -> set[str]:
        """Messages without evidence that they are settled: they have to come yet, or be `there`."""
        judge = self.judge(there=there)
        return {
            each.id
            for each in self.tales.values()
            if each.put is not None and each.id not in there and not judge.may_be_gone(each)
        }

    def need_not_come(self, message_id: str) -> bool:
        """Whether a message that lies somewhere was met, or may be left there: by id, acknowledged or not."""
        message = self.tale(message_id)
        return (
            bool(message.deliveries or message.by_jobs)
            or self.judge().may_be_gone(message)
            or (message.put is None and bool(self.history.purges))
        )

    def times(self, message_id: str) -> int:
        """How often it was delivered."""
        return len(self.tale(message_id).deliveries)

    def story(self, message_id: str) -> str:
        """All that is known of a message, in order of time."""
        return self.history.story(message_id)

    # ---- the judgement

    def judge(self, *, there: Collection[str] = ()) -> Judge:
        """The judge of what is recorded so far. `there` are the messages still seen in the queue."""
        return Judge(self.history, self.promises, there=there, now_us=self.now_us())

    def check(self, *, there: Collection[str] = ()) -> None:
        """Raise with every promise that was broken."""
        matches = list(self.violations(there=there))
        if matches:
            raise AssertionError(f"{len(matches)} violations\n" + "\n".join(map(str, matches[:10])))

    def violations(
        self, *, there: Collection[str] = (), asked: Sequence[Asked] = (), late: Collection[str] = ()
    ) -> Iterator[Violation]:
        """All promises that were broken. `asked`: when consumers asked and nothing was broken, so that deliveries can
        be waited for, but of what is `late`: that comes when repair checks for it."""
        return self.judge(there=there).violations(asked, late=late)

    def check_balance(self, there: Stats) -> Iterator[Violation]:
        """Whether the queue's own counts agree with what was asked of it."""
        return self.judge().balance(there.backlog + there.in_flight + there.delayed, str(there))


def content_of(message: NewMessage | Delivery) -> str:
    """Payload and attributes, as a history names them."""
    shown = message.payload[:SHOWN_BYTES_MAX].decode("latin-1")
    if len(message.payload) > SHOWN_BYTES_MAX:
        shown = f"{shown.split()[0]} of {len(message.payload)} bytes, {zlib.crc32(message.payload)}"
    return shown if not message.attributes else f"{shown} {sorted(message.attributes.items())}"


def facts_of(settle: Settle) -> dict[str, Any]:
    """How a history names a settle."""
    if isinstance(settle, NackDelivery):
        return {"how": "nack", "hides_us": settle.delay_us, "charged": settle.charged}
    if isinstance(settle, DeadLetterDelivery):
        return {"how": "reject", "hides_us": settle.delay_us}
    if isinstance(settle, ExtendDelivery):
        return {"how": "extend", "hides_us": settle.visibility_us}
    assert isinstance(settle, Ack)
    return {"how": "ack"}

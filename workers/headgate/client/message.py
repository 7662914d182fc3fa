"""A message received by an application: its content, and the methods that settle it."""

from __future__ import annotations

import traceback
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from headgate.client.model.payloads import PayloadForms
from headgate.client.model.times import Span, datetime_of, span_us
from headgate.engines.contract import (
    Ack,
    Attributes,
    DeadLetterDelivery,
    Delivery,
    ExtendDelivery,
    NackDelivery,
    Settle,
    Settled,
    StaleReceipt,
)
from headgate.store.store import OutcomeUnknown

if TYPE_CHECKING:
    from headgate.client.queue import Queue

REASON_CHARACTERS_MAX = 4_000


class Received(PayloadForms):
    """A message as it was delivered. `Message` and `SyncMessage` are this, and settle it; a handler may take this."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    @property
    def id(self) -> str:
        """Its id, for life."""
        return self.delivery.message_id

    @property
    def payload(self) -> bytes:
        """The payload as it was put."""
        return self.delivery.payload

    @property
    def attributes(self) -> Attributes:
        """The attributes that were put with it."""
        return self.delivery.attributes

    @property
    def group(self) -> str | None:
        """Messages of one group come one after the other."""
        return self.delivery.group

    @property
    def attempt(self) -> int:
        """How often it was delivered, this time included."""
        return self.delivery.attempt

    @property
    def fencing_token(self) -> int:
        """The fencing token of its lane: an external system rejects any token lower than the highest it has seen."""
        return self.delivery.epoch

    @property
    def due(self) -> datetime:
        """When it was to be delivered."""
        return datetime_of(self.delivery.due_us)

    @property
    def put_at(self) -> datetime:
        """When it was first put."""
        return datetime_of(self.delivery.put_us)

    @property
    def visible_until(self) -> datetime:
        """When it comes again unless it is settled or extended."""
        return datetime_of(self.delivery.visible_until_us)

    @property
    def suspect(self) -> bool:
        """Whether a process died with it in flight: it is delivered alone."""
        return self.delivery.suspect

    @property
    def receipt(self) -> str:
        """The receipt, which settles this delivery and no other."""
        return self.delivery.receipt

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, attempt={self.attempt}, bytes={len(self.payload)})"


class Message(Received):
    """One delivery of one message. Acknowledge it when its work is done, or use it as a context, which does that:

    async with message:
        await send(message.json())        # acknowledged at the end, returned with the traceback if it raises
    """

    __slots__ = ("_queue",)

    def __init__(self, delivery: Delivery, queue: Queue) -> None:
        super().__init__(delivery)
        self._queue = queue

    async def ack(self) -> None:
        """Acknowledge it. StaleReceipt if another delivery was recorded since, Unknown if the outcome cannot be
        determined."""
        await self._settle_one(Ack(self.receipt))

    async def nack(self, delay: Span = 0, *, reason: str = "") -> None:
        """The handler failed: retry after this delay, or move to the dead-letter queue after too many receives."""
        await self._settle_one(NackDelivery(self.receipt, span_us(delay, "delay"), reason[:REASON_CHARACTERS_MAX]))

    async def reject(self, reason: str = "") -> None:
        """The message can never succeed: move it to the dead-letter queue at once; without one, deliver it again."""
        await self._settle_one(DeadLetterDelivery(self.receipt, reason[:REASON_CHARACTERS_MAX]))

    async def extend(self, visibility: Span) -> None:
        """It takes longer: keep it hidden this long from now."""
        visibility_us = span_us(visibility, "visibility")
        until_us = self._queue.now_us() + visibility_us
        await self._settle_one(ExtendDelivery(self.receipt, visibility_us))
        self.delivery = replace(self.delivery, visible_until_us=until_us)

    async def _settle_one(self, settle: Settle) -> None:
        (settled,) = await self._queue.settle([settle])
        raise_unless_done(settled, self.id)

    async def __aenter__(self) -> Message:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.ack()
        else:
            await self.nack(reason=reason_of(error))


def raise_unless_done(settled: Settled, message_id: str) -> None:
    if settled is Settled.STALE:
        raise StaleReceipt(message=message_id)
    if settled is Settled.UNKNOWN:
        raise OutcomeUnknown("The message may be settled, or may be delivered again", message=message_id)


def reason_of(error: BaseException) -> str:
    """A traceback in a dead letter: its end, which is the most useful part."""
    text = "".join(traceback.format_exception(error))
    return text[-REASON_CHARACTERS_MAX:]

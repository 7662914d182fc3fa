"""A message in the hands of an application: what it says, and how to settle it."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol

from headgate.client import payloads
from headgate.client.moments import Span, moment_of, span_us
from headgate.client.payloads import CONTENT_TYPE, Model
from headgate.engines.contract import (
    Ack,
    Attributes,
    DeadLetter,
    Delivery,
    Extend,
    Nack,
    Settle,
    Settled,
    StaleReceipt,
)
from headgate.store.store import Unknown

REASON_CHARACTERS_MAX = 4_000


class Settler(Protocol):
    """The queue that a message came from."""

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Each for itself."""
        ...

    def now_us(self) -> int:
        """By the process's clock."""
        ...


class Received:
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
        """What was put."""
        return self.delivery.payload

    @property
    def attributes(self) -> Attributes:
        """What was put beside it."""
        return self.delivery.attributes

    @property
    def content_type(self) -> str | None:
        """The form of the payload, where its producer told it."""
        found = self.delivery.attributes.get(CONTENT_TYPE)
        return found if isinstance(found, str) else None

    def text(self) -> str:
        """The payload as a text."""
        return payloads.read_text(self.payload)

    def json(self) -> Any:
        """The payload as what it says in JSON."""
        return payloads.read_json(self.payload)

    def read(self, model: type[Model]) -> Model:
        """The payload as a pydantic model."""
        return payloads.read_model(self.payload, model)

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
        """The fencing token of its lane: who acts on the outside world refuses what has a lower one than it saw."""
        return self.delivery.epoch

    @property
    def due(self) -> datetime:
        """When it was to be delivered."""
        return moment_of(self.delivery.due_us)

    @property
    def put_at(self) -> datetime:
        """When it was first put."""
        return moment_of(self.delivery.put_us)

    @property
    def visible_until(self) -> datetime:
        """When it comes again unless it is settled or extended."""
        return moment_of(self.delivery.visible_until_us)

    @property
    def suspect(self) -> bool:
        """Whether a process died with it in hand: it is delivered alone."""
        return self.delivery.suspect

    @property
    def receipt(self) -> str:
        """What settles this delivery, and nothing else."""
        return self.delivery.receipt

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, attempt={self.attempt}, bytes={len(self.payload)})"


class Message(Received):
    """One delivery of one message. Acknowledge it when its work is done, or use it as a context, which does that:

    async with message:
        await send(message.json())        # acknowledged at the end, given back with the traceback where it raises
    """

    __slots__ = ("_queue",)

    def __init__(self, delivery: Delivery, queue: Settler) -> None:
        super().__init__(delivery)
        self._queue = queue

    async def ack(self) -> None:
        """It is done. StaleReceipt if another delivery was recorded since, Unknown if nobody can tell."""
        await self._settle_one(Ack(self.receipt))

    async def nack(self, delay: Span = 0, *, reason: str = "") -> None:
        """It failed: again after this delay, or to the dead letter queue when it was received too often."""
        await self._settle_one(Nack(self.receipt, span_us(delay, "delay"), reason[:REASON_CHARACTERS_MAX]))

    async def reject(self, reason: str = "") -> None:
        """It will never succeed: to the dead letter queue at once; where there is none, delivered again."""
        await self._settle_one(DeadLetter(self.receipt, reason[:REASON_CHARACTERS_MAX]))

    async def extend(self, visibility: Span) -> None:
        """It takes longer: keep it hidden this long from now."""
        visibility_us = span_us(visibility, "visibility")
        until_us = self._queue.now_us() + visibility_us
        await self._settle_one(Extend(self.receipt, visibility_us))
        self.delivery.visible_until_us = until_us

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
    """What is not done is an error to who settles one message."""
    if settled is Settled.STALE:
        raise StaleReceipt(message=message_id)
    if settled is Settled.UNKNOWN:
        raise Unknown("the message may be settled, or may come again", message=message_id)


def reason_of(error: BaseException) -> str:
    """A traceback as a dead letter tells it: its end, which says most."""
    told = "".join(traceback.format_exception(error))
    return told[-REASON_CHARACTERS_MAX:]

"""A message in flight in the worker, from its receipt to its settle, and what its handler may know of it.

A handler gets the `Context` by a parameter annotated `Context`, or named `context`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from headgate.engines.contract import Attributes, Delivery, StaleReceipt
from headgate.telemetry.tracing import TraceContext

log = logging.getLogger("headgate.handler")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class HandlerControl(Protocol):
    async def extend(self, seconds: float) -> bool:
        """Give the handler this much time from now, and hide the message for as long. False if this worker no longer
        owns the message."""

    def extend_blocking(self, seconds: float) -> bool: ...

    def deadline_s(self) -> float | None:
        """When the handler has to be done, in seconds since 1970."""

    def limit(self, seconds: float) -> None:
        """Let the handler take this long from now, and hide the message as before; infinity for no bound."""


class Context:
    """One delivery of one message."""

    def __init__(
        self, delivery: Delivery, queue: str, control: HandlerControl, *, trace: TraceContext | None = None
    ) -> None:
        self.delivery = delivery
        self.queue = queue
        """`namespace/name`."""
        self.trace = trace
        """Of the trace that the message carries."""
        self.control = control
        self._lost = False

    @property
    def message_id(self) -> str:
        """Its id, for life."""
        return self.delivery.message_id

    @property
    def attempt(self) -> int:
        """How often it was delivered, this time included."""
        return self.delivery.attempt

    @property
    def fencing_token(self) -> int:
        """The fencing token: an external system rejects any token lower than the highest it has seen."""
        return self.delivery.epoch

    @property
    def attributes(self) -> Attributes:
        """The attributes that were put with the payload."""
        return self.delivery.attributes

    @property
    def group(self) -> str | None:
        """Messages of one group come one after the other."""
        return self.delivery.group

    @property
    def due(self) -> datetime:
        """When it was to be delivered."""
        return _EPOCH + timedelta(microseconds=self.delivery.due_us)

    @property
    def put_at(self) -> datetime:
        """When it was first put."""
        return _EPOCH + timedelta(microseconds=self.delivery.put_us)

    @property
    def logger(self) -> logging.Logger:
        """Every log line during the handling of a message has its id, attempt and trace as fields."""
        return log

    @property
    def deadline(self) -> datetime | None:
        """When the handler has to be done; None where the worker has no timeout."""
        at_s = self.control.deadline_s()
        return None if at_s is None else _EPOCH + timedelta(seconds=at_s)

    @property
    def lost(self) -> bool:
        """Whether this worker no longer owns the message: its lease is lost, or its time is over. A handler in a
        thread cannot be cancelled; a long one checks this and stops."""
        return self._lost

    async def extend(self, by: timedelta | float) -> None:
        """Give the handler this long from now; StaleReceipt if the message is not ours any more.

        The worker keeps a message hidden while its handler runs. Use this to exceed the timeout, and before a call
        that blocks the event loop.
        """
        if not await self.control.extend(_seconds(by)):
            raise StaleReceipt(message=self.message_id)

    def extend_blocking(self, by: timedelta | float) -> None:
        """The same, for a handler that is not async."""
        if not self.control.extend_blocking(_seconds(by)):
            raise StaleReceipt(message=self.message_id)

    def mark_lost(self) -> None:
        """Called by the worker."""
        self._lost = True


def _seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


@dataclass(slots=True, eq=False)
class Attempt:
    """One delivery. Each of its fields has one writer; times are by the event loop's clock."""

    delivery: Delivery
    until_s: float
    """When its visibility ends. Written by VisibilityKeeper, as `deadline_s`, `lost`, `overdue` and `given_back`."""
    context: Context | None = None
    """Written by the slot that handles it, as `task`, `batch` and `trace`."""
    deadline_s: float = math.inf
    lost: bool = False
    overdue: bool = False
    given_back: bool = False
    """Its time is over because the worker ends."""
    task: asyncio.Task[None] | None = None
    """The task that runs its handler now."""
    batch: Sequence[Attempt] = ()
    """All that one call of the handler has, this one too, while it runs."""
    trace: TraceContext | None = None
    in_thread: bool = False
    """Whether its handler is in a thread: then cancelling the task does not stop it. Written by the runner."""

    def end(self) -> None:
        """Its handler has returned. The references back to this flight are dropped, so that the message's memory is
        free at once: the collector runs seldom, and a message may be large."""
        self.task = self.context = None
        self.batch = ()

    @property
    def is_stopped(self) -> bool:
        return self.lost or self.overdue or self.given_back

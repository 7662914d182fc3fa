"""A message in flight in the worker, from its receipt to its settle."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.engines.contract import Delivery

if TYPE_CHECKING:
    from headgate.runtime.handler.context import Context
    from headgate.telemetry.tracing import TraceContext


class Attempt:
    """One delivery. `until_s` and `deadline_s` are by the event loop's clock."""

    __slots__ = (
        "batch",
        "can_stop",
        "context",
        "deadline_s",
        "delivery",
        "given_back",
        "lost",
        "overdue",
        "task",
        "trace",
        "until_s",
    )

    def __init__(self, delivery: Delivery, until_s: float) -> None:
        self.delivery = delivery
        self.until_s = until_s
        self.deadline_s = math.inf
        self.lost = False
        self.overdue = False
        self.given_back = False
        """Its time is over because the worker ends."""
        self.task: asyncio.Task[None] | None = None
        """The task or thread that runs its handler now."""
        self.can_stop = False
        """Whether cancelling the task stops its handler: not while it is in a thread."""
        self.batch: Sequence[Attempt] = ()
        """All that one call of the handler has, this one too, while it runs."""
        self.context: Context | None = None
        self.trace: TraceContext | None = None

    def end(self) -> None:
        """Its handler has returned. The references back to this flight are dropped, so that the message's memory is
        free at once: the collector runs seldom, and a message may be large."""
        self.task = self.context = None
        self.batch = ()

    @property
    def is_stopped(self) -> bool:
        return self.lost or self.overdue or self.given_back

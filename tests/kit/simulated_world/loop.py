"""The virtual loop of a simulation: it carries messages, and may run callbacks in an order that the seed chooses.

With `shuffled`, callbacks that are ready together run in that order. asyncio promises theirs, so code that relies on
the promise needs it off.
"""

from __future__ import annotations

import contextvars
import heapq
from collections.abc import Callable, Container
from random import Random
from typing import Any

from headgate.testing.virtual_loop import VirtualLoop


class LoopDelivery:
    """A message on its way: the parts of a handle that the loop needs, and no more. It is never cancelled.

    `cuts` are the links that do not carry anything when it arrives.
    """

    __slots__ = ("_context", "_scheduled", "args", "cuts", "link", "receive")
    _cancelled = False

    def __init__(
        self,
        context: contextvars.Context,
        receive: Callable[..., object],
        args: tuple[Any, ...],
        link: tuple[str, str],
        cuts: Container[tuple[str, str]],
    ) -> None:
        self._context = context
        self.receive = receive
        self.args = args
        self.link = link
        self.cuts = cuts

    def _run(self) -> None:
        if self.cuts and self.link in self.cuts:
            return
        self._context.run(self.receive, *self.args)


class SimulationLoop(VirtualLoop):
    """A virtual loop with messages and a seed."""

    def __init__(self, rng: Random, *, shuffled: bool, until_s: float, report: Callable[[], str]) -> None:
        super().__init__(until_s=until_s, report=report)
        self._rng = rng
        if shuffled:
            self._arrange = self._shuffle

    def post(self, when: float, delivery: LoopDelivery) -> None:
        """Set a timer for a message: as call_at, at a third of its cost."""
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, delivery))

    def _shuffle(self, ready: Any) -> None:
        if len(ready) > 1:
            waiting = list(ready)
            self._rng.shuffle(waiting)
            ready.clear()
            ready.extend(waiting)

"""The interface that the worker runtime needs of a queue: the engines' contract, and a few facts about it.

The client's queue is adapted to it in `process/sdk_queue.py`; tests bring one of their own
(`tests/kit/worker_queue.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.engines.contract import Delivery, Settle, Settled
from headgate.store.clock.clock import ClockFigures


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    lane: str
    age_s: float
    """Since the last renewal that counts was sent."""
    epoch: int


class WorkerQueue(Protocol):
    """One queue, as the worker runtime uses it."""

    name: str
    """`namespace/name`."""
    visibility_us: int
    """How long a received message is hidden by default."""

    @property
    def max_receives(self) -> int | None:
        """The maximum number of receives before a dead letter; None without a dead-letter queue."""

    @property
    def stops(self) -> int:
        """How many lanes had to be taken from this process: their loop made no turn, or they were another's."""

    def dead_loops(self) -> Sequence[str]:
        """Why background loops of this queue do nothing any more; none while all of them run."""

    @property
    def sharers(self) -> int:
        """Among how many processes its lanes are shared, this one too; at least one."""

    async def receive(self, limit: int, *, visibility_us: int, wait_us: int) -> list[Delivery]:
        """As `Engine.receive`. Its caller may declare that crash suspects run in a separate process."""

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]: ...

    def leases(self) -> Sequence[LeaseStatus]: ...

    def clock(self) -> ClockFigures | None:
        """The measured offset of the nodes' clocks from this one; None without nodes."""

    async def leave(self) -> None:
        """Acquire no more lanes, and hand each lane over as soon as nothing of it is open; open messages can still be
        settled."""

    async def close(self) -> None: ...

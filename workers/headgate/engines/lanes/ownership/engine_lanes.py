"""The interface of an engine for a set of lanes: which lanes a queue has, and what the engine does with each.

`LaneSet` and `PeerMonitor` know nothing else of an engine. What a dispatcher needs of one lane is a `LaneSource`.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any, Protocol, TypeVar
from uuid import UUID

from headgate.engines.lanes.dispatcher import Dispatcher, DispatchTerms
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm, LeaseTerms
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.source import LaneSource
from headgate.engines.summary.decide_figures import LaneStand

Work = Coroutine[Any, Any, None]
Source = TypeVar("Source", bound=LaneSource)


class EngineLanes(Protocol[Source]):
    """The lanes of one queue for one process, by the settings in force at each call."""

    @property
    def queue(self) -> UUID:
        """The queue's id."""
        ...

    @property
    def queue_name(self) -> str:
        """Its name in logs."""
        ...

    @property
    def lease(self) -> LeaseTerms:
        """How long a lane is leased, and how far clocks may differ."""
        ...

    def names(self) -> list[LaneName]:
        """All lanes there are, retired or not."""
        ...

    def lane(self, name: LaneName) -> Lane:
        """The control row of a lane."""
        ...

    async def make(self, name: LaneName) -> bool:
        """Create the row of a lane that has none, where that is a process's to do; False where it is not."""
        ...

    @property
    def terms(self) -> DispatchTerms:
        """The bounds of a dispatcher's work."""
        ...

    def source(self, name: LaneName, lease_term: LeaseTerm) -> Source:
        """The rows of a lane for the length of a lease term."""
        ...

    def engine_work(self, name: LaneName, dispatcher: Dispatcher, source: Source) -> Work | None:
        """Work of the engine's own that starts now next to a dispatcher, and ends with its lease term; None while
        there is none yet. It may leave the lane for good."""
        ...

    @property
    def arrivals_every_s(self) -> float:
        """How often `find_arrivals` is to be called while lanes are empty."""
        ...

    async def find_arrivals(self, empty: Collection[LaneName]) -> Collection[LaneName]:
        """Of these empty lanes, those in which there may be something by now: one question for all of them. The
        sources of the others are quiet from then on."""
        ...

    def lanes_before(self, name: LaneName) -> list[LaneName]:
        """The lanes that have to be retired before this one delivers groups, the first to be retired first."""
        ...

    async def first_due_us(self, name: LaneName, state: LaneState) -> int | None:
        """When the oldest work above the position of a lane was due, as the tables show it; None without any."""
        ...

    async def announce_next_due(self) -> None:
        """Record when the queue has to be woken, for a process that stops working it."""
        ...

    def stand(self, name: LaneName, dispatcher: Dispatcher, now_us: int) -> LaneStand:
        """The state of an owned lane for the summary."""
        ...

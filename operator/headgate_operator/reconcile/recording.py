"""Passes the reads of a reconcile on to the rest of the operator: the connection that a resource uses, the
queue whose figures are read from now on, an object that was found in the place of a child.

Reading has no side effects (observe/world_builder.py), so a plan of a document that nobody has applied leaves no
trace. All that follows from reading is here, and only the reconcile calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.model.kinds import Document
from headgate_operator.model.names import Key
from headgate_operator.model.world import UNKNOWN, ResourceWorld, StoreConnection, StoreView
from headgate_operator.observe.queue_stats import FigureBoard
from headgate_operator.observe.world_builder import followed_entry
from headgate_operator.store.catalogue import StoreSide
from headgate_operator.store.connections import Connections


class ObservationRecorder:
    """Records for all keys."""

    def __init__(
        self,
        connections: Connections,
        store: StoreSide,
        board: FigureBoard,
        intake: EventIngest,
        *,
        now_us: Callable[[], int],
    ) -> None:
        self._connections = connections
        self._store = store
        self._board = board
        self._intake = intake
        self._now_us = now_us

    async def record(self, key: Key, world: ResourceWorld) -> ResourceWorld:
        """The world of a living resource, with the figures that are known once it is followed."""
        if not isinstance(world.connection, StoreConnection):
            self._board.forget(key)
            return world
        self._connections.note(key, world.connection)
        if not isinstance(world.store, StoreView):
            return world
        entry = followed_entry(world.resource, world.store, self._store)
        reached = self._store.reached(world.connection)
        if entry is None or reached is None:
            self._board.forget(key)
            return replace(world, figures=UNKNOWN)
        await self._board.follow(key, reached, entry)
        return replace(world, figures=self._board.of(key, self._now_us()))

    def record_children(self, documents: Iterable[Document]) -> None:
        """Children that were found by asking for them."""
        for document in documents:
            self._intake.wrote(document)

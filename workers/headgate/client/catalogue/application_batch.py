"""A message in a batch of the application's own. The prose is docs/internals/protocols/timeline.md, "A message in the
application's own batch".

    put = await q.add_to_batch(batch, {"order": 7})
    put.check()
    session.execute(batch)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headgate.client.model.times import datetime_of
from headgate.engines.contract import StampedPut

if TYPE_CHECKING:  # the driver is imported when a connection is opened
    from headgate.store.cassandra.batches import CassandraBatches

WITHIN_S = 2.0


class BatchPut:
    """A message that was added to a batch. It is put when the batch is acknowledged."""

    def __init__(
        self, batch: Any, stamped: StampedPut, *, batches: CassandraBatches, usable: Callable[[], None]
    ) -> None:
        self.id = stamped.message_id
        """Of the message, should the batch be acknowledged."""
        self.until: datetime = datetime_of(stamped.promise.silent_after_us)
        """If the batch is acknowledged before this time, the message comes when it is due; later, repair delivers it
        some minutes late."""
        self._batch = batch
        self._stamped = stamped
        self._batches = batches
        self._usable = usable

    def check(self) -> None:
        """Call it right before the batch is sent: raises, in one line, the reason not to send it. Makes no
        request."""
        self._usable()
        self._batches.check(self._batch)
        self._stamped.check()

    def __repr__(self) -> str:
        return f"BatchPut({self.id}, until {self.until.isoformat()})"

"""Messages that have a place already: a retry, a dead letter, a row that repair moves, a once key's message. The
prose is "Copies" in docs/internals/protocols/timeline.md.

Any number of writes of a copy is one message: each writes the same bytes to the same key with the same timestamp, or
a restamped row where the place may have been passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.engines.packed_row import PackedRun
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace
from headgate.engines.timeline.put.row_sender import Sender


@dataclass(frozen=True, slots=True)
class Copy:
    """A message that has a place already. `put_us` is the time of its first put, and the timestamp of its row: every
    writer of the copy writes the same."""

    payload: bytes
    message_id: bytes
    put_us: int
    due_us: int
    attributes: bytes = b""
    group: bytes | None = None
    attempt: int = 0

    def run(self, place: MessagePlace) -> PackedRun:
        """As a row of its own."""
        return PackedRun(
            due_us=[self.due_us],
            put_us=[self.put_us],
            payload=[self.payload],
            attempt=[self.attempt] if self.attempt else None,
            attributes=[self.attributes] if self.attributes else None,
            group=[self.group] if self.group is not None else None,
            message_id=None if self.message_id == place.to_bytes() else [self.message_id],
        )


async def write_copies(
    sender: Sender,
    copies: Sequence[tuple[MessagePlace, Copy]],
    *,
    late_is_repaired: bool = True,
    counted: bool = True,
) -> list[tuple[MessagePlace, Copy]]:
    """Write copies at their fixed places; raises the first error, if any, and then they have to be written again.
    Returns those that are durable, but that the lane's owner may no longer read, since their generation ended: they
    are left to repair, or put elsewhere."""
    now_us = sender.host.now_us()
    rows = [
        sender.stamp(copy.run(place), place.row, now_us=now_us, timestamp_us=copy.put_us) for place, copy in copies
    ]
    landed = sender.land(
        rows,
        joint=any(copy.group is not None for _, copy in copies),
        late_is_repaired=late_is_repaired,
        counted=counted,
    )
    errors = []
    late: set[RowPlace] = set()
    async for acknowledged, given_up in landed:
        late.update(row.first for row in acknowledged if row.late_is_repaired)
        errors += [error for _, error in given_up]
    if errors:
        raise errors[0]
    return [each for each in copies if each[0].row in late]


async def write_restamp(sender: Sender, place: RowPlace, run: PackedRun, *, first: RowPlace) -> None:
    """A whole row, with the ids of its messages, at its fixed place, as a restamped row of the lineage named after
    `first`; or a further restamped row where that place may have been passed. It was acknowledged in time when this
    returns; else raises Unknown."""
    row = sender.stamp(run, place, now_us=sender.host.now_us(), timestamp_us=max(run.put_us), first=first)
    errors = [error async for _, given_up in sender.land([row]) for _, error in given_up]
    if errors:
        raise errors[0]

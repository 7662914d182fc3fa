"""A message for the application's own batch: stamped by this producer, sent by the application. The prose is "A
message in the application's own batch" in docs/internals/protocols/timeline.md.

It knows neither drivers nor CQL. Invariants: the statements are those that a producer would write, index rows
included, so that sending them again changes nothing, and repair finds the message whenever they land.
"""

from __future__ import annotations

from functools import partial

from headgate.engines.contract import BatchTooLate, CatalogueStale, NewMessage, StampedPut
from headgate.engines.packed_row import attribute_bytes
from headgate.engines.timeline.model.layout import day_of, id_text
from headgate.engines.timeline.model.partitions import day_statement, index_statement
from headgate.engines.timeline.model.row import index_key_of
from headgate.engines.timeline.put.copies import Copy
from headgate.engines.timeline.put.producer import Producer
from headgate.engines.timeline.put.row_sender import Sender
from headgate.errors import InvalidRequest
from headgate.expiry import Promise

WITHIN_US_MAX = 60_000_000


def stamp_put(producer: Producer, message: NewMessage, *, within_us: int) -> StampedPut:
    """One message, by one producer's knowledge, for a batch that is acknowledged within this time."""
    if message.once is not None:
        raise InvalidRequest(
            "A message in a batch cannot have a once key, which needs its own transaction",
            remedy="put the message on its own, or let the batch's own write claim the key",
        )
    if not 0 < within_us <= WITHIN_US_MAX:
        raise InvalidRequest(
            "`within` must be at most a minute: it is the time until the batch is answered", within_us=within_us
        )
    producer.check([message])
    sender = producer.sender
    settings, last_expiry_s = sender.settings, sender.host.last_expiry_s
    now_us = sender.now_fresh_us()
    due_us = now_us + settings.delay_us if message.due_us is None else message.due_us
    group = None if message.group is None else message.group.encode()
    place = sender.fix_place(due_us, group=group, extra_us=within_us, size_bytes=len(message.payload))
    copy = Copy(message.payload, place.to_bytes(), now_us, due_us, attribute_bytes(message.attributes), group)
    row = sender.stamp(copy.run(place), place.row, now_us=now_us)
    key = index_key_of(row.partition)
    day = day_of(key.part, settings.part_us)
    sender.records.add([row])  # counted and marked before it is known whether the application sent it
    promise = Promise.until(row.due_us, sent_us=now_us, margin_us=settings.skew_us)
    return StampedPut(
        message_id=id_text(place.to_bytes()),
        statements=(
            row.statement,
            index_statement(settings, key, now_us=now_us, last_expiry_s=last_expiry_s, announced=True),
            day_statement(settings, key.generation, day, now_us=now_us, last_expiry_s=last_expiry_s),
        ),
        promise=promise,
        check=partial(_check, sender, promise, generation=key.generation, due_us=row.due_us),
    )


def _check(sender: Sender, promise: Promise, *, generation: int, due_us: int) -> None:
    now_us = sender.host.now_us()
    if not promise.still_holds(max(now_us, promise.sent_us)):
        raise BatchTooLate(remedy="build the batch again, or increase `within`", queue=sender.settings.name)
    if not sender.known.holds(now_us):
        raise CatalogueStale(queue=sender.settings.name, remedy="build the batch again")
    if sender.known.owner_of(due_us) != generation:
        raise BatchTooLate("The queue's shards have changed", remedy="build the batch again")

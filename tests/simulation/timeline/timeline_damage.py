"""Stored rows that cannot be read any more, and how they came to that."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headgate.engines.timeline.model.layout import MessagePlace, RowPlace, id_bytes
from headgate.store.model.statements import Select, Update
from headgate.store.model.types import Value
from tests.simulation.timeline.timeline_puts import Client, Queue


def flip_a_bit(cell: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(cell))
    return cell[:at] + bytes([cell[at] ^ 1 << rng.randrange(8)]) + cell[at + 1 :]


def write_as_a_later_release(cell: bytes, rng: Random) -> bytes:
    return b"\x02" + cell[1:]


def cut_off(cell: bytes, rng: Random) -> bytes:
    return cell[: rng.randrange(len(cell))]


def overwrite(cell: bytes, rng: Random) -> bytes:
    return rng.randbytes(len(cell))


DAMAGES = (flip_a_bit, write_as_a_later_release, cut_off, overwrite)


def key_of(queue: Queue, place: RowPlace) -> dict[str, Value]:
    return {
        "queue": queue.settings.queue,
        "generation": place.generation,
        "part": place.part(queue.settings.part_us),
        "sub": place.sub,
        "shard": place.shard,
        "due": place.due,
    }


async def damage(
    queue: Queue, client: Client, message_id: str, how: Callable[[bytes, Random], bytes] = flip_a_bit
) -> RowPlace:
    """The row of a message becomes unreadable on all replicas."""
    place = MessagePlace.from_bytes(id_bytes(message_id)).row
    table, key = queue.settings.tables.work, key_of(queue, place)
    (row,) = await client.store.read(Select(table, key, ("run",)))
    broken = how(row.run, client.process.rng)
    now_us = client.process.clock.wall_us()
    await client.store.write(Update(table, key, {"run": broken}, timestamp_us=now_us + 1, ttl_s=3600))
    return place

"""Shards of a key: their mutators, which are counted already, which are final, and the batch that collects them.
Pure.

A mutator's id is 16 bytes: the end of its life in µs, big-endian, then 8 that distinguish it from others of the same
end. So ids sort by end, and one range holds all that ended before a given time. The tally of a key is the row whose
id is one zero byte, which sorts before all of them. Its one cell holds `through`, the highest end that it has
included, and the state.

Invariant: a shard whose end is at or below the tally's `through` is counted in it, and nowhere else (attack B3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from headgate.errors import Bug

TALLY = b"\x00"
END_BYTES = 8
ID_BYTES = 16
THROUGH_BYTES = 8
LOW_MAX = 2**64 - 1
DAY_US = 86_400_000_000
LIFETIME_US_MAX = 30 * DAY_US
"""The longest life that a resource can set (headgate.api.resources.counters)."""
FORGET_MARGIN_US = DAY_US
"""An update is dated at its call, and may wait a while for its write."""


class ShardBroken(Bug):
    """A row of a counter's shards is none that Headgate wrote."""


def bucket_of(key: str, buckets: int) -> int:
    """The partition of a key: the CRC-32 of its UTF-8, so that any language finds it."""
    return crc32(key.encode()) % buckets


def mutator_id(end_us: int, low: int) -> bytes:
    """The id of a mutator; those that fold minutes have 0 in their low half, all others something else."""
    return end_us.to_bytes(END_BYTES, "big") + low.to_bytes(END_BYTES, "big")


def end_of(mutator: bytes) -> int:
    if len(mutator) != ID_BYTES:
        raise ShardBroken(mutator=mutator.hex())
    return int.from_bytes(mutator[:END_BYTES], "big")


def last_id_of(end_us: int) -> bytes:
    return mutator_id(end_us, LOW_MAX)


def tally_cell(through_us: int, state: bytes) -> bytes:
    return through_us.to_bytes(THROUGH_BYTES, "big") + state


@dataclass(frozen=True, slots=True)
class Tally:
    through_us: int
    state: bytes


def tally_of(cell: bytes) -> Tally:
    if len(cell) <= THROUGH_BYTES:
        raise ShardBroken("A tally without a state", bytes=len(cell))
    return Tally(int.from_bytes(cell[:THROUGH_BYTES], "big"), cell[THROUGH_BYTES:])


@dataclass(frozen=True, slots=True)
class Shard:
    mutator: bytes
    end_us: int
    state: bytes


@dataclass(frozen=True, slots=True)
class KeyRows:
    tally: Tally | None
    shards: tuple[Shard, ...]

    @property
    def through_us(self) -> int:
        """The highest end that the tally has taken in; before all of them where there is none."""
        return self.tally.through_us if self.tally is not None else -1

    @property
    def counted(self) -> list[Shard]:
        """The shards that count in addition to the tally."""
        through_us = self.through_us
        return [shard for shard in self.shards if shard.end_us > through_us]

    def states(self) -> list[bytes]:
        states = [shard.state for shard in self.counted]
        return [self.tally.state, *states] if self.tally is not None else states

    def covers(self, end_us: int, mutator: bytes) -> bool:
        """Whether that mutator's updates are in the tally, or present as a shard."""
        return end_us <= self.through_us or any(shard.mutator == mutator for shard in self.shards)


def rows_of_key(rows: Iterable[tuple[bytes, bytes]]) -> KeyRows:
    tally: Tally | None = None
    shards = []
    for mutator, state in rows:
        if mutator == TALLY:
            tally = tally_of(state)
        else:
            shards.append(Shard(mutator, end_of(mutator), state))
    return KeyRows(tally, tuple(shards))


def cutoff_us(now_us: int, after_us: int, first_unfolded_end_us: int | None) -> int:
    """Up to which end shards are final: long past, and before the first minute that is still to be folded (B2)."""
    past = now_us - after_us
    return past if first_unfolded_end_us is None else min(past, first_unfolded_end_us - 1)


def is_worth_collecting(rows: KeyRows, cutoff: int) -> bool:
    """Whether a collection leaves fewer rows: a lone shard is as good as a tally."""
    final = sum(shard.end_us <= cutoff for shard in rows.shards)
    return final > (rows.tally is None)


@dataclass(frozen=True, slots=True)
class Collection:
    """The end of a key's final shards: one range deletes all of them, and this is the tally."""

    through_us: int
    states: tuple[bytes, ...]
    """The inputs of the tally's merge."""
    collected: int
    """How many rows go."""

    @property
    def timestamp_us(self) -> int:
        """Above all that it deletes, and growing with `through`: sent again, it changes nothing."""
        return self.through_us + 1

    @property
    def forget_before_us(self) -> int:
        """No shard outside this tally has an update from before that time. It follows from `through`, so that two
        collectors of the same shards write the same."""
        return self.through_us - LIFETIME_US_MAX - FORGET_MARGIN_US


def decide_collection(rows: KeyRows, cutoff: int) -> Collection | None:
    """The batch for a key, read whole at ALL; None if nothing in it is final. A shard at or below the old `through`
    is counted already: it is deleted again, and does not count."""
    final = [shard for shard in rows.shards if shard.end_us <= cutoff]
    if not final:
        return None
    fresh = [shard.state for shard in final if shard.end_us > rows.through_us]
    states = (rows.tally.state, *fresh) if rows.tally is not None else tuple(fresh)
    through_us = max(rows.through_us, *(shard.end_us for shard in final))
    return Collection(through_us, states, len(final))


def whole_keys(keys: Sequence[str], limit: int) -> tuple[str | None, bool]:
    """Of the keys of a page's rows, in order: the last one that is whole in it, and whether more may follow. None if
    not even the first is known to be whole."""
    if len(keys) < limit:
        return (keys[-1] if keys else None), False
    last = keys[-1]
    return next((key for key in reversed(keys) if key != last), None), True

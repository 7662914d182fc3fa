"""Once keys: which slot a key is claimed in, what a claim says, and what to do about a key that is taken.
The prose and its argument are "Once" in docs/internals/protocols/timeline.md.

Pure. A place is opaque bytes here.

Invariants: the slot of a key never depends on the time; all that is written for a key follows from its claim and its
message, so that whoever finishes a claim writes the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from headgate.errors import Bug

SLOTS = 4096
SECOND_US = 1_000_000
_TIMES = struct.Struct("<qq")
_BY_SCOPE, _BY_KEY = b"s", b"k"


@dataclass(frozen=True, slots=True)
class Claim:
    """What the cell of a claimed key says: where its message is, when it was claimed, and until when that holds."""

    place: bytes
    claimed_us: int
    ends_us: int

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return self.place + _TIMES.pack(self.claimed_us, self.ends_us)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Claim:
        """What these bytes say."""
        if len(stored) <= _TIMES.size:
            raise Bug("the cell of a once key is truncated", length=len(stored))
        claimed_us, ends_us = _TIMES.unpack(stored[-_TIMES.size :])
        return cls(stored[: -_TIMES.size], claimed_us, ends_us)

    def written_ttl_s(self, now_us: int, skew_us: int) -> int:
        """How long the note that the message is written may live: it ends before the claim does, or is not made.

        Cassandra counts in whole seconds of clocks that may differ by the bound, twice: at the claim and now.
        """
        return (self.ends_us - 2 * skew_us - now_us) // SECOND_US - 1


def slot_of(key: bytes, scope: bytes | None) -> bytes:
    """The partition that a key is claimed in: that of its scope, or one of 4096 by the key itself."""
    if scope is not None:
        return _BY_SCOPE + blake2b(scope, digest_size=16).digest()
    number = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % SLOTS
    return _BY_KEY + number.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Found:
    """A key that exists: its claim, and whether its message is known to be written."""

    claim: bytes
    written: bool


class Standing(Enum):
    """What a refused batch says of one key."""

    MINE = "mine"
    """An earlier attempt of this very put was applied, though its answer was lost."""
    WRITTEN = "written"
    UNFINISHED = "unfinished"
    FREE = "free"
    """To be sent again: it was refused for the others' sake."""


def standing_of(proposed: bytes, found: Found | None) -> Standing:
    """Where a key stands. No two puts propose the same claim, so one that is there is ours."""
    if found is None:
        return Standing.FREE
    if found.claim == proposed:
        return Standing.MINE
    return Standing.WRITTEN if found.written else Standing.UNFINISHED


def sort_standings(proposed: Mapping[bytes, bytes], found: Mapping[bytes, Found]) -> dict[Standing, list[bytes]]:
    """The keys of a refused batch by where they stand."""
    sorted_keys: dict[Standing, list[bytes]] = {standing: [] for standing in Standing}
    for key, claim in proposed.items():
        sorted_keys[standing_of(claim, found.get(key))].append(key)
    return sorted_keys


class Finish(Enum):
    """How an unfinished claim of somebody else is finished."""

    AT_ITS_PLACE = "at its place"
    """Or by a twin that names it, which the lane's owner can tell from it."""
    BY_LOOKING = "by looking"
    """No lane can tell any more: see whether the row is there, else claim the key anew."""


def how_to_finish(
    *, due_us: int, now_us: int, retention_us: int, place_is_owned: bool, twin_is_owned: bool, margin_us: int
) -> Finish:
    """How to finish a claim whose place is due at that moment.

    A row or a twin is written only to a generation that owns its due moment: any other may be retired. And a twin is
    told from its original only as long as the record of passed rows is kept.
    """
    if now_us + margin_us < due_us:
        return Finish.AT_ITS_PLACE if place_is_owned else Finish.BY_LOOKING
    told_apart = now_us + margin_us < due_us + retention_us
    return Finish.AT_ITS_PLACE if told_apart and twin_is_owned else Finish.BY_LOOKING


def chunks(keys: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    """The keys of one slot, as many at once as one batch claims."""
    return [keys[start : start + size] for start in range(0, len(keys), size)]

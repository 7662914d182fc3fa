"""Once keys: the slot in which a key is claimed, the content of a claim, and the action for a taken key. The prose
and its argument are "Once" in docs/internals/protocols/timeline.md.

Pure. A place is opaque bytes to it.

Invariants: the slot of a key never depends on the time; everything written for a key follows from its claim and its
message, so that every process that finishes a claim writes the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import TypeVar

from headgate.errors import Bug

SLOTS = 4096
CLAIMED_AT_ONCE_MAX = 200
"""Keys of one claim, and rows of one write."""
SLOTS_A_SHARE_MAX = 8
"""The slowest of them delays the rows of all; their notes are one batch of few partitions."""
SECOND_US = 1_000_000
_TIMES = struct.Struct("<qq")
_BY_SCOPE, _BY_KEY = b"s", b"k"

OnceKey = tuple[bytes, bytes]
"""A slot, and a key in it."""
Share = list[Sequence[OnceKey]]
"""Keys by their slots, whose rows are written together."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """The cell of a claimed key: the place of its message, the time of the claim, and its end."""

    place: bytes
    claimed_us: int
    ends_us: int

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return self.place + _TIMES.pack(self.claimed_us, self.ends_us)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Claim:
        """The content of these bytes."""
        if len(stored) <= _TIMES.size:
            raise Bug("The cell of a once key is truncated", length=len(stored))
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
class ClaimedKey:
    """A key that exists: its claim, and whether its message is known to be written."""

    claim: bytes
    written: bool


class ClaimStatus(Enum):
    """The state of one key in a rejected batch."""

    MINE = "mine"
    """An earlier attempt of this very put was applied, though its answer was lost."""
    WRITTEN = "written"
    UNFINISHED = "unfinished"
    FREE = "free"
    """To be sent again: it was refused for the others' sake."""


def standing_of(proposed: bytes, claimed: ClaimedKey | None) -> ClaimStatus:
    """The state of a key. No two puts propose the same claim, so an equal one is ours."""
    if claimed is None:
        return ClaimStatus.FREE
    if claimed.claim == proposed:
        return ClaimStatus.MINE
    return ClaimStatus.WRITTEN if claimed.written else ClaimStatus.UNFINISHED


def sort_standings(
    proposed: Mapping[bytes, bytes], claimed: Mapping[bytes, ClaimedKey]
) -> dict[ClaimStatus, list[bytes]]:
    """The keys of a rejected batch by their states."""
    sorted_keys: dict[ClaimStatus, list[bytes]] = {standing: [] for standing in ClaimStatus}
    for key, claim in proposed.items():
        sorted_keys[standing_of(claim, claimed.get(key))].append(key)
    return sorted_keys


class Finish(Enum):
    """How to finish another process's unfinished claim."""

    AT_ITS_PLACE = "at its place"
    """Or by a restamped row that names it, which the lane's owner can distinguish from it."""
    BY_READING = "by a read"
    """No lane can distinguish them any more: check whether the row exists, else claim the key again."""


def decide_finish(
    *, due_us: int, now_us: int, retention_us: int, place_is_owned: bool, restamp_is_owned: bool, margin_us: int
) -> Finish:
    """How to finish a claim whose place is due at that time.

    A row or a restamped row is written only to a generation that owns its due time: any other may be retired. And a
    restamped row is distinguishable from its original only as long as the record of passed rows is kept.
    """
    if now_us + margin_us < due_us:
        return Finish.AT_ITS_PLACE if place_is_owned else Finish.BY_READING
    is_distinguishable = now_us + margin_us < due_us + retention_us
    return Finish.AT_ITS_PLACE if is_distinguishable and restamp_is_owned else Finish.BY_READING


def line_up(keys: Sequence[OnceKey], *, together: bool = False) -> list[list[Share]]:
    """The keys of one put in lines of shares: a share follows the one before it in its line. The keys of one slot are
    in one line, since their claims would hinder each other. All are `together` where places need one order."""
    by_slot: dict[bytes, list[OnceKey]] = {}
    for each in keys:
        by_slot.setdefault(each[0], []).append(each)
    if together:
        return [[list(by_slot.values())]]
    lines: list[list[Share]] = []
    shared: Share = []
    for of_slot in by_slot.values():
        if len(of_slot) > CLAIMED_AT_ONCE_MAX:
            lines.append([[claim] for claim in chunks(of_slot, CLAIMED_AT_ONCE_MAX)])
            continue
        is_full = len(shared) == SLOTS_A_SHARE_MAX or sum(map(len, shared)) + len(of_slot) > CLAIMED_AT_ONCE_MAX
        if is_full or not shared:
            shared = []
            lines.append([shared])
        shared.append(of_slot)
    return lines


def chunks(keys: Sequence[T], size: int) -> list[Sequence[T]]:
    """Those of one slot, as many at once as one claim holds."""
    return [keys[start : start + size] for start in range(0, len(keys), size)]

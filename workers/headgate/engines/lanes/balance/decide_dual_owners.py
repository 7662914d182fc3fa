"""Two owners of one lane: each member's claims of lanes, and when two claims cannot both be true.

Leases make it impossible (docs/internals/protocols/lease.md). This is the net below them, for a bug, a manually
changed row or a restored table: docs/internals/protocols/balance.md, "Two owners". It reports a lane only where the
rules of the lease were certainly broken, and stops only an earlier owner, so that a rightful owner is never
disturbed.

Pure: the members' claims in, lanes and epochs out.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID

from headgate.engines.lanes.balance.decide_shares import LaneName

VERSION = b"\x01"
_CLAIM = struct.Struct("<IIIQ")


@dataclass(frozen=True, order=True)
class LaneClaim:
    """A lane that a member takes for its own."""

    lane: LaneName
    epoch: int
    since_us: int
    """When its take had been answered: earlier work may have been another owner's."""


@dataclass(frozen=True)
class LaneClaims:
    """All lanes that one member claims, at a time of its clock at which their leases held."""

    member: UUID
    at_us: int
    lanes: tuple[LaneClaim, ...]


@dataclass(frozen=True, order=True)
class DualOwnership:
    """Two members have acted on a lane at the same time: their epochs, which may be the same one."""

    lane: LaneName
    earlier: int
    later: int


def find_dual_owners(claims_of_members: Iterable[LaneClaims], skew_us: int) -> list[DualOwnership]:
    """The lanes that two members owned at the same time, within the clock skew.

    A rightful owner claims nothing after its trust ends; the next one is answered after that. So by one clock, its
    latest claim is at most a skew after the other's start.
    """
    by_lane: dict[LaneName, list[tuple[LaneClaim, int]]] = {}
    for claims in claims_of_members:
        for claim in claims.lanes:
            by_lane.setdefault(claim.lane, []).append((claim, claims.at_us))
    return sorted({overlap for each in by_lane.values() for overlap in _overlaps(each, skew_us)})


def _overlaps(claims: Collection[tuple[LaneClaim, int]], skew_us: int) -> Iterator[DualOwnership]:
    for (earlier, since_us), (later, later_since_us) in combinations(sorted(claims), 2):
        both = since_us > later.since_us + skew_us and later_since_us > earlier.since_us + skew_us
        if both:
            yield DualOwnership(later.lane, earlier.epoch, later.epoch)


def decide_epoch_to_stop(dual: DualOwnership, row_epoch: int) -> int | None:
    """Which epoch is to be stopped, when the lane's row shows this one: the earlier, unless that is the owner by
    right and the later one is in error. Two owners of one epoch are both in error."""
    shared = dual.earlier == dual.later == row_epoch
    return dual.earlier if dual.earlier < row_epoch or shared else None


def encode_claims(lanes: Iterable[LaneClaim]) -> bytes:
    """As `members.held` keeps them (docs/internals/formats.md)."""
    return VERSION + b"".join(_CLAIM.pack(*each.lane, each.epoch, each.since_us) for each in sorted(lanes))


def decode_claims(stored: bytes | None) -> tuple[LaneClaim, ...]:
    """The output of `encode_claims`; of another version nothing is known."""
    if stored is None or stored[:1] != VERSION:
        return ()
    whole = len(stored) - 1 - (len(stored) - 1) % _CLAIM.size
    pairs = _CLAIM.iter_unpack(stored[1 : 1 + whole])
    return tuple(LaneClaim((generation, shard), epoch, since_us) for generation, shard, epoch, since_us in pairs)

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

from headgate.engines.lanes.lane_name import LaneName, decode_lane, encode_lane

VERSION = b"\x02"
_VERSION_1 = b"\x01"
_CLAIM_1 = struct.Struct("<IIIQ")
"""Generation, shard, epoch, since."""
_HEAD = struct.Struct("<QB")
"""Until, length of the address."""
_CLAIM = struct.Struct("<IQ")
"""Epoch, since; after the length of the lane's name, and the name."""


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
    address: str = ""
    """Where the member answers calls about its lanes: "host:port"; empty where it does not."""
    until_us: int = 0
    """All these leases last at least until then, unless a lane is given back; 0 where that is not known."""


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


@dataclass(frozen=True)
class HeldLanes:
    """The content of `members.held`."""

    lanes: tuple[LaneClaim, ...] = ()
    address: str = ""
    until_us: int = 0


def encode_held(held: HeldLanes) -> bytes:
    """As `members.held` keeps it (docs/internals/formats.md)."""
    address = held.address.encode()
    encoded = VERSION + _HEAD.pack(held.until_us, len(address)) + address
    for claim in sorted(held.lanes):
        lane = encode_lane(claim.lane)
        encoded += bytes([len(lane)]) + lane + _CLAIM.pack(claim.epoch, claim.since_us)
    return encoded


def decode_held(stored: bytes | None) -> HeldLanes:
    """The output of `encode_held`, of this version and the one before; of any other nothing is known."""
    if stored is not None and stored[:1] == _VERSION_1:
        whole = len(stored) - 1 - (len(stored) - 1) % _CLAIM_1.size
        claims = _CLAIM_1.iter_unpack(stored[1 : 1 + whole])
        return HeldLanes(tuple(LaneClaim((generation, shard), *claim) for generation, shard, *claim in claims))
    if stored is None or stored[:1] != VERSION:
        return HeldLanes()
    try:
        return _decode(stored)
    except (ValueError, struct.error):
        return HeldLanes()


def _decode(stored: bytes) -> HeldLanes:
    until_us, address_size = _HEAD.unpack_from(stored, 1)
    at = 1 + _HEAD.size
    address = stored[at : at + address_size].decode()
    at += address_size
    claims: list[LaneClaim] = []
    while at < len(stored) and (end := at + 1 + stored[at]) + _CLAIM.size <= len(stored):
        lane = decode_lane(stored[at + 1 : end])
        epoch, since_us = _CLAIM.unpack_from(stored, end)
        claims.append(LaneClaim(lane, epoch, since_us))
        at = end + _CLAIM.size
    return HeldLanes(tuple(claims), address, until_us)

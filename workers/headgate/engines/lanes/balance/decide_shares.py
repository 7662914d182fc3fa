"""How lanes are distributed among the members that want them, and when a lane is released.
docs/internals/protocols/balance.md.

Pure: lists of members and lanes in, names of lanes out. Every member computes the same distribution from the same
lists. It knows neither leases nor tables: a wrong distribution costs time for a while, never a message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from headgate.engines.lanes.lane_name import LaneName

SECOND_US = 1_000_000
GIVE_BACK_AFTER_US = 10 * SECOND_US
"""How long a lane must belong to another member's share before it is released."""
UNPROCESSED_US = 15 * SECOND_US
"""A lane without an owner, with work due for this long, is taken by any member with capacity."""
EXTRA_KEPT_US = 300 * SECOND_US
"""A lane taken so is kept for this long, before it is offered again to the member whose share it is."""
STILL_US = 30 * SECOND_US
"""An owner whose loop made no turn for this long, and that has due work, is stopped."""

WATCHERS = 3
"""The number of members that check each lane from time to time: its owner may be one, and another may hang."""


@dataclass(frozen=True, order=True)
class Member:
    """A member that wants lanes, and its maximum number."""

    id: UUID
    capacity: int = field(compare=False, default=1_000)


def decide_shares(lanes: Collection[LaneName], members: Collection[Member]) -> dict[LaneName, UUID]:
    """Assigns each lane a member, as evenly as the maxima allow; a lane that no member has capacity for is in
    nobody's share."""
    shares = _sizes(len(lanes), members)
    shared: dict[LaneName, UUID] = {}
    for lane in sorted(lanes, key=lambda each: (_weight(b"lane", each), each)):
        takers = [member for member, left in shares.items() if left > 0]
        if not takers:
            break
        taker = max(takers, key=lambda member: (_weight(member.id.bytes, lane), member.id))
        shares[taker] -= 1
        shared[lane] = taker.id
    return shared


def watchers(lane: LaneName, members: Collection[Member]) -> set[UUID]:
    """The members that watch another member's lane: a few, so that not every member reads all lanes."""
    ranked = sorted(members, key=lambda member: (_weight(b"watch" + member.id.bytes, lane), member.id))
    return {member.id for member in ranked[:WATCHERS]}


def _sizes(lanes: int, members: Collection[Member]) -> dict[Member, int]:
    """The number of lanes of each: equal but for one, unless a maximum is reached."""
    left = lanes
    sizes = dict.fromkeys(sorted(members), 0)
    takers = [member for member in sizes if member.capacity > 0]
    while left > 0 and takers:
        each, more = divmod(left, len(takers))
        for number, member in enumerate(takers):
            taken = min(member.capacity - sizes[member], each + (number < more))
            sizes[member] += taken
            left -= taken
        takers = [member for member in takers if member.capacity > sizes[member]]
    return sizes


def _weight(member: bytes, lane: LaneName) -> bytes:
    """Fixed: members of different releases have to agree."""
    numbers = (number.to_bytes(max(4, (number.bit_length() + 7) // 8), "big") for number in lane)
    return blake2b(member + b"".join(numbers), digest_size=8).digest()


@dataclass
class GivingBack:
    """Since when an owned lane has been in another member's share."""

    since_us: dict[LaneName, int] = field(default_factory=dict)
    extra_until_us: dict[LaneName, int] = field(default_factory=dict)
    """Lanes that were taken because their member did not take them: kept for a while, or they would come and go."""

    def took_extra(self, lane: LaneName, *, now_us: int) -> None:
        """This one is another member's, which did not take it."""
        self.extra_until_us[lane] = now_us + EXTRA_KEPT_US

    def decide(
        self, held: Collection[LaneName], shared: Mapping[LaneName, UUID], me: UUID, *, now_us: int
    ) -> Sequence[LaneName]:
        """The lanes to release now: those that have been another member's for long enough, without a break."""
        self.extra_until_us = {lane: until for lane, until in self.extra_until_us.items() if until > now_us}
        others = {lane for lane in held if shared.get(lane, me) != me and lane not in self.extra_until_us}
        self.since_us = {lane: self.since_us.get(lane, now_us) for lane in others}
        return sorted(lane for lane, since_us in self.since_us.items() if now_us - since_us >= GIVE_BACK_AFTER_US)


@dataclass(frozen=True)
class LaneObservation:
    """A lane of another member, at the time of a read. `due_us`: the oldest work above its position."""

    lane: LaneName
    at_us: int
    locked: bool
    epoch: int
    progress: int
    touched_us: int
    due_us: int | None


@dataclass
class Watch:
    """The observations of others' lanes, and the conclusions."""

    touch_us: int
    free_since_us: dict[LaneName, int] = field(default_factory=dict)
    still_since: dict[LaneName, tuple[int, int, int]] = field(default_factory=dict)
    """Epoch, progress, and since when both have been unchanged."""

    def is_unprocessed(self, observation: LaneObservation) -> bool:
        """Nobody owns it, and work has been due for long."""
        if observation.locked:
            self.free_since_us.pop(observation.lane, None)
            return False
        since_us = self.free_since_us.setdefault(observation.lane, observation.at_us)
        waits = observation.due_us is not None and observation.at_us - observation.due_us >= UNPROCESSED_US
        return waits and observation.at_us - since_us >= UNPROCESSED_US

    def is_suspicious(self, observation: LaneObservation) -> bool:
        """Held and touched, no turn of its owner's loop for long (also an idle loop turns), and work due."""
        fresh = observation.at_us - observation.touched_us < 3 * self.touch_us + SECOND_US
        if not observation.locked or not fresh:
            self.still_since.pop(observation.lane, None)
            return False
        epoch, progress, since_us = self.still_since.get(observation.lane, (observation.epoch, -1, observation.at_us))
        if (epoch, progress) != (observation.epoch, observation.progress):
            self.still_since[observation.lane] = (observation.epoch, observation.progress, observation.at_us)
            return False
        return (
            observation.at_us - since_us >= STILL_US
            and observation.due_us is not None
            and observation.due_us <= observation.at_us
        )

"""The lease of a lane: which process may work it, until when, and the meaning of the answer to a renewal. The rules,
the argument and the possible failures are in docs/internals/protocols/lease.md; keep the two in step.

Pure: rows of the table `lanes` in, decisions out. `lanes/ownership/lease.py` reads, writes and sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any
from uuid import UUID

from headgate.errors import InvalidRequest
from headgate.expiry import Promise

SECOND_US = 1_000_000
RETIRED = -1
"""The epoch of a lane that is left for good: takes name an epoch, and never this one (attack D6)."""


@dataclass(frozen=True)
class LeaseTerms:
    """How long a lease lasts and how often it is renewed; the same for all owners of a queue's lanes."""

    ttl_s: int
    touch_us: int
    skew_us: int

    def __post_init__(self) -> None:
        if self.ttl_s * SECOND_US < SECOND_US + 2 * self.skew_us + 2 * self.touch_us:
            raise InvalidRequest(
                "The setting lease.ttl must exceed 1 s, twice the clock skew, and twice lease.touch",
                remedy="raise lease.ttl or lower lease.touch",
                ttl_s=self.ttl_s,
                touch_us=self.touch_us,
                skew_us=self.skew_us,
            )

    @property
    def quiet_touch_us(self) -> int:
        """How often the lease of an empty lane is renewed. A renewal that fails leaves time for two more."""
        return max(self.touch_us, self.promise(0).silent_after_us * 3 // 8)

    def promise(self, sent_us: int) -> Promise:
        """The rights that a take or renewal sent at this time gives its owner."""
        return Promise.of_ttl(sent_us, self.ttl_s, self.skew_us)


@dataclass(frozen=True)
class LaneState:
    """A lane as a serial read or a rejected LWT shows it. The engine defines the contents of `last` and
    `read_to`."""

    lock: UUID | None
    epoch: int
    stop: int
    reserved: bytes | None
    last: Any = None
    read_to: Any = None
    """How far its owner had read at its last renewal. For figures: nothing that matters for safety rests on it."""
    progress: int = 0
    touched_us: int = 0
    purged_before_us: int = 0
    reservation_answer: bytes | None = None
    reserved_up_to: Any = None
    """The end of all ranges ever reserved: up to this order jobs may have settled messages."""

    @property
    def is_retired(self) -> bool:
        """Whether its generation was left: it holds nothing, and nobody takes it again."""
        return self.epoch == RETIRED


@dataclass(frozen=True)
class LeaseTerm:
    """One lease term of a lane: from the time when its take was applied to its end."""

    lock: UUID
    epoch: int
    promise: Promise
    reserved: bytes | None
    purged_before_us: int
    since_us: int
    """When the take had been answered: no earlier owner acts any more."""

    def may_act(self, now_us: int) -> bool:
        """Whether the lease still holds; checked before each delivery, and again when each settle is acknowledged."""
        return self.promise.still_holds(now_us)

    def renewed(self, promise: Promise) -> LeaseTerm:
        """After an applied touch. Trust never shrinks: answers may come in another order than they were sent."""
        return self if promise.end_us <= self.promise.end_us else replace(self, promise=promise)


class RenewalResult(Enum):
    """The meaning of the answer to a renewal."""

    RENEWED = "renewed"
    UNKNOWN = "unknown"
    TOO_LATE = "too late"
    RESERVED = "lent"
    PURGED = "purged"
    STOPPED = "stopped"
    LOST = "lost"


def may_take(state: LaneState) -> bool:
    """Whether a lane is free; the condition of the take is the same."""
    return state.lock is None and state.epoch > RETIRED


def decide_touch(
    lease_term: LeaseTerm, *, applied: bool, known: bool, state: LaneState | None, now_us: int
) -> RenewalResult:
    """The decision on the answer to a renewal, at the time it came."""
    if not lease_term.may_act(now_us):
        return RenewalResult.TOO_LATE
    if applied:
        return RenewalResult.RENEWED
    if state is None or (not known and state.lock == lease_term.lock):
        return RenewalResult.UNKNOWN
    if state.lock != lease_term.lock:
        return RenewalResult.LOST
    if state.stop >= lease_term.epoch:
        return RenewalResult.STOPPED
    if state.purged_before_us != lease_term.purged_before_us:
        return RenewalResult.PURGED
    return RenewalResult.RESERVED if state.reserved != lease_term.reserved else RenewalResult.UNKNOWN


def ends_lease_term(touched: RenewalResult) -> bool:
    """Whether the owner drops everything now. An answer that is not known leaves trust as it was."""
    return touched in (RenewalResult.TOO_LATE, RenewalResult.STOPPED, RenewalResult.LOST)

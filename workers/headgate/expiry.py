"""The one idea: a writer announces a time after which it stays silent, and all others wait until safely after that
time. The argument is in docs/internals/protocols/expiry.md.

This module knows no clock and no protocol. Times are microseconds since 1970 by the caller's clock (rule R1 bounds
how clocks differ). Leases, claims, extents, mutators and catalogue knowledge are all promises.

Invariants: a promise counts from the time its request was sent, so its end is known before any answer (rule R2). At
the end itself the writer is silent, and nobody else may act before the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headgate.errors import Bug

SECOND_US = 1_000_000
TTL_ROUNDING_US = SECOND_US
"""Cassandra truncates the expiry time of a cell to whole seconds."""


class PromiseBroken(Bug):
    """A promise was made or judged in an impossible way."""


@dataclass(frozen=True)
class Promise:
    """I act until `silent_after_us` and not longer. Made before the request is sent; judged by the promiser's clock.

    `margin_us` is the time that the promiser gives up at the end, for protocols whose readers cannot wait for the
    clock difference.
    """

    sent_us: int
    lasts_us: int
    margin_us: int = 0

    def __post_init__(self) -> None:
        if self.lasts_us < 0 or self.margin_us < 0:
            raise PromiseBroken(
                "A promise cannot have a negative duration", lasts_us=self.lasts_us, margin_us=self.margin_us
            )

    @classmethod
    def until(cls, end_us: int, *, sent_us: int, margin_us: int = 0) -> Promise:
        """A promise with a given end: a due time, the close of a minute. A promise whose end has passed has no
        duration."""
        return cls(sent_us, max(0, end_us - sent_us), margin_us)

    @classmethod
    def of_ttl(cls, sent_us: int, ttl_s: int, skew_us: int) -> Promise:
        """A promise kept by Cassandra's own expiry: coordinators cut it to seconds, by clocks of their own."""
        return cls(sent_us, ttl_s * SECOND_US, TTL_ROUNDING_US + 2 * skew_us)

    @property
    def end_us(self) -> int:
        """The end that the readers know."""
        return self.sent_us + self.lasts_us

    @cached_property
    def silent_after_us(self) -> int:
        """From this time on, by its own clock, the promiser is silent."""
        return self.end_us - self.margin_us

    def still_holds(self, now_us: int) -> bool:
        """Whether the promiser may act: before it sends, and again when the answer has come."""
        if now_us < self.sent_us:
            raise PromiseBroken("The clock went backwards since the request", sent_us=self.sent_us, now_us=now_us)
        return now_us < self.silent_after_us

    def left_us(self, now_us: int) -> int:
        """How long the promiser may still act; nothing once it is silent."""
        return max(0, self.silent_after_us - now_us)

    def others_may_act_after(self, skew_us: int) -> int:
        """From this time on, by their own clocks, others may rely on the promiser's silence."""
        return others_may_act_after(self.end_us, skew_us)


def others_may_act_after(end_us: int, skew_us: int) -> int:
    """The same for readers that know only the announced end."""
    if skew_us < 0:
        raise PromiseBroken("The clock difference cannot be negative", skew_us=skew_us)
    return end_us + skew_us


def others_may_act(end_us: int, *, now_us: int, skew_us: int) -> bool:
    """Whether that time has come for a process whose clock shows `now_us`."""
    return now_us >= others_may_act_after(end_us, skew_us)


def is_separated(*, margin_us: int, wait_us: int, skew_us: int) -> bool:
    """Whether a protocol keeps writer and readers apart: the writer's margin and the readers' wait together cover the
    clock difference."""
    return margin_us + wait_us >= skew_us

"""The one idea: a writer promises to be silent after a moment it has announced; everybody else waits until safely
after that moment. The argument is in docs/protocols/expiry.md.

It knows no clock: moments are microseconds since 1970 by the clock of whoever asks (rule R1 bounds how these differ),
and no protocol: leases, claims, extents, mutators and knowledge of the catalogue are all promises.

Invariants: a promise counts from the moment its request was sent, so its end is known before any answer (rule R2); at
the end itself the writer is silent, and nobody else may act before the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import Bug

SECOND_US = 1_000_000
TTL_ROUNDING_US = SECOND_US
"""Cassandra cuts the moment at which a cell expires to whole seconds."""


class PromiseBroken(Bug):
    """A promise was made, or judged, in a way that can not be."""


@dataclass(frozen=True)
class Promise:
    """I act until `silent_after_us` and not longer. Made before the request is sent; judged by the promiser's clock.

    `margin_us` is what the promiser gives up at the end, where the others can not wait for the clocks' difference.
    """

    sent_us: int
    lasts_us: int
    margin_us: int = 0

    def __post_init__(self) -> None:
        if self.lasts_us < 0 or self.margin_us < 0:
            raise PromiseBroken(
                "a promise cannot have a negative duration", lasts_us=self.lasts_us, margin_us=self.margin_us
            )

    @classmethod
    def until(cls, end_us: int, *, sent_us: int, margin_us: int = 0) -> Promise:
        """A promise whose end is given: a due time, the close of a minute. One that is past lasts no time at all."""
        return cls(sent_us, max(0, end_us - sent_us), margin_us)

    @classmethod
    def of_ttl(cls, sent_us: int, ttl_s: int, skew_us: int) -> Promise:
        """A promise kept by Cassandra's own expiry: coordinators cut it to seconds, by clocks of their own."""
        return cls(sent_us, ttl_s * SECOND_US, TTL_ROUNDING_US + 2 * skew_us)

    @property
    def end_us(self) -> int:
        """The end that the others know."""
        return self.sent_us + self.lasts_us

    @property
    def silent_after_us(self) -> int:
        """From this moment on, by its own clock, the promiser is silent."""
        return self.end_us - self.margin_us

    def still_holds(self, now_us: int) -> bool:
        """Whether the promiser may act: before it sends, and again when the answer has come."""
        if now_us < self.sent_us:
            raise PromiseBroken("the clock went backwards since the request", sent_us=self.sent_us, now_us=now_us)
        return now_us < self.silent_after_us

    def left_us(self, now_us: int) -> int:
        """How long the promiser may still act; nothing once it is silent."""
        return max(0, self.silent_after_us - now_us)

    def others_may_act_after(self, skew_us: int) -> int:
        """From this moment on, by their own clocks, others may take the promiser's silence for granted."""
        return others_may_act_after(self.end_us, skew_us)


def others_may_act_after(end_us: int, skew_us: int) -> int:
    """The same for those who know nothing but the announced end."""
    if skew_us < 0:
        raise PromiseBroken("the clock difference cannot be negative", skew_us=skew_us)
    return end_us + skew_us


def others_may_act(end_us: int, *, now_us: int, skew_us: int) -> bool:
    """Whether that moment has come for one whose clock shows `now_us`."""
    return now_us >= others_may_act_after(end_us, skew_us)


def is_separated(*, margin_us: int, wait_us: int, skew_us: int) -> bool:
    """Whether a protocol keeps writer and others apart: what one gives up and the others wait covers the clocks."""
    return margin_us + wait_us >= skew_us

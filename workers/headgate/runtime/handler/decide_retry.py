"""The verdict on a message whose handler failed: retry after which delay, or never. Pure.

A handler decides by the exception it raises. `Retry(after=...)` and `Reject(...)` are obeyed. Any other exception
follows the policy of its handler: a table by type, the most specific first, and otherwise exponential backoff. Delays
are drawn between zero and the bound (full jitter), so that messages that failed together do not come again together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headgate.errors import InvalidRequest
from headgate.expiry import SECOND_US

DELAY_S_MAX = 86_400.0
REASON_BYTES_MAX = 4_096
"""Maximum length of a reason in the dead letter's attributes."""


class Retry(Exception):
    """Raised by a handler: retry after this time, counted as an attempt. Without `after`, the policy decides."""

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason)
        self.after_s = None if after is None else _seconds(after, "after")


class Reject(Exception):
    """Raised by a handler: this message can never succeed. It moves to the dead-letter queue at once, with this
    reason."""


@dataclass(frozen=True)
class Backoff:
    """Waiting longer each time, with a cap; seconds."""

    first_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 300.0

    def __post_init__(self) -> None:
        fit = all(math.isfinite(each) for each in (self.first_s, self.factor, self.cap_s))
        if not (fit and 0 <= self.first_s <= self.cap_s <= DELAY_S_MAX and self.factor >= 1):
            remedy = f"0 <= first_s <= cap_s <= {DELAY_S_MAX:.0f}, and a factor of at least 1"
            raise InvalidRequest("Invalid backoff", remedy=remedy, first_s=self.first_s, cap_s=self.cap_s)

    def bound_s(self, attempt: int) -> float:
        """The longest that the delay after this attempt can be."""
        exponent = min(attempt - 1, 64)
        return float(min(self.cap_s, self.first_s * self.factor**exponent))


@dataclass(frozen=True)
class Rejected:
    """In a table of exceptions: a message whose handler raises this moves to the dead-letter queue at once."""


REJECT = Rejected()


@dataclass(frozen=True)
class RetryPolicy:
    """The meaning of a handler's exceptions."""

    backoff: Backoff = field(default_factory=Backoff)
    by_type: Mapping[type[BaseException], Backoff | Rejected] = field(default_factory=dict)

    def of(self, kind: type[BaseException]) -> Backoff | Rejected:
        """The entry of the most specific type; the general backoff where there is none."""
        for each in kind.__mro__:
            if each in self.by_type:
                return self.by_type[each]
        return self.backoff


@dataclass(frozen=True, slots=True)
class Done:
    """The handler did its work."""


@dataclass(frozen=True, slots=True)
class Again:
    """To be delivered again; not `charged`: it was not tried."""

    delay_us: int
    reason: str
    charged: bool = True


@dataclass(frozen=True, slots=True)
class Never:
    """To the dead-letter queue at once; without one, retry after the delay."""

    reason: str
    delay_us: int


Verdict = Done | Again | Never
DONE = Done()


def decide_retry(policy: RetryPolicy, error: BaseException, *, attempt: int, jitter: float, reason: str) -> Verdict:
    """The verdict on a handler's failure. `jitter` is from 0 to 1, the text goes into the dead letter."""
    if isinstance(error, Reject):
        return Never(reason, delay_after(policy.backoff, attempt, jitter))
    if isinstance(error, Retry) and error.after_s is not None:
        return Again(round(error.after_s * SECOND_US), reason)
    entry = policy.of(type(error))
    if isinstance(entry, Rejected):
        return Never(reason, delay_after(policy.backoff, attempt, jitter))
    return Again(delay_after(entry, attempt, jitter), reason)


def delay_after(backoff: Backoff, attempt: int, jitter: float) -> int:
    """Microseconds until the next attempt: anywhere between nothing and the bound."""
    return round(backoff.bound_s(attempt) * jitter * SECOND_US)


CUT_MARK = "[...]\n"
"""Marks text that was left out for length."""


def bounded_reason(first: str, rest: str = "", *, bytes_max: int = REASON_BYTES_MAX) -> str:
    """The error first, then as much of the end of the rest as fits: the end of a traceback is the most useful
    part."""
    head = _cut(first, bytes_max)
    space = bytes_max - len(head.encode(errors="replace")) - 1
    tail = rest.encode(errors="replace")
    if tail and len(tail) <= space:
        return f"{head}\n{rest}"
    kept = space - len(CUT_MARK)
    return f"{head}\n{CUT_MARK}{tail[-kept:].decode(errors='ignore')}" if tail and kept > 0 else head


def _cut(text: str, bytes_max: int) -> str:
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= bytes_max else encoded[: bytes_max - 3].decode(errors="ignore") + "..."


def _seconds(span: timedelta | float, what: str) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds <= 366 * DELAY_S_MAX:
        raise InvalidRequest(f"{what} must be a duration from 0 to 1 year", given=span)
    return seconds

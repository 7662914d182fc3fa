"""Durations and times of the application, converted to the microseconds of the engines. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from headgate.errors import InvalidRequest
from headgate.expiry import SECOND_US

SPAN_S_MAX = 100 * 366 * 86_400

Span = timedelta | float
"""A length of time: a timedelta, or seconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def span_us(span: Span, what: str) -> int:
    if isinstance(span, bool) or not isinstance(span, timedelta | int | float):
        raise InvalidRequest(f"{what} must be a timedelta or a number of seconds", given=repr(span))
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not (math.isfinite(seconds) and 0 <= seconds <= SPAN_S_MAX):
        raise InvalidRequest(f"{what} must be a duration from 0 to 100 years", given=span)
    if isinstance(span, timedelta):
        return span // timedelta(microseconds=1)
    return round(seconds * SECOND_US)


def time_us_from(time: datetime, what: str) -> int:
    if not isinstance(time, datetime):
        raise InvalidRequest(f"{what} must be a datetime with a time zone", given=repr(time))
    if time.tzinfo is None or time.utcoffset() is None:
        raise InvalidRequest(
            f"{what} has no time zone", given=time.isoformat(), remedy="add one: datetime.now(UTC), or .astimezone()"
        )
    return (time - _EPOCH) // timedelta(microseconds=1)


def datetime_of(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def age(us: int | None) -> str:
    """A length of time, to two places: `850ms`, `12s`, `3m20s`, `5h10m`, `4d2h`."""
    if us is None:
        return "-"
    if us < 0:
        return f"-{age(-us)}"
    seconds, rest = divmod(us, SECOND_US)
    if seconds == 0:
        return f"{rest // 1000}ms"
    for unit, length, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= length:
            more = seconds % length // part
            return f"{seconds // length}{unit}" + (f"{more}{smaller}" if more else "")
    return f"{seconds}s"


def format_time(us: int | None) -> str:
    if us is None:
        return "-"
    return datetime.fromtimestamp(us / SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{us // 1000 % 1000:03d}Z"

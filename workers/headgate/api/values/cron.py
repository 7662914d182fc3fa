"""Schedules as a Kubernetes CronJob reads them, in UTC: which texts it accepts, and when each is due. Pure.

Five fields (minute, hour, day of month, month, day of week), each `*`, a number, a name where there are names, a
range, a step, or a list of these; or `@hourly` and its like. A pattern holds every number to its field's range. A
second one finds ranges that run backwards (`30-10`, `fri-mon`), since CEL that takes texts apart is refused as too
costly.

A minute is due if it fits all five fields. Where both day fields (of the month and of the week) are restricted, one
of the two is enough. A day field is unrestricted if any entry of its list is `*` or `?` without a step above 1, so
`*/2` restricts and `*/1` does not. This agrees with robfig/cron v3, the library of Kubernetes' CronJob controller
(tests/golden/cron).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from headgate.api.values.shapes import text

MINUTE: Final = timedelta(minutes=1)
YEARS: Final = timedelta(days=8 * 366)
"""The longest that a schedule may have to wait: the 29th of February, over a century."""

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY_MINUTES: Final = 24 * 60
_RANGES: Final = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 6, _DAYS))
"""The first and the last number of each field, and its names from the first on."""
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _field(number: str, names: tuple[str, ...] = ()) -> str:
    one = f"({'|'.join((number, *names))})"
    entry = rf"([*?]|{one}(-{one})?)(/[1-9][0-9]?)?"
    return f"{entry}(,{entry})*"


def _pattern() -> str:
    fields = (
        _field("[0-5]?[0-9]"),
        _field("[01]?[0-9]|2[0-3]"),
        _field("0?[1-9]|[12][0-9]|3[01]"),
        _field("0?[1-9]|1[0-2]", _MONTHS),
        _field("[0-6]", _DAYS),
    )
    return f"^(@({'|'.join(name[1:] for name in _NAMED)})|(?i:{' +'.join(fields)}))$"


def _backward() -> str:
    """Matches a range that ends before it begins, or that mixes a number and a name, whose order nobody sees."""
    numbers = [f"0?{first}-0?[0-{first - 1}]" for first in range(1, 10)]
    numbers += ["[1-9][0-9]-0?[0-9]", *(f"{tens}[0-9]-[1-{tens - 1}][0-9]" for tens in range(2, 6))]
    numbers += [f"{tens}{first}-{tens}[0-{first - 1}]" for tens in range(1, 6) for first in range(1, 10)]
    names = [
        f"{last}-({'|'.join(order[:index])})"
        for order in (_MONTHS, _DAYS)
        for index, last in enumerate(order)
        if index
    ]
    return f"(?i:(^|[ ,])({'|'.join(numbers + names)}|[0-9]+-[a-z]+|[a-z]+-[0-9]+)($|[ ,/]))"


CRON: Final = text(
    _pattern(),
    'must be a cron schedule of five fields, such as "*/5 * * * *" or "0 2 * * mon-fri", or @hourly, @daily',
    length_max=100,
    never=_backward(),
)
"""A schedule that a CronJob accepts."""


def is_due(schedule: str, minute: datetime) -> bool:
    """Whether it is due in this minute."""
    (minutes, hours, _, _, _), _, _ = _read(schedule)
    return minute.minute in minutes and minute.hour in hours and _is_day_due(schedule, minute)


def shortest_gap_minutes(schedule: str) -> int:
    """The shortest time between two due times, as far as that is less than a day.

    Days are not considered: a schedule that leaves some out may have a longer one.
    """
    (minutes, hours, *_), _, _ = _read(schedule)
    minutes_of_day = sorted(hour * 60 + minute for hour in hours for minute in minutes)
    following = [*minutes_of_day[1:], minutes_of_day[0] + _DAY_MINUTES]
    return min(later - earlier for earlier, later in zip(minutes_of_day, following, strict=True))


def due_after(schedule: str, instant: datetime, *, within: timedelta = YEARS) -> datetime | None:
    """The first due minute after the given time; None if there is none within that time."""
    return _search(schedule, instant, within, 1)


def due_before(schedule: str, instant: datetime, *, within: timedelta = YEARS) -> datetime | None:
    """The last due minute up to the given time; None if there is none within that time."""
    return _search(schedule, instant, within, -1)


def _search(schedule: str, instant: datetime, within: timedelta, way: int) -> datetime | None:
    """Minute by minute, but for hours and days in which none can be due."""
    fields, _, _ = _read(schedule)
    minute = instant.replace(second=0, microsecond=0) + (MINUTE if way > 0 else timedelta())
    end = instant + way * within
    while minute <= end if way > 0 else minute >= end:
        if not _is_day_due(schedule, minute):
            minute = _next(minute, way, day=True)
        elif minute.hour not in fields[1]:
            minute = _next(minute, way, day=False)
        elif minute.minute not in fields[0]:
            minute += way * MINUTE
        else:
            return minute
    return None


def _next(minute: datetime, way: int, *, day: bool) -> datetime:
    """The first minute of the next hour (or day), the last one of the one before."""
    begin = minute.replace(minute=0, hour=0) if day else minute.replace(minute=0)
    length = timedelta(days=1) if day else timedelta(hours=1)
    return begin + length if way > 0 else begin - MINUTE


def _is_day_due(schedule: str, minute: datetime) -> bool:
    (_, _, days, months, weekdays), is_day_restricted, is_weekday_restricted = _read(schedule)
    if minute.month not in months:
        return False
    by_day, by_weekday = minute.day in days, minute.isoweekday() % 7 in weekdays
    return by_day or by_weekday if is_day_restricted and is_weekday_restricted else by_day and by_weekday


@lru_cache(256)
def _read(schedule: str) -> tuple[tuple[frozenset[int], ...], bool, bool]:
    texts = _NAMED.get(schedule, schedule).lower().split()
    fields = tuple(_values(text, *bounds) for text, bounds in zip(texts, _RANGES, strict=True))
    return fields, _is_restricted(texts[2]), _is_restricted(texts[4])


def _is_restricted(text: str) -> bool:
    """Whether no entry of a day field is a star with a step of 1."""
    spans = (entry.partition("/") for entry in text.split(","))
    return not any(span in ("*", "?") and int(step or 1) == 1 for span, _, step in spans)


def _values(text: str, first: int, last: int, names: tuple[str, ...]) -> frozenset[int]:
    values: set[int] = set()
    for entry in text.split(","):
        span, _, step = entry.partition("/")
        begin, _, end = span.partition("-")
        if begin in ("*", "?"):
            low, high = first, last
        else:
            low = _number(begin, first, names)
            high = _number(end, first, names) if end else last if step else low
        values.update(range(low, high + 1, int(step or 1)))
    return frozenset(values)


def _number(text: str, first: int, names: tuple[str, ...]) -> int:
    return first + names.index(text) if text in names else int(text)

"""When a schedule is due: cron as Kubernetes reads it, in UTC. Pure.

A minute is due if it fits all five fields. Where both day fields (of the month and of the week) are restricted, one
of the two is enough. A day field is unrestricted if any entry of its list is `*` or `?` without a step above 1, so
`*/2` restricts and `*/1` does not. It takes what `cron.accepts` takes, and agrees with robfig/cron v3, the library of
Kubernetes' CronJob controller (tests/golden/cron).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

MINUTE = timedelta(minutes=1)
YEARS = timedelta(days=8 * 366)
"""The longest that a schedule may have to wait: the 29th of February, over a century."""

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAY_MINUTES = 24 * 60
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)


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
    fields = tuple(_field(text, *bounds) for text, bounds in zip(texts, _FIELDS, strict=True))
    return fields, _is_restricted(texts[2]), _is_restricted(texts[4])


def _is_restricted(text: str) -> bool:
    """Whether no entry of a day field is a star with a step of 1."""
    spans = (entry.partition("/") for entry in text.split(","))
    return not any(span in ("*", "?") and int(step or 1) == 1 for span, _, step in spans)


def _field(text: str, first: int, last: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for entry in text.split(","):
        span, _, step = entry.partition("/")
        begin, _, end = span.partition("-")
        if begin in ("*", "?"):
            low, high = first, last
        else:
            low = _number(begin, names)
            high = _number(end, names) if end else last if step else low
        values.update(range(low, high + 1, int(step or 1)))
    return frozenset(values)


def _number(text: str, names: dict[str, int]) -> int:
    return names[text] if text in names else int(text)

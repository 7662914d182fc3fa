"""When a schedule is due: cron as Kubernetes reads it, in UTC. Pure.

A minute is due if it fits all five fields; where both the day of the month and the day of the week are told, one of
the two is enough. It takes what `cron.accepts` takes.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
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
    fields, days_told, weekdays_told = _read(schedule)
    minutes, hours, days, months, weekdays = fields
    if minute.minute not in minutes or minute.hour not in hours or minute.month not in months:
        return False
    by_day, by_weekday = minute.day in days, minute.isoweekday() % 7 in weekdays
    return by_day or by_weekday if days_told and weekdays_told else by_day and by_weekday


@lru_cache(256)
def _read(schedule: str) -> tuple[tuple[frozenset[int], ...], bool, bool]:
    texts = _NAMED.get(schedule, schedule).lower().split()
    fields = tuple(_field(text, *bounds) for text, bounds in zip(texts, _FIELDS, strict=True))
    return fields, texts[2][0] not in "*?", texts[4][0] not in "*?"


def _field(text: str, first: int, last: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for entry in text.split(","):
        span, _, step = entry.partition("/")
        begin, _, end = span.partition("-")
        if begin in ("*", "?"):
            low, high = first, last
        else:
            low = _number(begin, names)
            high = _number(end, names) if end else last if step else low
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, names: dict[str, int]) -> int:
    return names[text] if text in names else int(text)

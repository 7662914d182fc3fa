"""The figures that an owner of lanes writes to the summary, the time of each write, and the owner that counts the
whole queue. docs/internals/protocols/summary.md, "Figures".

Pure: the states of lanes, and the time, are passed in. It knows neither tables nor books.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

SECOND_US = 1_000_000
RATE_OVER_US = 10 * SECOND_US
REFRESH_EVERY_US = 6 * SECOND_US
"""Unchanged figures: a row is kept for 15 s, so one write may be lost."""
KEPT_S = 15
COUNT_SHARE = 20
"""Counting takes at most this fraction of an owner's time."""
COUNT_EVERY_US_MIN = 5 * SECOND_US
NOT_COUNTED = -1


@dataclass(frozen=True)
class LaneStand:
    """The state of an owned lane."""

    number: int
    """Sorts as the lanes of a queue do, the same for every owner."""
    waiting: int
    in_flight: int
    oldest_us: int | None
    answered: int
    """Since it was taken."""
    is_held: bool
    is_unread: bool
    unreadable: int = 0
    """Rows that were set aside, since their stored bytes cannot be read."""


@dataclass(frozen=True)
class Figures:
    """The cells of an owner's row."""

    backlog: int = 0
    in_flight: int = 0
    oldest_us: int = 0
    rate: float = 0.0
    lanes: int = 0
    held: int = 0
    unread: int = 0
    lowest: int = 0
    total: int = NOT_COUNTED
    total_oldest_us: int = 0
    unreadable: int = 0


def decide_figures(stands: Collection[LaneStand], rate: float) -> Figures:
    """The sums over the owned lanes; the whole queue is not counted."""
    oldest = [stand.oldest_us for stand in stands if stand.oldest_us is not None]
    return Figures(
        backlog=sum(stand.waiting for stand in stands),
        in_flight=sum(stand.in_flight for stand in stands),
        oldest_us=min(oldest, default=0),
        rate=rate if stands else 0.0,
        lanes=len(stands),
        held=sum(stand.is_held for stand in stands),
        unread=sum(stand.is_unread for stand in stands),
        lowest=min((stand.number for stand in stands), default=0),
        unreadable=sum(stand.unreadable for stand in stands),
    )


class Rate:
    """Deliveries answered per second, over the last ten. Lanes come and go: each lease term reports its own part."""

    def __init__(self) -> None:
        self._counted: Mapping[Any, int] = {}
        self._total = 0
        self._past: deque[tuple[int, int]] = deque()

    def at(self, now_us: int, answered: Mapping[Any, int]) -> float:
        """The rate now; `answered` counts for each lease term from 0."""
        self._total += sum(count - self._counted.get(lease_term, 0) for lease_term, count in answered.items())
        self._counted = dict(answered)
        self._past.append((now_us, self._total))
        while len(self._past) > 2 and self._past[1][0] <= now_us - RATE_OVER_US:
            self._past.popleft()
        began_us, before = self._past[0]
        return round((self._total - before) * SECOND_US / max(now_us - began_us, SECOND_US), 1)


def is_owed(figures: Figures, written: Figures | None, *, written_us: int, now_us: int) -> bool:
    """Whether the row has to be written now."""
    if written is None:
        return figures.lanes > 0
    if figures != written:
        return True
    return figures.lanes > 0 and now_us - written_us >= REFRESH_EVERY_US


@dataclass(frozen=True)
class OwnersRow:
    """The table's row of one owner."""

    writer: Any
    at_us: int
    figures: Figures


def fresh(rows: Iterable[OwnersRow], now_us: int) -> list[OwnersRow]:
    """Those that still count: an owner that holds nothing is none."""
    return [row for row in rows if row.figures.lanes > 0 and now_us - row.at_us < KEPT_S * SECOND_US]


def has_to_count(own: Figures, others: Sequence[OwnersRow], *, lanes: int) -> bool:
    """Whether this owner counts the whole queue: books do not contain all of it, and it owns the lowest lane. `lanes`
    are all that are not left for good."""
    everybody = [own, *(row.figures for row in others)]
    is_known = not any(each.unread for each in everybody) and sum(each.lanes for each in everybody) >= lanes
    return own.lanes > 0 and not is_known and all(own.lowest <= row.figures.lowest for row in others)


def next_count_us(began_us: int, ended_us: int) -> int:
    """When to count again: one part in twenty of the time at most."""
    return ended_us + max(COUNT_EVERY_US_MIN, (COUNT_SHARE - 1) * (ended_us - began_us))


def with_total(figures: Figures, backlog: int, oldest_us: int | None) -> Figures:
    """The same, with the counts of the whole queue."""
    return replace(figures, total=backlog, total_oldest_us=oldest_us or 0)

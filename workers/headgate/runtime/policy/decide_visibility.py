"""Which messages in flight need an extension now, which expired, and which take too long. Pure.

A message is extended at half of its visibility while its handler runs, so one missed beat costs nothing. A message
that could not be extended by the end of its visibility, or whose extension was rejected, belongs to another process.
Its handler is notified or cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


class InFlightMessage(Protocol):
    until_s: float
    """When its visibility ends, by the worker's clock."""
    deadline_s: float
    """When its handler has to be done; infinity where there is no bound."""
    lost: bool
    overdue: bool


Hand = TypeVar("Hand", bound=InFlightMessage)


@dataclass
class Beats:
    """The actions of one beat, as indexes into the input."""

    extend: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    overdue: list[int] = field(default_factory=list)


def decide_beats(in_flight: Iterable[InFlightMessage], *, now_s: float, visibility_s: float) -> Beats:
    """The actions for the messages in flight. A lost or overdue message is reported once, and then ignored."""
    beats = Beats()
    for place, each in enumerate(in_flight):
        if each.lost or each.overdue:
            continue
        if each.deadline_s <= now_s:
            beats.overdue.append(place)
        elif each.until_s <= now_s:
            beats.lost.append(place)
        elif each.until_s - now_s <= visibility_s / 2:
            beats.extend.append(place)
    return beats


def beat_every_s(visibility_s: float) -> float:
    """The interval of the check: short enough to try an extension three times before the end."""
    return min(max(visibility_s / 8, 0.05), 1.0)

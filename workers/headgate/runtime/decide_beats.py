"""Which messages in hand are to be extended now, which ran out, and which take too long. Pure.

A message is extended at half of its visibility while its handler lives, so one missed beat costs nothing. What could
not be extended by the end of its visibility, or was refused, is somebody else's: its handler is told, or cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


class InHand(Protocol):
    """What has to be known of a message in hand."""

    until_s: float
    """When its visibility ends, by the worker's clock."""
    deadline_s: float
    """When its handler has to be done; infinity where there is no bound."""
    lost: bool
    overdue: bool


Hand = TypeVar("Hand", bound=InHand)


@dataclass
class Beats:
    """What is to be done at one beat, as places in what was given."""

    extend: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    overdue: list[int] = field(default_factory=list)


def decide_beats(in_hand: Iterable[InHand], *, now_s: float, visibility_s: float) -> Beats:
    """What to do with what is in hand. What was lost or is overdue was told once, and is left alone."""
    beats = Beats()
    for place, each in enumerate(in_hand):
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
    """How often to look: often enough that an extension can be tried three times before the end."""
    return min(max(visibility_s / 8, 0.05), 1.0)

"""The next lane among those that a process owns, and the share of each in one turn. Pure.

A lane that has much must not keep the others waiting: all of them have their turn within CYCLE_S, as fast as messages
are taken now. Where they are taken fast a turn is long, since a long run of one lane costs least; where they are
taken slowly each lane gives one message and the next has its turn.
"""

from __future__ import annotations

CYCLE_S = 0.25
WINDOW_S = 1.0


class Turns:
    """Of one process on one queue."""

    def __init__(self) -> None:
        self._next = 0
        self._window_s = 0.0
        self._in_window = 0
        self._before = 0

    def order(self, lanes: int) -> list[int]:
        """The indexes of this many lanes, in their order for this turn."""
        start = self._next % lanes
        return [*range(start, lanes), *range(start)]

    def share(self, limit: int, lanes: int) -> int:
        """The most that one of this many lanes delivers in a turn, when up to `limit` are wanted of all."""
        rate = max(self._before, self._in_window) / WINDOW_S
        return max(1, limit // lanes, int(rate * CYCLE_S / lanes))

    def gave(self, count: int, *, last: int, now_s: float) -> None:
        """This many were taken; the lane at `last` was the last that delivered some, so the turn passes to the one
        after it."""
        if count:
            self._next = last + 1
        passed = int((now_s - self._window_s) / WINDOW_S)
        if passed >= 1:
            self._before = self._in_window if passed == 1 else 0
            self._in_window = 0
            self._window_s += passed * WINDOW_S
        self._in_window += count

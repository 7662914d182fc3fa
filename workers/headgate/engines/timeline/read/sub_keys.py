"""Which rows of a part's subs come next, by their keys alone.

A part has several subs where a producer puts much. Rows of all subs are merged by due, and it is not known beforehand
which sub the next ones lie in: to read some of each would bring many times what is delivered. So the keys are read
first, which are small whatever the rows are, and then exactly the rows that come next.

Pure. Orders are those of positions. Invariant: of each sub all orders above `after` and up to `complete_to` are
known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice

KEYS_EACH = 256
"""The number of keys that one read of a sub asks for: as many rows as a few reads of a lane bring."""


@dataclass(frozen=True, slots=True)
class NextRows:
    """The rows that come next: of each sub their orders, and up to where they are all that there is."""

    by_sub: dict[int, list[int]]
    bound: int


@dataclass(slots=True)
class SubKeys:
    """The known keys of one part."""

    part: int
    after: int
    orders: dict[int, list[int]] = field(default_factory=dict)
    complete_to: dict[int, int] = field(default_factory=dict)

    def unknown(self, subs: Iterable[int], upper: int) -> list[int]:
        """The subs whose next row up to there is not known."""
        return [sub for sub in subs if not self.orders.get(sub) and self.complete_to.get(sub, self.after) < upper]

    def learn(self, sub: int, orders: Sequence[int], *, upper: int) -> None:
        """The first orders of a sub above `after`, at most `KEYS_EACH`, as a read up to `upper` brought them."""
        self.orders[sub] = list(orders)
        self.complete_to[sub] = orders[-1] if len(orders) >= KEYS_EACH else upper

    def choose(self, subs: Collection[int], upper: int, *, rows: int) -> NextRows:
        """The next rows of these subs, in the order of all."""
        horizon = min([upper, *(self.complete_to[sub] for sub in subs)])
        known = [[(order, sub) for order in self._up_to(sub, horizon)] for sub in subs]
        chosen = list(islice(merge(*known), rows))
        bound = horizon if len(chosen) == sum(map(len, known)) else chosen[-1][0]
        by_sub: dict[int, list[int]] = {}
        for order, sub in chosen:
            by_sub.setdefault(sub, []).append(order)
        return NextRows(by_sub, bound)

    def pass_to(self, reached: int) -> None:
        """Everything up to there is read."""
        self.after = reached
        for sub, orders in self.orders.items():
            del orders[: bisect_right(orders, reached)]
            self.complete_to[sub] = max(self.complete_to[sub], reached)

    def _up_to(self, sub: int, horizon: int) -> list[int]:
        orders = self.orders[sub]
        return orders[: bisect_right(orders, horizon)]

"""How many entries the collections of an object hold, by the path of attributes to each: what grows shows its name.

    before = entries_of(engine)
    ...                                        # the same load continues
    after = entries_of(engine)
    grown(before, after)                       # {"producer.sender.parts._changed": (12, 4031)}

It follows attributes of our own classes, and dicts, lists, sets and deques; all entries of one collection share a
path. Tasks, clocks, the store and the simulated world are not followed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

OWN = "headgate."
NOT_FOLLOWED = ("headgate.store.", "headgate.testing.", "headgate.telemetry.")
GROWTH = 1.15
SLACK = 20
"""Entries that may be under way at one time and not at another."""


def entries_of(root: object) -> Counter[str]:
    """The entries by path."""
    counts: Counter[str] = Counter()
    met: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        path, value = waiting.popleft()  # nearest first: each collection has its shortest path
        if id(value) in met:
            continue
        met.add(id(value))
        if isinstance(value, Mapping | Set | list | deque | tuple):
            if not isinstance(value, tuple):
                counts[path] += len(value)
            entries: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
            waiting += [(path, each) for each in entries if _is_followed(each)]
        else:
            waiting += [
                (f"{path}.{name}".lstrip("."), each) for name, each in _attributes(value) if _is_followed(each)
            ]
    return counts


def most_of(samples: Iterable[Counter[str]]) -> Counter[str]:
    """The most entries of each path in any sample."""
    most: Counter[str] = Counter()
    for sample in samples:
        most |= sample
    return most


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The paths that hold clearly more after than before, and how many."""
    return {
        path: (before.get(path, 0), count)
        for path, count in sorted(after.items())
        if count > before.get(path, 0) * GROWTH + SLACK
    }


def _is_followed(value: object) -> bool:
    if isinstance(value, Mapping | Set | list | deque | tuple):
        return True
    module = type(value).__module__
    return module.startswith(OWN) and not module.startswith(NOT_FOLLOWED)


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            stored = f"_{kind.__name__.lstrip('_')}{name}" if is_private else name
            if stored not in ("__dict__", "__weakref__") and hasattr(value, stored):
                yield stored, getattr(value, stored)

"""The events of a run, as lines that are the same byte for byte for the same seed.

Entries are kept as they come, and written out only on demand. The values of an entry must not change afterwards, and
must have a repr without memory addresses and without the order of a set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator
from typing import Any

HISTORY_MAX = 5_000_000


class History:
    """Entries of one run, in the order in which they happened."""

    def __init__(self, true_time: Callable[[], float], *, entries_max: int = HISTORY_MAX) -> None:
        self._true_time = true_time
        self._entries: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self._entries_max = entries_max
        self.traced = False
        """Whether each message of the network is noted as well."""

    def note(self, actor: str, what: str, *details: Any) -> None:
        """Add an entry; details are shown one after the other, pairs as name=value."""
        if len(self._entries) < self._entries_max:
            self._entries.append((self._true_time(), actor, what, details))

    def __len__(self) -> int:
        return len(self._entries)

    def lines(self, *, without: Container[str] = ()) -> Iterator[str]:
        """Each entry as a line: time, process, event, details. Entries of some kinds (`what`) may be left out."""
        for at_s, actor, what, details in self._entries:
            if what in without:
                continue
            shown = " ".join(_show(detail) for detail in details)
            yield f"{at_s:14.6f} {actor:<12} {what}" + (f" {shown}" if shown else "")

    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines())

    def digest(self) -> str:
        """A short name of all of it, to compare runs by."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def tail(self, lines: int = 40) -> str:
        """The last entries, for a report."""
        cut = History(self._true_time)
        cut._entries = self._entries[-lines:]
        return cut.text()


def _show(detail: Any) -> str:
    if isinstance(detail, tuple) and len(detail) == 2 and isinstance(detail[0], str):
        return f"{detail[0]}={_show(detail[1])}"
    return detail if isinstance(detail, str) else repr(detail)

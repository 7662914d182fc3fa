"""The books of a life: what was acknowledged, of a queue and of a counter, while all sorts of things happen to them.

A message is put under a `once` key until it is acknowledged, a count under a token likewise, so that every attempt
whose answer was lost is the same attempt. In the end what was acknowledged must have been handled, and counted once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import headgate
from headgate.client.sync.blocking import SyncHeadgate
from headgate.errors import Unavailable
from tests.system.sdk.listener import Listener

T = TypeVar("T")
AGAIN_S = 0.5
CLOSED_WITHIN_S = 60.0


@dataclass
class LifeRecord:
    """The actions that are known to be done, by their actor."""

    listener: Listener
    put: list[str] = field(default_factory=list)
    counted: int = 0
    failures: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    works: list[threading.Thread] = field(default_factory=list)

    def close(self) -> None:
        """Nothing more is put or counted; what was begun is known to be done."""
        self.ended.set()
        for work in self.works:
            work.join(timeout=CLOSED_WITHIN_S)
            assert not work.is_alive()

    def missing(self) -> set[str]:
        """Acknowledged, and not handled yet."""
        return set(self.put) - {word.text for word in self.listener.words}

    def handled_twice(self) -> int:
        """Deliveries beyond the first: allowed, and reported."""
        words = [word.text for word in self.listener.words]
        return len(words) - len(set(words))

    def wait_until_balanced(self, *, timeout_s: float) -> None:
        """Nothing that was acknowledged is missing."""
        self.listener.wait(lambda _: not self.missing(), timeout_s=timeout_s)
        assert set() == self.missing()


def _until_done(ledger: LifeRecord, once: Callable[[], T]) -> T:
    """Try until it is acknowledged, also where the day is over meanwhile: what is not known would not balance."""
    while True:
        try:
            return once()
        except Unavailable as error:  # Unknown is one of them: the key, or the token, makes it the same attempt
            ledger.failures.append(type(error).__name__)
            ledger.ended.wait(AGAIN_S)


def _put(p: SyncHeadgate, queue: str, ledger: LifeRecord, every_s: float) -> None:
    q, number = p.queue(queue), 0
    while not ledger.ended.wait(every_s):
        number += 1
        text = f"m-{number}"
        _until_done(ledger, partial(q.put, text, once=text))
        ledger.put.append(text)


def _count(p: SyncHeadgate, counter: str, ledger: LifeRecord, every_s: float) -> None:
    views = p.counter(counter)
    while not ledger.ended.wait(every_s):
        token = _until_done(ledger, views.token)
        _until_done(ledger, partial(views.add, "home", 1, token=token))
        ledger.counted += 1


@contextmanager
def open_ledger(
    environment: Mapping[str, str], listener: Listener, queue: str, counter: str | None = None, *, a_second: float
) -> Iterator[LifeRecord]:
    """Two applications that run until the end, whatever happens."""
    delivery_state = LifeRecord(listener)
    with headgate.connect_sync(dict(environment)) as p:
        delivery_state.works.append(
            threading.Thread(target=_put, args=(p, queue, delivery_state, 1 / a_second), daemon=True)
        )
        if counter is not None:
            delivery_state.works.append(
                threading.Thread(target=_count, args=(p, counter, delivery_state, 1 / a_second), daemon=True)
            )
        for work in delivery_state.works:
            work.start()
        try:
            yield delivery_state
        finally:
            delivery_state.close()


def counted_in_the_end(environment: Mapping[str, str], counter: str) -> int:
    """The value for a reader that knows nothing of it."""
    with headgate.connect_sync(dict(environment)) as p:
        return int(p.counter(counter).value("home"))

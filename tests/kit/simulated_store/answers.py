"""Waiting for answers of replicas: until enough came, or the time is up."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.store.store import OutcomeUnknown
from tests.kit.simulated_store.topology import ReplicaGroup


class Answers:
    """The replicas' answers to one request. Late ones are still accepted: they save a hint."""

    __slots__ = ("_missing", "also", "future", "replies")

    def __init__(self, loop: asyncio.AbstractEventLoop, groups: tuple[ReplicaGroup, ...]) -> None:
        self.future: asyncio.Future[None] = loop.create_future()
        self.replies: dict[str, Any] = {}
        self.also: Answers | None = None
        """Another caller that waits for the same answers, but for more of them."""
        self._missing = [[group.names, group.needed] for group in groups]

    def take(self, name: str, reply: Any) -> None:
        """A replica answered."""
        if name in self.replies:
            return
        self.replies[name] = reply
        if self.also is not None:
            self.also.take(name, reply)
        enough = True
        for group in self._missing:
            if name in group[0]:  # type: ignore[operator]
                group[1] -= 1  # type: ignore[operator]
            if group[1] > 0:  # type: ignore[operator]
                enough = False
        if enough and not self.future.done():
            self.future.set_result(None)

    def finish(self) -> None:
        """Stop waiting: the answers so far have decided it."""
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, message: str, **facts: object) -> None:
        """The time is up."""
        if not self.future.done():
            self.future.set_exception(OutcomeUnknown(message, **facts))  # type: ignore[arg-type]
            self.future.exception()  # a waiting caller gets it; without one, it is no error of its own


class Votes(Answers):
    """Answers to a proposal. A patient one waits for all of them before it reports a loss."""

    __slots__ = ("_asked", "_needed", "_patient", "accepted")

    def __init__(self, loop: asyncio.AbstractEventLoop, asked: int, needed: int, *, patient: bool) -> None:
        super().__init__(loop, ())
        self._asked = asked
        self._needed = needed
        self._patient = patient
        self.accepted = 0

    @property
    def won(self) -> bool:
        """Whether a majority has accepted."""
        return self.accepted >= self._needed

    def take(self, name: str, reply: Any) -> None:
        """A replica accepted or refused."""
        self.replies[name] = reply
        self.accepted += bool(reply)
        silent = self._asked - len(self.replies)
        if self.won or not silent or (not self._patient and self.accepted + silent < self._needed):
            self.finish()

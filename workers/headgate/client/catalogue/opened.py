"""What a connection opened, a queue or a counter, and where it may be used: in the process and on the event loop in
which the connection was opened, until the end of either.

A call that is not possible now because the clock or the knowledge of the catalogue is not trusted was not sent. It is
retried for `PATIENCE_S`, so a process that was paused continues by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import ClassVar, TypeVar

from headgate.engines.contract import CatalogueStale
from headgate.errors import HeadgateError, OperationRefused
from headgate.process.background_tasks import start_task
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.model.deadline import Deadline

T = TypeVar("T")

log = logging.getLogger("headgate.client")

PATIENCE_S = 10.0
CLOSE_WITHIN_S = 15.0
NOT_FIT = (ClockNotTrusted, CatalogueStale)
"""The call was not sent."""


class ConnectionClosed(OperationRefused):
    """The connection was closed."""


class WrongProcess(OperationRefused):
    """A connection does not survive a fork: open one in the child."""


class WrongEventLoop(OperationRefused):
    """A connection belongs to the event loop that opened it."""


class Home:
    """The process and the event loop of a connection.

    Reading the process id from the system and the running loop from asyncio are system calls. For an update of a
    counter, of which a process makes a hundred thousand per second, they would cost a quarter of the rest. This check
    needs no system call. It may answer no where the answer is yes; then the caller checks precisely."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = get_ident()
        self._is_parents = False
        _homes.add(self)

    def is_same_loop(self) -> bool:
        """Whether the caller runs in it, for sure: a thread runs one loop at a time, and that is this one."""
        return get_ident() == self._thread and self.loop.is_running() and not self._is_parents

    def leave(self) -> None:
        """This process is a child of the one that it belongs to."""
        self._is_parents = True


_homes: weakref.WeakSet[Home] = weakref.WeakSet()


def _leave_all() -> None:
    for home in tuple(_homes):
        home.leave()


os.register_at_fork(after_in_child=_leave_all)


def require_process(pid: int) -> None:
    """Refuse a child of the process that opened the connection."""
    if os.getpid() != pid:
        raise WrongProcess(opened_in=pid, used_in=os.getpid())


class Opened(ABC):
    """A queue or a counter of a connection."""

    _noun: ClassVar[str]

    def __init__(self, connection_is_usable: Callable[[], None]) -> None:
        self.ended: HeadgateError | None = None
        """Why it cannot be used any more: it was deleted, or closed."""
        self._connection_is_usable = connection_is_usable
        self._ending: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """`namespace/name`."""

    @abstractmethod
    async def _finish(self) -> None:
        """Finish its work within CLOSE_WITHIN_S."""

    @abstractmethod
    async def _freshen(self, limit: Deadline, deadline: Deadline | None) -> None:
        """Return when all that a call relies on is fit again, or raise the reason; `deadline` is the caller's."""

    def end(self, why: HeadgateError) -> None:
        """It is gone: every later call raises the reason."""
        if self.ended is None:
            self.ended = why
            log.warning(f"{self._noun} ended", extra={self._noun: self.name, "reason": str(why)})
            self._ending = start_task(f"close of a {self._noun}", self._close())

    async def close(self) -> None:
        """Write what waits, and release lanes. The connection does it when it is closed."""
        if self._ending is None:
            self._ending = start_task(f"close of a {self._noun}", self._close())
        await self._ending

    async def _close(self) -> None:
        try:
            await self._finish()
        except (HeadgateError, TimeoutError) as error:
            log.warning(f"{self._noun} not closed cleanly", extra={self._noun: self.name, "error": repr(error)})

    def _require_usable(self) -> None:
        self._connection_is_usable()
        if self.ended is not None:
            raise self.ended

    async def _tried(self, work: Callable[[], Awaitable[T]]) -> T:
        self._require_usable()
        try:
            return await work()
        except NOT_FIT:
            return await self._try_again(work)

    async def _try_again(self, work: Callable[[], Awaitable[T]], deadline: Deadline | None = None) -> T:
        """Nothing of it was sent, or it would have ended otherwise: once all is fit again it is done as if new."""
        limit = deadline or patience()
        while True:
            await self._freshen(limit, deadline)
            try:
                return await work()
            except NOT_FIT:
                if deadline is None and is_over(limit):
                    raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def patience() -> Deadline:
    """The limit of a call without one."""
    return Deadline.after(PATIENCE_S, now_s=asyncio.get_running_loop().time())


def is_over(limit: Deadline) -> bool:
    return limit.is_over(asyncio.get_running_loop().time())

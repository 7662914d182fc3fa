"""Where a connection is at home: the process and the event loop in which it was opened.

Reading the process id from the system and the running loop from asyncio are system calls. For an update of a counter,
of which a process makes a hundred thousand per second, they would cost a quarter of the rest. This check needs no
system call. It may answer no where the answer is yes; then the caller checks precisely.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from threading import get_ident


class Home:
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

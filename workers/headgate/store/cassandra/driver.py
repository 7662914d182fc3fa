"""The driver as this package uses it: its parts in one module, only its libev reactor, and its logs cut to one line.

The driver picks a reactor by the installed packages, and its asyncio one hangs when a callback sends the next
request. So this module names the reactor, and a machine without it gets an error instead of another one.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from headgate.errors import EnvironmentProblem

_REMEDY = (
    "install a wheel of cassandra-driver for this Python and platform (pip install --only-binary :all:"
    " cassandra-driver), or libev's headers before it is built"
)

try:
    import cassandra.cluster
    from cassandra.connection import Timer
    from cassandra.io import libevreactor
    from cassandra.io.libevreactor import LibevConnection
except Exception as error:  # the driver raises a class of its own, which is not importable when this fails
    raise EnvironmentProblem("The Cassandra driver's libev reactor is missing", remedy=_REMEDY, cause=error) from None

driver = cassandra.cluster

DRIVER_LOGGERS = tuple(
    f"cassandra.{name}"
    for name in ("cluster", "connection", "pool", "policies", "metadata", "protocol", "io.libevreactor", "query")
)

SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
"""Without it the last segment of a large request waits for the acknowledgement of the one before, up to 40 ms."""


class RequestTimer(Timer):  # type: ignore[misc]  # the driver has no types
    """The end of one request, which releases it once it is answered.

    A cancelled timer stays in the driver's queue until its time, and would keep its request until then: the sent
    statement and all returned rows, of each request of the last seconds.
    """

    def cancel(self) -> None:
        """It was answered."""
        self.canceled = True
        self.callback = lambda: None


class HeadgateConnection(LibevConnection):  # type: ignore[misc]  # the driver has no types
    """A connection with buffers for packed rows, which does not reject requests while the socket is full.

    The driver refuses to queue once the kernel's buffer is full, and the request then goes to a wrong coordinator or
    fails. Instead, the store bounds the requests and bytes in flight.
    """

    @classmethod
    def create_timer(cls, timeout: float, callback: Callable[[], object]) -> RequestTimer:
        """As the driver's, with a timer that holds on to nothing when it is over."""
        timer = RequestTimer(timeout, callback)
        libevreactor._global_loop.add_timer(timer)
        return timer

    in_buffer_size = 65536
    out_buffer_size = 65536

    @property
    def _socket_writable(self) -> bool:
        return True

    @_socket_writable.setter
    def _socket_writable(self, writable: bool) -> None:
        """Bounded elsewhere."""


class _OneLine(logging.Filter):
    """Removes tracebacks: the caller got the error as one of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            record.msg = f"{record.getMessage()} {record.exc_info[1]}"
            record.args = ()
        record.exc_info = record.exc_text = None
        if record.levelno > logging.WARNING:
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


_ONE_LINE = _OneLine()


def keep_logs_to_a_line() -> None:
    """The driver logs tracebacks of errors that it also raises; keep one line. Without configured logging, stay
    silent."""
    logging.getLogger("cassandra").addHandler(logging.NullHandler())
    for name in DRIVER_LOGGERS:
        logging.getLogger(name).addFilter(_ONE_LINE)


def let_reactor_end() -> None:
    """After the last connection of the process: the driver's timer repeats forever and would keep its thread.

    A reactor belongs to its own thread, so a callback on it stops the timer. A later connection starts it again.
    """
    reactor = libevreactor._global_loop
    if reactor is not None and not reactor._live_conns:
        HeadgateConnection.create_timer(0, reactor._loop_timer.stop)

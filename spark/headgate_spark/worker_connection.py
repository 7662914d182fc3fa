"""One connection for each Python process, on a loop in the background: of a driver, and of an executor's tasks.

The first task that needs it opens it, and the next ones find it: Spark keeps its Python workers, and opening costs a
second, since clocks are compared. A worker that Spark ends takes it along; it holds no lanes, so nobody waits for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, TypeVar

from headgate.client.background import BackgroundLoop
from headgate.client.connection import Headgate, connect
from headgate.client.queue import Queue
from headgate.runtime.loop import spare_the_collector
from headgate.store.connection_variables import PREFIX, connection_variables, prefixed, variable_names
from headgate_spark.archives import spare_archives

T = TypeVar("T")

_END = object()

TAKEN_AT_ONCE = 64
"""So many items of an async iterator are brought over from the loop's thread at once."""

NAMES = ("CONTACT_POINTS", "DATA_CENTER", "USERNAME", "USE_SSL", "KEYSPACE", "CLUSTER_NAME")
"""What a driver tells its tasks of where Cassandra is, where their own environment does not: never the password."""
SECRETS = ("PASSWORD", "SSL_CA", "SSL_CERT", "SSL_KEY")
"""What tasks are told only where they run on the driver's own machine."""


def told_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the driver's environment goes along with its tasks."""
    return _variables(environment, NAMES)


def local_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python workers on this machine are started with: they are children of a JVM that may be older than it."""
    return _variables(environment, (*NAMES, *SECRETS))


def _variables(environment: Mapping[str, str], settings: Sequence[str]) -> dict[str, str]:
    """The variables of these settings, by the names that this environment has them under."""
    names = variable_names(environment)
    return {names[setting]: environment[names[setting]] for setting in settings if setting in names}


class WorkerConnection:
    """A connection whose callers wait."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._background = BackgroundLoop("headgate")
        self.headgate: Headgate = connect(environment, name=f"spark/{os.getpid()}")
        try:
            self.run(self.headgate.open())
        except BaseException:
            self._background.stop()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of something async."""
        return self._background.run(work)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The same for who waits for it later."""
        return self._background.begin(work)

    def queue(self, name: str) -> Queue:
        """A queue, opened once."""
        return self.run(self.headgate.queue(name))

    def iterate(self, source: AsyncIterator[T]) -> Iterator[list[T]]:
        """What an async iterator gives, in lists."""
        while some := self.run(_take(source)):
            yield some

    def each(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What an async iterator gives, one by one; the next is made while the last is used."""
        ahead: asyncio.Future[Any] | None = None

        async def following() -> Any:
            nonlocal ahead
            one = await (ahead if ahead is not None else anext(source, _END))
            ahead = None if one is _END else asyncio.ensure_future(anext(source, _END))
            return one

        async def end() -> None:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

        try:
            while (one := self.run(following())) is not _END:
                yield one
        finally:
            self.run(end())

    def close(self) -> None:
        """Disconnect."""
        try:
            self.run(self.headgate.close())
        finally:
            self._background.stop()


class UnderWay:
    """Work of one task that is waited for later. Where some of it fails, the rest is waited for before that is told:
    a task that is tried again then meets nothing of its own."""

    def __init__(self, here: WorkerConnection, ahead: int) -> None:
        self._here = here
        self._ahead = ahead
        self._begun: deque[Future[Any]] = deque()

    def __enter__(self) -> UnderWay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait(self._begun)
        if error is None:
            self._end(0)

    def add(self, work: Coroutine[Any, Any, Any], *, after_all: bool = False) -> None:
        """Begin it, once less than `ahead` are under way before it, or none; what of those has failed is raised."""
        try:
            self._end(0 if after_all else self._ahead - 1)
        except BaseException:
            work.close()
            raise
        self._begun.append(self._here.begin(work))

    def _end(self, left: int) -> None:
        while len(self._begun) > left:
            self._begun.popleft().result()


async def _take(source: AsyncIterator[T]) -> list[T]:
    some: list[T] = []
    async for item in source:
        some.append(item)
        if len(some) >= TAKEN_AT_ONCE:
            break
    return some


_lock = threading.Lock()
_open: dict[tuple[tuple[str, str], ...], WorkerConnection] = {}


def merge_environments(told: Mapping[str, str], own: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """One environment of the three, where the later goes before the earlier, with the prefix or without it."""
    settled = connection_variables(own)
    left = {name: value for name, value in told.items() if name.removeprefix(PREFIX) not in settled}
    return {**left, **own, **prefixed(over)}


def connection_here(told: Mapping[str, str], *, over: Mapping[str, str] | None = None) -> WorkerConnection:
    """The connection of this process; what its own environment says goes before what it was told, and `over` before
    both."""
    over = over or {}
    key = (("", str(os.getpid())), *sorted(told.items()), ("", ""), *sorted(over.items()))
    with _lock:
        if key not in _open:
            _open[key] = WorkerConnection(merge_environments(told, os.environ, over))
            spare_the_collector()  # Spark has it look at everything after each task: 60 ms for what was imported
            spare_archives()
        return _open[key]

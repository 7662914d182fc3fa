"""One connection for each Python process, on a loop in the background: of a driver, and of an executor's tasks.

The first task that needs it opens it, and the next ones reuse it: Spark keeps its Python workers, and opening costs a
second, since clocks are compared. It ends with a worker that Spark ends; it holds no lanes, so nobody waits for it.
Readers and writers are pickled, so none opens it in its constructor.

Before each task Spark clears Python's import caches, so that added files are found. Since 3.10 Python then reads the
directory of each zip archive again, and Spark brings its own as one, of 1,300 files: 0.2 s of CPU per task, which is
more than reading a hundred thousand messages. So archives on the path are scanned again only where they have changed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from zipimport import zipimporter

from headgate.client.connection import Headgate, connect
from headgate.client.queue import Queue
from headgate.client.sync.background import BackgroundLoop
from headgate.errors import Unavailable
from headgate.process.background_tasks import end_task, start_task
from headgate.process.event_loop import spare_the_collector
from headgate.store.connection_variables import PREFIX, connection_variables, prefixed, variable_names

T = TypeVar("T")

_END = object()

NAMES = ("CONTACT_POINTS", "DATA_CENTER", "USERNAME", "USE_SSL", "KEYSPACE", "CLUSTER_NAME")
"""The address of Cassandra that a driver passes to its tasks, if their own environment lacks it: never the
password."""
SECRETS = ("PASSWORD", "SSL_CA", "SSL_CERT", "SSL_KEY")
"""Settings that tasks get only on the driver's own machine."""


def task_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the driver's environment that its tasks get."""
    return _variables(environment, NAMES)


def local_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The same for tasks on the driver's own machine."""
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
        return self._background.run(work)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The same for a caller that waits for it later."""
        return self._background.begin(work)

    def queue(self, name: str) -> Queue:
        return self.run(self.headgate.queue(name))

    def each(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items of an async iterator, one by one; the next is computed while the last is used."""
        ahead: asyncio.Task[Any] | None = None

        async def read_next() -> Any:
            return await anext(source, _END)

        async def following() -> Any:
            nonlocal ahead
            one = await (ahead if ahead is not None else read_next())
            ahead = None if one is _END else start_task("next item", read_next())
            return one

        async def end() -> None:
            if ahead is not None:
                await end_task(ahead)

        try:
            while (one := self.run(following())) is not _END:
                yield one
        finally:
            self.run(end())

    def close(self) -> None:
        try:
            self.run(self.headgate.close())
        finally:
            self._background.stop()


class UnderWay:
    """Work of one task that is awaited later. If some of it fails, the rest is awaited before the error is raised: a
    repeated task then meets nothing of its own."""

    def __init__(self, connection: WorkerConnection, ahead: int) -> None:
        self._connection = connection
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
        """Start it, once less than `ahead` are under way before it, or none; raises the errors of earlier ones."""
        try:
            self._end(0 if after_all else self._ahead - 1)
        except BaseException:
            work.close()
            raise
        self._begun.append(self._connection.begin(work))

    def _end(self, left: int) -> None:
        while len(self._begun) > left:
            self._begun.popleft().result()


async def until_available(work: Callable[[], Awaitable[T]], tries: int, pause_s: float) -> T:
    """Its result; tried again where a server, or the clock of this process, is unavailable."""
    for _ in range(tries - 1):
        try:
            return await work()
        except Unavailable:
            await asyncio.sleep(pause_s)
    return await work()


# ---- the connection of this process


_lock = threading.Lock()
_open: dict[tuple[tuple[str, str], ...], WorkerConnection] = {}


def process_connection(
    environment: Mapping[str, str] | None = None, *, over: Iterable[tuple[str, str]] = ()
) -> WorkerConnection:
    """The connection of this process; its own environment takes precedence over the driver's, and `over` over
    both."""
    task, settings = environment or {}, dict(over)
    key = (("", str(os.getpid())), *sorted(task.items()), ("", ""), *sorted(settings.items()))
    with _lock:
        if key not in _open:
            _open[key] = WorkerConnection(merge_environments(task, os.environ, settings))
            spare_the_collector()  # Spark has it visit every object after each task: 60 ms for the imported modules
            spare_archives()
        return _open[key]


def merge_environments(task: Mapping[str, str], own: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """One environment of the three, where the later goes before the earlier, with the prefix or without it."""
    settled = connection_variables(own)
    left = {name: value for name, value in task.items() if name.removeprefix(PREFIX) not in settled}
    return {**left, **own, **prefixed(over)}


class UnchangedArchive(zipimporter):
    """An archive on the path, which remembers the file that it has read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._version = _version(self.archive)

    def invalidate_caches(self) -> None:
        version = _version(self.archive)
        if version != self._version:
            super().invalidate_caches()
            self._version = version


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def spare_archives() -> None:
    for path, finder in tuple(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = UnchangedArchive(path)

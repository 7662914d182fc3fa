"""A connected driver for one asyncio loop: prepare, send, close. It knows nothing of statements as values.

- Nothing in it retries or speculates; that is decided in one place (`Store`), for both stores.
- No thread waits for an answer: the driver's reactor thread passes answers on, many per wake-up.
- A forked process does not share it with its child: two processes on one socket would read each other's answers.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cassandra import OperationTimedOut
from cassandra.auth import PlainTextAuthProvider
from cassandra.policies import ExponentialReconnectionPolicy, FallthroughRetryPolicy
from cassandra.protocol import PrepareMessage
from cassandra.query import PreparedStatement

from headgate.errors import Bug
from headgate.store.cassandra.binding import HeadgateProtocol
from headgate.store.cassandra.borrowed_session import release, reserve
from headgate.store.cassandra.diagnostics import check_cluster, explain, tls_context
from headgate.store.cassandra.driver import (
    SOCKET_OPTIONS,
    HeadgateConnection,
    driver,
    keep_logs_to_a_line,
    let_reactor_end,
)
from headgate.store.cassandra.routing import HomePolicy
from headgate.store.cassandra.settings import ConnectionSettings

CONNECT_TIMEOUT_S = 5.0
CONTROL_TIMEOUT_S = 5.0
HEARTBEAT_S = 5.0
HEARTBEAT_TIMEOUT_S = 10.0
RECONNECT_S_MIN = 0.5
RECONNECT_S_MAX = 10.0

REQUESTS_MAX = 2048
BYTES_MAX = 64 * 1024 * 1024


class Admission:
    """The limit of one loop on requests and bytes in flight; later requests wait in turn. A request larger than the
    whole capacity goes alone.

    The driver would queue without a bound, and would block the whole loop once a connection has no free stream.
    """

    def __init__(self, requests_max: int = REQUESTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self.requests = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def try_enter(self, size: int) -> bool:
        if self._waiting or not self._has_space(size):
            return False
        self._take(size)
        return True

    async def enter(self, size: int, within_s: float) -> bool:
        """Wait in turn. False: the time was up first."""
        if self.try_enter(size):
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            async with asyncio.timeout(within_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            # Admitted and cancelled in one turn of the loop: the place is returned.
            if turn.done() and not turn.cancelled():
                self.leave(size)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def leave(self, size: int) -> None:
        self.requests -= 1
        self.bytes -= size
        while self._waiting:
            turn, waiting_size = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
            elif self._has_space(waiting_size):
                self._waiting.popleft()
                self._take(waiting_size)
                turn.set_result(None)
            else:
                return

    def _has_space(self, size: int) -> bool:
        return self.requests == 0 or (self.requests < self._requests_max and self.bytes + size <= self._bytes_max)

    def _take(self, size: int) -> None:
        self.requests += 1
        self.bytes += size


class Handover:
    """Answers from the driver's thread to asyncio's: many answers, one wake-up.

    Waking a loop costs a system call and a turn of the loop, so an answer that finds a wake-up on its way joins it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._waking = False

    def answer(self, future: asyncio.Future[Any], result: Any, error: BaseException | None = None) -> None:
        """From any thread."""
        self._arrived.append((future, result, error))
        if not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop is closed: nothing waits any more.
                self._arrived.clear()

    def _drain(self) -> None:
        # The flag is cleared first: an answer that comes during the drain is either handled by it or wakes the loop
        # again.
        self._waking = False
        arrived = self._arrived
        while arrived:
            future, result, error = arrived.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


class ResultPage:
    """Columns and rows in their wire form, and the start of the next page."""

    __slots__ = ("names", "page", "rows")

    def __init__(self, names: tuple[str, ...], rows: Any) -> None:
        self.names = names
        self.rows = rows
        self.page: bytes | None = None


def _answer(names: list[str], rows: Any) -> ResultPage:
    """The driver's row factory: rows stay tuples, or encoded; the caller knows which."""
    return ResultPage(tuple(names), rows)


_NOTHING = ResultPage((), [])


class Session:
    """One connected cluster and its event loop."""

    def __init__(
        self,
        cluster: Any,
        session: Any,
        policy: HomePolicy,
        loop: asyncio.AbstractEventLoop,
        *,
        release: Callable[[], None] | None = None,
    ) -> None:
        """`release` lets go of a session of the application; without it the session is our own, and is closed."""
        self._release = release
        self.cluster = cluster
        self.policy = policy
        self._session = session
        self._loop = loop
        self.admission = Admission()
        self._handover = Handover(loop)
        self._pid = os.getpid()
        self._closed = False

    def require_usable(self) -> None:
        """Refuse what would end in a mess: another process, another loop, after the end."""
        if os.getpid() != self._pid:
            raise Bug(
                "A store was used in a process that did not open it",
                remedy="open a store after the fork, in the child",
                opened_in=self._pid,
                used_in=os.getpid(),
            )
        if self._closed:
            raise Bug("A store was used after it was closed")
        if asyncio.get_running_loop() is not self._loop:
            raise Bug("A store was used on an event loop that did not open it")

    async def send(
        self,
        query: Any,
        within_s: float,
        page: bytes | None = None,
        *,
        values: tuple[Any, ...] | None = None,
        at: Any = None,
    ) -> ResultPage:
        """Send one request and await its answer; raises the driver's errors."""
        future: asyncio.Future[ResultPage] = self._loop.create_future()
        response = self._session.execute_async(query, values, timeout=within_s, paging_state=page, host=at)
        response.add_callbacks(self._answered, self._failed, callback_args=(future, response), errback_args=(future,))
        return await future

    def _answered(self, answer: ResultPage | None, future: asyncio.Future[ResultPage], response: Any) -> None:
        # On the driver's thread. A request references this call, which references the request. Without the cycle its
        # data is freed at once, not at the next run of the cyclic collector.
        response.clear_callbacks()
        if self.policy.suspects:
            self.policy.answered(response.coordinator_host)
        if isinstance(answer, ResultPage):
            answer.page = response._paging_state
        self._handover.answer(future, _NOTHING if answer is None else answer)

    def _failed(self, error: BaseException, future: asyncio.Future[Any]) -> None:
        # On the driver's thread.
        if isinstance(error, OperationTimedOut) and error.last_host is not None:
            self.policy.suspect(error.last_host)
        self._handover.answer(future, None, error)

    async def prepare(self, text: str, within_s: float) -> PreparedStatement:
        """Prepare the text on one node; the driver prepares it on the others when they meet it."""
        message = PrepareMessage(query=text)
        response = driver.ResponseFuture(
            self._session,
            message,
            query=None,
            timeout=within_s,
            retry_policy=FallthroughRetryPolicy(),
            load_balancer=self.policy,
        )
        future: asyncio.Future[Any] = self._loop.create_future()
        response.add_callbacks(lambda rows: self._handover.answer(future, rows), self._failed, errback_args=(future,))
        response.send_request()
        rows = await future
        prepared = PreparedStatement.from_message(
            rows.query_id,
            rows.bind_metadata,
            rows.pk_indexes,
            self.cluster.metadata,
            text,
            None,
            self._session._protocol_version,
            rows.column_metadata,
            rows.result_metadata_id,
        )
        self.cluster.add_prepared(rows.query_id, prepared)
        return prepared

    async def close(self) -> None:
        """End the connections and the driver's threads; requests in flight fail. The application's own stay open."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._release is not None:
            self._release()
            return
        try:
            await _in_thread(self._loop, self.cluster.shutdown)
        except RuntimeError:  # the interpreter is ending: no executor takes work any more, and nothing else waits
            self.cluster.shutdown()
        let_reactor_end()


async def open_session(settings: ConnectionSettings, keyspace: str | None) -> Session:
    """Connect, and reject an environment in which nothing could work, with one line for each cause."""
    loop = asyncio.get_running_loop()
    policy = HomePolicy(settings.data_center)
    cluster, session = await _in_thread(loop, functools.partial(_connect, settings, keyspace, policy))
    return Session(cluster, session, policy, loop)


def reuse_session(reserved: Any, settings: ConnectionSettings, keyspace: str | None) -> Session:
    """The same on a driver session of the application, which stays open and as it is."""
    view, policy = reserve(reserved, settings, keyspace, _answer)
    loop = asyncio.get_running_loop()
    return Session(reserved.cluster, view, policy, loop, release=functools.partial(release, reserved, policy))


def _connect(settings: ConnectionSettings, keyspace: str | None, policy: HomePolicy) -> tuple[Any, Any]:
    keep_logs_to_a_line()
    context = tls_context(settings)
    cluster = None
    try:
        cluster = build_cluster(settings, policy, context)
        session = cluster.connect()
        session.use_client_timestamp = False
        session.client_protocol_handler = HeadgateProtocol
        check_cluster(cluster.metadata, settings, keyspace)
    except Exception as error:
        known: list[Any] = []
        if cluster is not None:
            known = list(cluster.metadata.all_hosts())
            cluster.shutdown()
        raise explain(error, settings, known) from None
    if policy.data_center is None:
        policy.data_center = next(host.datacenter for host in cluster.metadata.all_hosts())
    return cluster, session


def build_cluster(settings: ConnectionSettings, policy: HomePolicy, context: Any) -> Any:
    login = settings.username and PlainTextAuthProvider(settings.username, settings.password)
    profile = driver.ExecutionProfile(
        load_balancing_policy=policy,
        retry_policy=FallthroughRetryPolicy(),
        serial_consistency_level=None,
        row_factory=_answer,
    )
    return driver.Cluster(
        contact_points=[(point.host, point.port) for point in settings.contact_points],
        port=settings.contact_points[0].port,
        auth_provider=login,
        ssl_context=context,
        connection_class=HeadgateConnection,
        sockopts=SOCKET_OPTIONS,
        execution_profiles={driver.EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ExponentialReconnectionPolicy(RECONNECT_S_MIN, RECONNECT_S_MAX),
        protocol_version=5,
        compression=False,
        connect_timeout=CONNECT_TIMEOUT_S,
        control_connection_timeout=CONTROL_TIMEOUT_S,
        idle_heartbeat_interval=HEARTBEAT_S,
        idle_heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
        prepare_on_all_hosts=False,
        reprepare_on_up=False,
        monitor_reporting_enabled=False,
        application_name="headgate",
    )


async def _in_thread(loop: asyncio.AbstractEventLoop, work: Any) -> Any:
    """Run what blocks on a thread that ends with it: opening and closing are rare."""
    with ThreadPoolExecutor(1, thread_name_prefix="headgate-store") as pool:
        return await loop.run_in_executor(pool, work)


def boottime_s() -> float:
    """A clock for time limits that continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)

"""A whole system for the tests of an application: SDK, workers and Cassandra, simulated, in virtual time.

    with Environment() as env:
        env.run(scenario(env))

    async def scenario(env):
        await env.declare_queue("shop/emails", maxReceives=3)
        env.worker("shop/emails", send)
        async with env.connect() as connection:
            emails = await connection.queue("shop/emails")
            await emails.put({"to": "ann@example.org"}, delay=timedelta(hours=1))
        await env.drain()
        assert await env.dead_letters("shop/emails") == []

The SDK, the worker, the engine and its protocols are those of production; the store under them is in memory. Nothing
real is waited for: where nothing is due, the environment stops its workers, sets the time forwards and starts them
again, so that hours take milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, TypeVar, cast

from headgate.api.read.parse import Resource
from headgate.api.resources.queues import QueueResource
from headgate.applying.apply import Applier
from headgate.applying.call import NoSchema, Resources, read_resources
from headgate.applying.desired_state import PlacementDefaults
from headgate.client.catalogue.memory_context import KEYSPACE, MachineClock, NoHints
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.connection import NAMESPACE, Headgate
from headgate.client.model.times import Span, span_us
from headgate.client.model.values import PeekedMessage
from headgate.client.redriving import DEATH_REASON
from headgate.client.sync.background import BackgroundLoop, WouldDeadlock
from headgate.client.sync.blocking import SyncHeadgate
from headgate.engines.registry import ENGINE_MODULES, MEMORY_ENGINES
from headgate.errors import InvalidRequest, OperationRefused
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.handler.handlers import understand
from headgate.runtime.worker.worker import WorkerTerms
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.memory.store import DATA_CENTER, MemoryReplica, MemoryStore
from headgate.store.model.positions import Positions
from headgate.store.model.statements import Decision, Select, Write
from headgate.store.model.table import CASSANDRA_4_LAST_EXPIRY_S
from headgate.store.store import AttemptAnswer
from headgate.testing.virtual_loop import OWNER, ThreadedLoop
from headgate.testing.virtual_world import VirtualProcess, VirtualWorld
from headgate.testing.worker import EnvironmentWorker, HandlerAttempt

T = TypeVar("T")

SECOND_US = 1_000_000
DRAIN_WITHIN = timedelta(days=30)
RUN_WITHIN_S = 24 * 3600.0
"""Of one run: virtual time that is simulated, not set forwards. Beyond it, the test waits for something that does
not happen."""
ATTEMPTS_MAX = 50
"""Of one message: `drain` does not wait for one that fails more often."""
CHECK_S = 0.25
SKIP_FROM_S = 15.0
"""A shorter wait is simulated."""
WARM_UP_S = 4.0
"""Workers start this long before the next message is due, and own their lanes by then."""
SETTLE_S = 10.0
PEEK_MAX = 1_000
ANSWER_S = 0.001
"""How long the store takes for a statement: without it a busy worker would let no time pass."""
_PACKAGE = str(Path(__file__).parents[1])


class NotDrained(OperationRefused):
    """Messages are left after the time that `drain` was given."""


class WrongTestLoop(InvalidRequest):
    """An environment has an event loop of its own; use the fixture headgate_env, or Environment.run."""


@dataclass(frozen=True)
class DeadMessage:
    """A message in a dead-letter queue."""

    message: PeekedMessage
    reason: str

    def json(self) -> Any:
        """The payload, decoded from JSON."""
        return self.message.json()


class Environment:
    """A world of its own for one test. `start` is its time at the beginning. Default: now.

    With `engine="memory"` all queues are on the engine of `memory://`, which has neither lanes nor leases."""

    def __init__(
        self, *, start: datetime | None = None, seed: int = 0, engine: Literal["memory"] | None = None
    ) -> None:
        began = start or datetime.now(UTC).replace(microsecond=0)
        self._began_us = round(began.timestamp() * SECOND_US)
        self._world = VirtualWorld(ThreadedLoop, seed)
        self._loop = cast("ThreadedLoop", self._world.loop)
        self._replica = MemoryReplica(self._now_us)
        self._engines = MEMORY_ENGINES if engine == "memory" else ENGINE_MODULES
        self._queues: dict[str, QueueResource] = {}
        self._workers: list[EnvironmentWorker] = []
        self._processes = 0
        self._observer: Headgate | None = None
        self._scenario: asyncio.Task[Any] | None = None
        self.attempted: list[HandlerAttempt] = []

    # ---- its life

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the environment's event loop. A handler in a thread may call it too, for its part."""
        if self._loop.in_thread():
            return asyncio.run_coroutine_threadsafe(scenario, self._loop).result()
        if self._loop.is_running():
            scenario.close()
            raise WouldDeadlock(remedy="await it")
        self._loop.limit(RUN_WITHIN_S)
        return self._world.run(self._noted(scenario))

    async def _noted(self, scenario: Coroutine[Any, Any, T]) -> T:
        self._scenario = asyncio.current_task()
        return await scenario

    def close(self) -> None:
        """Drop everything. `with` does it."""
        self._world.close()

    def __enter__(self) -> Environment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        raise WrongTestLoop

    async def __aexit__(self, *_: object) -> None:
        """Never called: `__aenter__` raises."""

    # ---- time

    def now(self) -> datetime:
        """The virtual time, by a correct clock."""
        return datetime.fromtimestamp(self._now_us() / SECOND_US, UTC)

    def _now_us(self) -> int:
        return self._began_us + round(self._world.now_s() * SECOND_US)

    async def advance(self, by: Span) -> None:
        """Let this time pass, in seconds or as a timedelta. Messages that fall due meanwhile are handled."""
        end_us = self._now_us() + span_us(by, "by")
        while self._now_us() < end_us:
            due_us = await self._until_idle(end_us)
            await self._pass_until(min(due_us or end_us, end_us))
        await self._until_idle(self._now_us() + round(SETTLE_S * SECOND_US))

    async def drain(self, *, within: Span = DRAIN_WITHIN) -> None:
        """Return when the queues with a running worker are empty. Delays and retries are waited for, in virtual
        time, up to the limit `within`, and up to 50 attempts of a message; then NotDrained is raised."""
        end_us = self._now_us() + span_us(within, "within")
        begun = len(self.attempted)
        while (due_us := await self._until_idle(end_us)) is not None:
            if any(each.number > ATTEMPTS_MAX for each in self.attempted[begun:]):
                raise NotDrained("A message fails again and again", remedy="declare its queue with maxReceives")
            begun = len(self.attempted)
            if due_us > end_us or self._now_us() >= end_us:
                left = [(queue, len(await self.messages(queue))) for queue in self._worked()]
                raise NotDrained(
                    remedy="set a longer `within`, or start a worker that handles them",
                    within=within,
                    messages=", ".join(f"{queue} {count}" for queue, count in left if count),
                )
            await self._pass_until(due_us)

    async def _until_idle(self, end_us: int) -> int | None:
        """Return when no worker has anything to do, or at the end; when the next message is due, if there is one."""
        while True:
            before = self._activity()
            due_us = await self._next_due_us()
            now_us = self._now_us()
            # A message that moves during the read may be seen at neither of its places.
            is_idle = before == self._activity() == (len(self.attempted), 0)
            if now_us >= end_us or (is_idle and (due_us is None or due_us > now_us)):
                return due_us
            await asyncio.sleep(min(CHECK_S, (end_us - now_us) / SECOND_US))

    def _activity(self) -> tuple[int, int]:
        return len(self.attempted), sum(worker.in_flight for worker in self._workers)

    async def _next_due_us(self) -> int | None:
        """Of the earliest message in a queue that is worked."""
        times = [
            round(max(each.due, each.hidden_until or each.due).timestamp() * SECOND_US)
            for queue in self._worked()
            for each in await self.messages(queue)
        ]
        return min(times, default=None)

    async def _pass_until(self, at_us: int) -> None:
        """Let the time pass, at once where nothing would happen meanwhile."""
        wait_s = (at_us - self._now_us()) / SECOND_US
        if wait_s >= SKIP_FROM_S and self._nothing_else_runs():
            running = [worker for worker in self._workers if worker.is_running]
            await asyncio.gather(*(worker.stop() for worker in running))
            wait_s = (at_us - self._now_us()) / SECOND_US
            self._loop.skip(max(0.0, wait_s - WARM_UP_S))
            for worker in running:
                worker.start()
        await asyncio.sleep(max(0.0, (at_us - self._now_us()) / SECOND_US))

    def _nothing_else_runs(self) -> bool:
        """Whether all tasks are Headgate's own, but for the test itself: others may wait for a time in between."""
        others = asyncio.all_tasks(self._loop) - {self._scenario, asyncio.current_task()}
        return not any(worker.in_flight for worker in self._workers) and all(map(_is_ours, others))

    # ---- queues

    async def apply(self, resources: Resources) -> None:
        """Create queues and counters, from YAML files and documents, as `headgate apply` does."""
        read = read_resources(resources)
        process = self.start_process("apply")
        await process.start(self._apply(process, read))
        process.kill()
        self._queues |= {
            f"{each.metadata.namespace}/{each.metadata.name}": each
            for each in read
            if isinstance(each, QueueResource)
        }

    async def _apply(self, process: VirtualProcess, resources: tuple[Resource, ...]) -> None:
        store = _TimedStore(self._replica)
        catalogue = Catalogue(
            store,
            now_us=self._now_us,
            owner="cli/test",
            new_uuid=process.uuid,
            new_key=lambda: process.rng.randbytes(32),
        )
        placement = PlacementDefaults(KEYSPACE, DATA_CENTER, 1)
        applier = Applier(NoSchema(DATA_CENTER), catalogue, lambda _: store, placement, engines=self._engines)
        await applier.prepare()
        done = await applier.apply(resources)
        if refused := [each for each in done if each.refused]:
            reasons = "; ".join(f"{each.name.name}: {', '.join(each.notes)}" for each in refused)
            raise OperationRefused("Resources were refused", resources=reasons)

    async def declare_queue(self, name: str, **spec: Any) -> None:
        """Create a queue, given fields of its spec: `declare_queue("shop/emails", maxReceives=3)`. With
        `maxReceives` and no `deadLetter` the dead-letter queue is `<name>-dead`, created too."""
        namespace, _, own = name.rpartition("/")
        wanted: dict[str, Any] = {"shards": 1, **spec}
        if "maxReceives" in wanted and "deadLetter" not in wanted:
            wanted["deadLetter"] = f"{own}-dead"
        dead = wanted.get("deadLetter")
        documents = [_document(namespace or NAMESPACE, own, wanted)]
        if dead is not None and f"{namespace or NAMESPACE}/{dead}" not in self._queues:
            documents.append(_document(namespace or NAMESPACE, str(dead), {"shards": 1}))
        await self.apply(documents)

    async def messages(self, queue: str) -> list[PeekedMessage]:
        """The live messages of a queue (at most 1,000), the earliest by due time."""
        opened = await (await self._observing()).queue(queue)
        return await opened.peek(PEEK_MAX)

    async def dead_letters(self, queue: str) -> list[DeadMessage]:
        """The messages that the queue's handler could not handle, with the reasons: its dead-letter queue."""
        resource = self._queues.get(queue if "/" in queue else f"{NAMESPACE}/{queue}")
        dead = None if resource is None else resource.spec.dead_letter
        if resource is None or dead is None:
            raise InvalidRequest(
                "The queue has no dead-letter queue", remedy="declare it with maxReceives and deadLetter", queue=queue
            )
        dead_messages = await self.messages(f"{resource.metadata.namespace}/{dead}")
        return [DeadMessage(each, str(each.attributes.get(DEATH_REASON, ""))) for each in dead_messages]

    async def _observing(self) -> Headgate:
        if self._observer is None:
            self._observer = self.connect()
        return await self._observer.open()

    # ---- processes

    def connect(self, *, namespace: str = NAMESPACE) -> Headgate:
        """A connection of a process of its own, as `headgate.connect()` gives it."""
        return self.connection_of(self.start_process("client"), namespace=namespace)

    def connect_sync(self, *, namespace: str = NAMESPACE) -> SyncHeadgate:
        """The same without async, for tests and for handlers in threads."""
        return _SyncConnection(self, self.connect(namespace=namespace))

    def worker(
        self,
        queue: str,
        handler: Callable[..., Any],
        *,
        concurrency: int = 16,
        timeout: Span | None = None,
        visibility: Span | None = None,
        backoff: Backoff | None = None,
    ) -> EnvironmentWorker:
        """Start a worker: a process of its own that calls the handler for each message of the queue."""
        terms = WorkerTerms(
            concurrency=concurrency,
            timeout_s=None if timeout is None else span_us(timeout, "timeout") / SECOND_US,
            backoff=backoff or Backoff(),
        )
        name = f"worker-{len(self._workers) + 1}"
        visibility_us = None if visibility is None else span_us(visibility, "visibility")
        worker = EnvironmentWorker(self, name, queue, understand(handler, _name_of(handler)), terms, visibility_us)
        self._workers.append(worker)
        worker.start()
        return worker

    async def crash(self, worker: EnvironmentWorker | None = None) -> None:
        """Kill -9 a worker: nothing of it runs any more, no `finally` either. In a handler, without a worker: the
        process that runs the handler."""
        if worker is not None:
            worker.kill()
            return
        owner = OWNER.get()
        if owner is None:
            raise InvalidRequest("Outside a handler, name the worker that crashes")
        own = next((each for each in self._workers if each.is_process(owner)), None)
        if own is None:
            owner.kill()  # a child that runs a crash suspect
        else:
            own.kill()
        await asyncio.sleep(0)  # from which nobody returns

    def restart(self, worker: EnvironmentWorker) -> None:
        """Start a worker again that was crashed or stopped."""
        if worker.is_running:
            raise InvalidRequest("The worker is running", remedy="crash or stop it first")
        worker.start()

    def attempts(self, queue: str | None = None) -> list[HandlerAttempt]:
        """Every call of a handler so far, in order; of one queue or of all."""
        return [each for each in self.attempted if queue is None or each.queue == queue]

    def start_process(self, name: str) -> VirtualProcess:
        """A process of the world, under a name of its own."""
        with suppress(RuntimeError):  # no loop runs: a test that is not async
            if asyncio.get_running_loop() is not self._loop:
                raise WrongTestLoop
        self._processes += 1
        return VirtualProcess(self._world, f"{name}-{self._processes}")

    def connection_of(self, process: VirtualProcess, *, namespace: str = NAMESPACE) -> Headgate:
        """A connection of that process, not open yet."""

        store = _TimedStore(self._replica)

        async def open_process_context() -> ProcessContext:
            return ProcessContext(
                name=process.name,
                store_in=lambda _: store,
                keyspace=KEYSPACE,
                data_center=DATA_CENTER,
                clock=MachineClock(self._now_us),
                last_expiry_s=CASSANDRA_4_LAST_EXPIRY_S,
                close=store.close,
                new_uuid=process.uuid,
                rng=process.rng,
                positions=Positions(lambda: process.rng.getrandbits(56)),
                hints=NoHints(),
                engines=self._engines,
                has_summary=self._engines is ENGINE_MODULES,
            )

        return Headgate(open_process_context, namespace=namespace)

    def _worked(self) -> list[str]:
        return sorted({worker.queue for worker in self._workers if worker.is_running})


class _TimedStore(MemoryStore):
    """A store that takes its time."""

    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        """After that time."""
        await asyncio.sleep(ANSWER_S)
        return self.replica.run(statement)


class _Background(BackgroundLoop):
    """The environment's loop, which runs whenever a caller waits for it."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """It is done when this returns."""
        future: Future[T] = Future()
        try:
            future.set_result(self._environment.run(work))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self) -> None:
        """The environment ends the loop."""


class _SyncConnection(SyncHeadgate):
    """The SDK without async on the environment's loop."""

    def __init__(self, environment: Environment, connection: Headgate) -> None:
        super().__init__(connection)
        self._environment = environment

    def open(self) -> SyncHeadgate:
        """Connect. `with` does it."""
        self._loop = _Background(self._environment)
        self._environment.run(self.connection.open())
        return self


def _document(namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec}


def _name_of(handler: Callable[..., Any]) -> str:
    return f"{getattr(handler, '__module__', '?')}:{getattr(handler, '__qualname__', type(handler).__qualname__)}"


def _is_ours(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(_PACKAGE)

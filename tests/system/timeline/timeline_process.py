"""Producers and consumers of a timeline queue as processes of their own, which write down all that they do and see.

    python -m tests.system.timeline.timeline_process produce|consume|repair ORDER

ORDER is an `Order` as JSON; the environment names the Cassandra. Each thing done or seen is one line of JSON,
written to standard output by one system call as soon as it happens: what a process did before it was killed is
there, whatever killed it. `timeline_fleet.py` starts such processes and reads what they wrote.

On SIGTERM a process ends in an orderly way: it lets its last calls return, releases its lanes and prints `ended`.
On SIGUSR1 a consumer keeps its next message in flight, as a handler that does not return.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import headgate
from headgate.engines.contract import Ack, Cancelled, Delivery, NackDelivery, NewMessage, Repaired, Settle
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.receipts import read_receipt
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.model.tables import ALL, shared_tables
from headgate.errors import HeadgateError
from headgate.store.cassandra.node_queries import CassandraTimes
from headgate.store.cassandra.schema import CassandraSchema
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.catalogue.decide_generation import NOTICE_US
from headgate.store.clock.clock import Clock, MachineTime
from headgate.store.clock.clock_state import Instant
from headgate.store.model.table import Keyspace
from headgate.store.schema import ensure
from tests.kit.process import real_host

KEYSPACE = "headgate_timeline"
RECEIPT_KEY = b"secret"
SECOND = 1_000_000
READS_IN_A_NOTICE = 6
TRUSTED_WITHIN_S = 30.0
PAUSE_AFTER_ERROR_S = 0.1
RECEIVE_WAIT_US = 500_000
STDOUT = 1


@dataclass(frozen=True)
class Order:
    """The work of a process, its queue, and its clock."""

    name: str
    queue: str
    """The uuid of a queue that the catalogue does not know; or `namespace/name` of one that it does."""
    shards: int = 3
    generations_file: str = ""
    """The file of generations, in place of a catalogue; none: there is one, of this number of shards."""
    notice_s: int = NOTICE_US // SECOND
    """How long a reading of the generations is valid, and how long before a change it is announced."""
    lease_ttl_s: int = 5
    lease_touch_s: int = 1
    visibility_s: int = 5
    """Not beyond the lease: what is hidden longer stays hidden also when its owner is gone (attack D8)."""
    clock_off_ms: int = 0
    """By how much this process's wall clock is ahead of the machine's."""
    begins_out_of_bounds: bool = False
    """Do not wait at the start until the clock can be relied on."""

    plain: int = 0
    """produce: this number of callers put messages without a group, one after the other."""
    groups: int = 0
    """produce: and this number put messages of a group of their own."""
    scheduled: bool = False
    """produce: and one puts messages for later, and cancels every other of them."""
    scheduled_in_s: float = 4.0
    every_s: float = 0.1
    """produce: the pause of each caller between two messages."""

    lanes_max: int = 1000
    """consume: hold up to this number of lanes."""
    limit: int = 10
    """consume: receive up to this number at once."""
    work_s: float = 0.005
    """consume: work this long on each message."""
    nack_every: int = 0
    """consume: let every so manieth message fail the first time."""

    repair_every_s: float = 3.0
    """repair: begin a pass so often."""

    @property
    def is_catalogued(self) -> bool:
        """Whether the queue is in the catalogue; then all but the work is."""
        return "/" in self.queue

    def text(self) -> str:
        """As a command line carries it."""
        return json.dumps(asdict(self))


def settings_of(order: Order) -> TimelineSettings:
    """The queue that an order names."""
    return TimelineSettings(
        uuid.UUID(order.queue),
        "emails",
        shared_tables(),
        generations_of(order),
        visibility_us=order.visibility_s * SECOND,
        lease=LeaseTerms(order.lease_ttl_s, order.lease_touch_s * SECOND, skew_us=SECOND // 2),
        receipt_key=RECEIPT_KEY,
    )


def generations_of(order: Order) -> tuple[GenerationSettings, ...]:
    """All there are, or will be."""
    if not order.generations_file:
        return (GenerationSettings(1, order.shards),)
    return tuple(GenerationSettings(**each) for each in json.loads(Path(order.generations_file).read_text()))


@dataclass(frozen=True)
class ShiftedTime:
    """The machine's clocks, the wall's of which is off. Boot time is nobody's to set."""

    off_us: int

    def read_instant(self) -> Instant:
        """Both."""
        lanes = MachineTime().read_instant()
        return replace(lanes, wall_us=lanes.wall_us + self.off_us)


# ---- writing down


def boot_us() -> int:
    """The one clock that all processes of a machine share, whatever their wall clocks show."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def print_event(what: str, **facts: object) -> None:
    """Write one thing down."""
    print_all([(what, facts)])


def print_all(connection_variables: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Write several things of one time down: all or, where the process is killed now, none."""
    at = boot_us()
    lines = [
        json.dumps({"at": at, "what": what, **facts}, default=str) + "\n" for what, facts in connection_variables
    ]
    os.write(STDOUT, "".join(lines).encode())


class Sayings(logging.Handler):
    """The program's output for people is a record as well."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        print_event(
            "logged", logger=record.name, line=f"{record.getMessage()} {getattr(record, 'reason', '')}".strip()
        )


def print_error(error: HeadgateError, **facts: object) -> None:
    """Write down that a call failed, and the line with the reason."""
    print_event("error", kind=type(error).__name__, line=str(error), **facts)


# ---- the queue, as a process has it


async def prepare(environment: Mapping[str, str], *orders: Order) -> None:
    """Make the tables, and the lanes of the queues of these orders."""
    store = await CassandraStore.connect(read_settings({**environment, "KEYSPACE": KEYSPACE}), must_exist=False)
    try:
        tables = [table.named(f"timeline_{table.name}") for table in ALL]
        await ensure(CassandraSchema(store), Keyspace(KEYSPACE, ((store.data_center, 3),)), tables)
        async with Clock(CassandraTimes(store)) as clock:
            await clock.until_trusted(TRUSTED_WITHIN_S)
            for order in orders:
                settings = settings_of(order)
                await make_lanes(real_host(store, clock.require), settings, settings.generations[0])
    finally:
        await store.close()


@dataclass(frozen=True)
class Opened:
    """A queue, open in this process."""

    engine: TimelineQueue
    repair: Callable[[], Awaitable[Repaired]]
    now_us: Callable[[], int]
    """The time here, whether or not it may be relied on."""


@asynccontextmanager
async def opened(order: Order, environment: Mapping[str, str]) -> AsyncIterator[Opened]:
    """The queue of an order; at the end what waits is written and the lanes are given back."""
    opening = opened_by_name if order.is_catalogued else opened_by_itself
    async with opening(order, {**environment, "KEYSPACE": KEYSPACE}) as result:
        yield result


@asynccontextmanager
async def opened_by_name(order: Order, environment: Mapping[str, str]) -> AsyncIterator[Opened]:
    """As an application has it, by the SDK."""
    async with headgate.connect(environment) as connection:
        queue = await connection.queue(order.queue)
        yield Opened(queue.engine, queue.repair, connection.now_us)


@asynccontextmanager
async def opened_by_itself(order: Order, environment: Mapping[str, str]) -> AsyncIterator[Opened]:
    """Without a catalogue, so that clock and generations are those of the order."""
    store = await CassandraStore.connect(read_settings(environment))
    try:
        async with Clock(CassandraTimes(store), source=ShiftedTime(order.clock_off_ms * 1000)) as clock:
            if not order.begins_out_of_bounds:
                await clock.until_trusted(TRUSTED_WITHIN_S)
            settings, read_us = read_generations(order, clock)
            engine = TimelineQueue(
                real_host(store, clock.require), settings, read_us=read_us, lanes_max=order.lanes_max
            )
            fresh = asyncio.get_running_loop().create_task(keep_fresh(engine, order, clock))
            try:
                yield Opened(engine, engine.repair, clock.now_us)
            finally:
                fresh.cancel()
                await engine.close()
    finally:
        await store.close()


def read_generations(order: Order, clock: Clock) -> tuple[TimelineSettings, int]:
    """The settings of the queue, and when they were read: so early that they expire within the notice."""
    read_us = clock.now_us()
    return settings_of(order), read_us - (NOTICE_US - order.notice_s * SECOND)


async def keep_fresh(engine: TimelineQueue, order: Order, clock: Clock) -> None:
    """Replaces the reads of a catalogue."""
    while True:
        await asyncio.sleep(order.notice_s / READS_IN_A_NOTICE)
        settings, read_us = read_generations(order, clock)
        engine.settings_changed(settings, read_us=read_us)


# ---- producing


class Producing:
    """Callers of put, each of which hears the end of one message before it puts the next."""

    def __init__(self, engine: TimelineQueue, order: Order, ended: asyncio.Event) -> None:
        self._engine = engine
        self._order = order
        self._ended = ended

    async def run(self) -> None:
        """Until it is asked to end."""
        order = self._order
        callers: list[Coroutine[Any, Any, None]] = []
        callers += [self._put_plain(f"{order.name}/plain-{number}") for number in range(order.plain)]
        callers += [self._put_in_order(f"{order.name}/group-{number}") for number in range(order.groups)]
        callers += [self._schedule(f"{order.name}/scheduled") for _ in range(order.scheduled)]
        await asyncio.gather(*callers)

    async def _put_plain(self, caller: str) -> None:
        await self._each(lambda number: self._put(caller, NewMessage(f"{caller}/{number}".encode())))

    async def _put_in_order(self, caller: str) -> None:
        await self._each(lambda number: self._put(caller, NewMessage(f"{caller}/{number}".encode(), group=caller)))

    async def _schedule(self, caller: str) -> None:
        async def put(number: int) -> None:
            due_us = self._engine.host.now_us() + round(self._order.scheduled_in_s * SECOND)
            message_id = await self._put(caller, NewMessage(f"{caller}/{number}".encode(), due_us=due_us))
            if message_id is not None and number % 2:
                await self._cancel(message_id)

        await self._each(put)

    async def _each(self, act: Callable[[int], Coroutine[Any, Any, Any]]) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                await act(number)
            except HeadgateError as error:
                print_error(error, of="produce")
                await pause(self._ended, PAUSE_AFTER_ERROR_S)
            number += 1
            await pause(self._ended, self._order.every_s)

    async def _put(self, caller: str, message: NewMessage) -> str | None:
        payload = message.payload.decode()
        print_event("putting", caller=caller, payload=payload, group=message.group, due_us=message.due_us)
        try:
            (message_id,) = await self._engine.put([message])
        except HeadgateError as error:
            print_error(error, of="put", payload=payload)
            await pause(self._ended, PAUSE_AFTER_ERROR_S)
            return None
        print_event("put", payload=payload, id=message_id)
        return message_id

    async def _cancel(self, message_id: str) -> None:
        print_event("cancelling", id=message_id)
        answer = await self._engine.cancel(message_id)
        print_event("cancelled" if answer is Cancelled.CANCELLED else "too late", id=message_id)


async def pause(ended: asyncio.Event, seconds: float) -> None:
    """This long, or until the end."""
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return


# ---- consuming


class Consuming:
    """One caller of receive, that works on what it has and then settles it."""

    def __init__(self, engine: TimelineQueue, order: Order, ended: asyncio.Event) -> None:
        self._engine = engine
        self._order = order
        self._ended = ended
        self._epochs: dict[LaneName, int] = {}
        self._reported_end: set[tuple[LaneName, int]] = set()
        self._holds = False
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._hold)
        report_engine = engine._changed.set

        def changed() -> None:
            self._print_lanes()
            report_engine()

        engine._changed.set = changed  # type: ignore[method-assign]

    async def run(self) -> None:
        """Until it is asked to end."""
        visibility_us = self._order.visibility_s * SECOND
        while not self._ended.is_set():
            try:
                result = await self._engine.receive(self._order.limit, wait_us=RECEIVE_WAIT_US)
                if result:
                    clock_us = self._engine.host.now_us()
                    print_all([("given", self._given(each, clock_us, visibility_us)) for each in result])
                    if self._holds:
                        print_event("holding", ids=[each.message_id for each in result])
                        await self._ended.wait()
                    await asyncio.sleep(self._order.work_s * len(result))
                    await self._settle(result)
            except HeadgateError as error:
                print_error(error, of="consume")
                await pause(self._ended, PAUSE_AFTER_ERROR_S)

    def _hold(self) -> None:
        self._holds = True

    def _given(self, delivery: Delivery, clock_us: int, visibility_us: int) -> dict[str, object]:
        settings = self._engine.settings
        receipt = read_receipt(delivery.receipt, queue=settings.queue, secret=settings.receipt_key)
        facts = asdict(delivery)
        facts.update(id=facts.pop("message_id"), payload=delivery.payload.decode(), clock_us=clock_us)
        return {**facts, "visibility_us": visibility_us, "lane": list(receipt.lane)}

    async def _settle(self, result: Sequence[Delivery]) -> None:
        settles = [self._settle_of(each) for each in result]
        asked = [
            {
                "id": each.message_id,
                "receipt": each.receipt,
                "how": _verb(settle),
            }
            for each, settle in zip(result, settles, strict=True)
        ]
        print_all([("asked", facts) for facts in asked])
        answers = await self._engine.settle(settles)
        print_all(
            [("settled", {**facts, "answer": answer.value}) for facts, answer in zip(asked, answers, strict=True)]
        )

    def _settle_of(self, delivery: Delivery) -> Settle:
        number = int(delivery.payload.rpartition(b"/")[2])
        fails = self._order.nack_every and delivery.attempt == 1 and number % self._order.nack_every == 0
        return NackDelivery(delivery.receipt, reason="the first time it fails") if fails else Ack(delivery.receipt)

    def _print_lanes(self) -> None:
        """Changes of this process's lanes since the last record, and why lanes ended."""
        for lane, dispatcher in self._engine.lanes.held.items():
            epoch = dispatcher.lease_term.epoch
            if self._epochs.get(lane) != epoch:
                self._epochs[lane] = epoch
                print_event("taken", lane=list(lane), epoch=epoch)
            if dispatcher.ended is not None and (lane, epoch) not in self._reported_end:
                self._reported_end.add((lane, epoch))
                print_event(
                    "let go", lane=list(lane), epoch=epoch, why=dispatcher.ended, failure=repr(dispatcher.failure)
                )


# ---- repairing


async def repair(opened: Opened, order: Order, ended: asyncio.Event) -> None:
    """Passes, one after the other, as a schedule would begin them."""
    while not ended.is_set():
        try:
            print_event("repaired", **asdict(await opened.repair()))
        except HeadgateError as error:
            print_error(error, of="repair")
        await pause(ended, order.repair_every_s)


async def main(role: str, order: Order) -> int:
    """Work until SIGTERM comes; 1 with one line where the work cannot even begin."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        async with opened(order, os.environ) as queue:
            print_event("ready", boot_us=boot_us(), now_us=queue.now_us())
            if role == "produce":
                await Producing(queue.engine, order, ended).run()
            elif role == "consume":
                await Consuming(queue.engine, order, ended).run()
            else:
                await repair(queue, order, ended)
    except HeadgateError as error:
        print_error(error, of="start")
        return 1
    print_event("ended")
    return 0


def _verb(settle: Settle) -> str:
    """`ack`, `nack` or `extend`."""
    return type(settle).__name__.removesuffix("Delivery").lower()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, handlers=[Sayings()])
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    sys.exit(asyncio.run(main(sys.argv[1], Order(**json.loads(sys.argv[2])))))

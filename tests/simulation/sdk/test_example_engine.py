"""The seam of the engines: an engine of one file, which joins by one line in the registry, passes the basic cases of
the conformance suite and runs under `headgate apply`, the SDK, a worker and the commands.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from headgate.cli import queues as cli_queues
from headgate.cli.main import main
from headgate.client.connection import Headgate
from headgate.client.queue import Queue
from headgate.command_line import connection as cli_connection
from headgate.engines.context import Host
from headgate.engines.contract import Capability, Engine, NewMessage, NotSupported, Stats
from headgate.engines.registry import ENGINE_MODULES, stored_record
from headgate.runtime.handler.handlers import understand
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.runtime.worker.worker_queue import WorkerQueue
from headgate.store.model.table import Table
from headgate.telemetry.metrics import Registry
from tests.contract.engines import test_purge, test_put, test_reading, test_receive, test_settle
from tests.contract.engines.kinds import Opened
from tests.contract.engines.terms import Terms
from tests.contract.engines.worlds import CaseWorld, SimulatedWorld
from tests.kit.example_engine import MESSAGES, ExampleQueue, ExampleSettings
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text

CASES: tuple[Callable[[CaseWorld], Coroutine[Any, Any, None]], ...] = (
    test_put.test_many_put_in_one_call_have_ids_of_their_own_in_order_and_all_come,
    test_put.test_no_messages_are_no_ids,
    test_put.test_an_empty_message_is_a_message,
    test_put.test_put_by_one_process_is_received_by_another,
    test_receive.test_a_queue_that_holds_nothing_gives_nothing_when_the_wait_is_over,
    test_receive.test_no_more_come_than_were_asked_for,
    test_receive.test_what_is_not_settled_comes_again_when_its_visibility_is_over,
    test_receive.test_a_visibility_of_its_own_counts_instead_of_that_of_the_queue,
    test_receive.test_one_message_is_given_to_one_of_many_receivers,
    test_settle.test_what_is_acknowledged_does_not_come_again,
    test_settle.test_a_failed_message_comes_again_at_once_and_reports_its_attempt,
    test_settle.test_what_was_given_back_without_charge_is_at_its_first_attempt_still,
    test_settle.test_an_extension_keeps_it_hidden_and_its_receipt_good,
    test_settle.test_a_receipt_is_stale_when_its_visibility_is_over,
    test_settle.test_a_receipt_is_stale_once_the_message_was_delivered_again,
    test_settle.test_twice_the_same_is_honoured_once,
    test_reading.test_peek_shows_how_what_was_received_stands,
    test_purge.test_what_was_there_is_gone_and_what_is_put_after_comes,
)


class ExampleKind:
    """The example on the grounds of the conformance suite."""

    def tables(self) -> list[Table]:
        """One."""
        return [MESSAGES]

    async def make(self, host: Host, queue: UUID, terms: Terms) -> None:
        """Nothing has to exist."""

    def open(self, host: Host, queue: UUID, terms: Terms, dead_letters: UUID | None) -> Opened:
        """One process's part of it."""
        engine = ExampleQueue(host, ExampleSettings(queue, "cases", visibility_us=terms.visibility_us))
        return Opened(engine, engine.close, lambda: None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_example_passes_the_basic_cases(case: Callable[[CaseWorld], Coroutine[Any, Any, None]]) -> None:
    world = SimulatedWorld(ExampleKind(), zlib.crc32(case.__name__.encode()))
    with world.simulation:
        world.simulation.run(world.run_case(case(world)))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A world in which the API's engine extent is the example."""
    monkeypatch.setitem(ENGINE_MODULES, "extent", "tests.kit.example_engine")
    with World(1) as world:
        shop = Shop(world, Cluster(world))
        world.run(shop.apply(queue_text("{engine: extent}")))
        yield shop


def opened(shop: Shop) -> Program:
    """A process with a connection."""
    program = shop.program("program")
    shop.world.run(in_process(program, program.connection.open()))
    return program


async def in_process(program: Program, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of the work in the process."""
    return await program.process.start(work)


def test_the_sdk_runs_on_it(shop: Shop) -> None:
    async def use(connection: Headgate) -> Stats:
        queue = await connection.queue("shop/emails")
        engine: Engine = queue.engine
        assert isinstance(engine, ExampleQueue)
        await queue.put_many([{"n": number} for number in range(3)])
        first, second = await queue.receive(2)
        assert [{"n": 0}, {"n": 1}] == [json.loads(each.payload) for each in (first, second)]
        await first.ack()
        await second.nack()
        await connection.refresh()
        return await queue.read_stats()

    program = opened(shop)
    stats = shop.world.run(in_process(program, use(program.connection)))
    assert (2, 0) == (stats.backlog, stats.in_flight)


CALLS: dict[Capability, Callable[[Queue, str], Awaitable[object]]] = {
    Capability.GROUPS: lambda queue, _: queue.put(b"x", group="g"),
    Capability.DELAYS: lambda queue, _: queue.put(b"x", delay=5),
    Capability.ONCE: lambda queue, _: queue.put(b"x", once="o"),
    Capability.CANCEL: lambda queue, id_: queue.cancel(id_),
    Capability.OUTBOX: lambda queue, _: stamped(queue),
}


async def stamped(queue: Queue) -> object:
    """A message for a batch, without the batch."""
    return queue.engine.stamp_put(NewMessage(b"x"), within_us=1_000_000)


@pytest.mark.parametrize("engine", ["extent", "timeline"])
def test_a_call_is_refused_exactly_where_its_capability_is_missing(shop: Shop, engine: str) -> None:
    name = f"{engine}-queue"

    async def refused(connection: Headgate) -> set[Capability]:
        queue = await connection.queue(f"shop/{name}")
        id_ = await queue.put(b"x")
        without = set()
        for capability, call in CALLS.items():
            try:
                await call(queue, id_)
            except NotSupported as error:
                assert f"queue=shop/{name}" in str(error)
                without.add(capability)
        return without

    shop.world.run(shop.apply(queue_text(f"{{engine: {engine}}}", name)))
    program = opened(shop)
    record = stored_record(engine)
    assert record is not None
    assert CALLS.keys() - record.capabilities == shop.world.run(in_process(program, refused(program.connection)))


@pytest.mark.parametrize(("engine", "generations"), [("extent", 1), ("timeline", 2)])
def test_other_shards_make_a_generation_where_the_engine_has_them(shop: Shop, engine: str, generations: int) -> None:
    async def numbers() -> int:
        await shop.apply(queue_text(f"{{engine: {engine}, shards: 2}}", "sharded"))
        (changed,) = await shop.apply(queue_text(f"{{engine: {engine}, shards: 3}}", "sharded"))
        assert changed.entry is not None
        return len(list(changed.entry.generations.windows()))

    assert generations == shop.world.run(numbers())


def test_a_worker_runs_on_it(shop: Shop) -> None:
    handled: list[bytes] = []

    async def handler(payload: bytes) -> None:
        handled.append(payload)
        if len(handled) == 1:
            raise ValueError("the first try fails")

    async def use(connection: Headgate) -> Stats:
        queue = await connection.queue("shop/emails")
        await queue.put_many([b"a", b"b"])
        port = WorkerQueue(connection, queue)
        performer = PythonPerformer(understand(handler, "tests:handler"), threads=1, rng=Random(1))
        metrics = WorkerMetrics(Registry(), port.name)
        worker = Worker(port, performer, WorkerTerms(), metrics, rng=Random(1), now_us=connection.now_us)
        running = asyncio.get_running_loop().create_task(worker.run())
        await asyncio.sleep(120)
        assert ([], 1, None) == (list(port.leases()), port.sharers, port.max_receives)
        worker.end()
        await running
        return await queue.read_stats()

    program = opened(shop)
    stats = shop.world.run(in_process(program, use(program.connection)))
    assert (0, 0) == (stats.backlog, stats.in_flight)
    assert [b"a", b"a", b"b"] == sorted(handled)


def test_the_commands_run_on_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    program = opened(shop)

    def run_connected(work: Callable[[Headgate], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work(program.connection)

        return shop.world.run(in_process(program, run()))

    monkeypatch.setattr(cli_connection, "run_connected", run_connected)
    monkeypatch.setattr(cli_queues, "run_connected", run_connected)

    def command(*arguments: str) -> Any:
        result = CliRunner().invoke(main, [*arguments, "-o", "json"])
        assert 0 == result.exit_code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()] if result.stdout else []

    assert 1 == len(command("put", "shop/emails", "hello"))
    assert "hello" in json.dumps(command("peek", "shop/emails"))
    (stats,) = command("stats", "shop/emails")
    assert 1 == stats["backlog"]
    (received,) = command("receive", "shop/emails", "--ack")
    assert "hello" == received["payload"]
    assert [] == command("peek", "shop/emails")[0]

"""The SDK on a real Cassandra, from `headgate apply` to a settled message: with async, without, and its errors."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

import headgate
from dev.servers.cassandra.connection import read_connection
from dev.servers.cassandra.serving import Serving
from headgate import HeadgateError, Put, RescheduleOutcome, Settled, settle
from headgate.client.catalogue.queue_record import QueueDeleted, QueueNotFound
from headgate.engines.contract import MessageState, PassEnd
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import EntryState
from tests.kit.page_examples import Example, examples_of
from tests.system.sdk.test_add_to_batch import session_at

KEYSPACE = f"sdk_{uuid.uuid4().hex[:12]}"
QUEUES = f"""
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: emails, namespace: shop}}
spec: {{shards: 3, maxClockSkew: 100ms, timeline: {{safetyLag: 200ms}}}}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: orders, namespace: shop}}
spec:
  shards: 2
  maxReceives: 2
  maxClockSkew: 100ms
  deadLetter: orders-dead
  timeline: {{safetyLag: 200ms}}
  storage: {{tables: shared}}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: orders-dead, namespace: shop}}
spec: {{shards: 1, maxClockSkew: 100ms, timeline: {{safetyLag: 200ms}}, storage: {{keyspace: {KEYSPACE}_dead}}}}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: doomed, namespace: shop}}
spec: {{shards: 1, maxClockSkew: 100ms, timeline: {{safetyLag: 200ms}}, storage: {{tables: shared}}}}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: later, namespace: shop}}
spec: {{shards: 2, maxClockSkew: 100ms, timeline: {{safetyLag: 200ms}}, storage: {{tables: shared}}}}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: invoices, namespace: billing}}
spec: {{engine: bucket}}
"""


class Mail(BaseModel):
    """The payload that an application puts."""

    to: str
    copies: int = 1


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a person whose queues were applied; gone afterwards, since tables count against a bound."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}
    apply(environment, QUEUES, tmp_path_factory.mktemp("sdk") / "queues.yaml")
    yield environment
    for keyspace in (KEYSPACE, f"{KEYSPACE}_dead"):
        cassandra.cql(f"DROP KEYSPACE IF EXISTS {keyspace}")


def apply(environment: dict[str, str], queues: str, file: Path) -> None:
    """`headgate apply` of new queues."""
    file.write_text(queues)
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (0, queues.count("kind: Queue")) == (done.returncode, done.stdout.count(" created ")), done.stderr


def connected(
    connection_variables: dict[str, str], work: Callable[[headgate.Headgate], Coroutine[Any, Any, None]]
) -> None:
    """Do something on a connection."""

    async def run() -> None:
        async with headgate.connect(connection_variables) as connection:
            await work(connection)

    asyncio.run(run())


async def drain(queue: headgate.Queue, count: int) -> list[headgate.Message]:
    """Receive this number and settle them."""
    matches: list[headgate.Message] = []
    while len(matches) < count:
        given = await queue.receive(100)
        assert given, f"{len(matches)} of {count}, and no more"
        assert {Settled.DONE} == set(await queue.ack(given))
        matches += given
    return matches


# ---- put, receive, settle


def test_what_is_put_is_received_in_its_form_and_settled(connection_variables: dict[str, str]) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/emails")
        puts = [
            b"\x00bytes",
            "text",
            {"a": [1, None]},
            Mail(to="you"),
            Put("with", attributes={"n": "1", "b": b"2"}),
        ]
        ids = await queue.put_many(puts)
        ids.append(await queue.put("single"))
        entries = {each.id: each for each in await drain(queue, 6)}
        in_order = [entries[each] for each in ids]
        assert b"\x00bytes" == in_order[0].payload
        assert (None, "application/json") == (in_order[0].content_type, in_order[2].content_type)
        assert ("text", {"a": [1, None]}) == (in_order[1].text(), in_order[2].json())
        assert Mail(to="you", copies=1) == in_order[3].read(Mail)
        assert ("1", b"2") == (in_order[4].attributes["n"], in_order[4].attributes["b"])
        assert (1, "single") == (in_order[5].attempt, in_order[5].text())
        assert [] == await queue.receive(wait=0.5)

    connected(connection_variables, work)


def test_a_loop_over_a_queue_acknowledges_what_its_body_ends_and_gives_back_what_it_breaks(
    connection_variables: dict[str, str],
) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/orders")
        await queue.put_many([{"number": number} for number in range(3)])
        observations: list[tuple[int, int]] = []
        async for message in queue:
            try:
                async with message:
                    number = message.json()["number"]
                    observations.append((number, message.attempt))
                    if number == 1:
                        raise RuntimeError("one is not to be had")
            except RuntimeError:
                continue
            if len(observations) >= 4:
                break
        assert [(0, 1), (1, 1), (1, 2), (2, 1)] == sorted(observations)
        dead = await (await connection.queue("shop/orders-dead")).receive(wait=15)
        assert [1] == [each.json()["number"] for each in dead]
        assert "one is not to be had" in str(dead[0].attributes["headgate.dead.reason"])
        await dead[0].ack()

    connected(connection_variables, work)


# ---- later, off, elsewhere


def test_a_message_comes_at_its_time_and_what_was_called_off_or_moved_does_not_come_then(
    connection_variables: dict[str, str],
) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/emails")
        at = datetime.now(UTC) + timedelta(seconds=4)
        kept = await queue.put("kept", deliver_at=at)
        dropped = await queue.put("dropped", delay=timedelta(seconds=4))
        moved = await queue.put("moved", delay=60)
        assert await queue.cancel(dropped)
        again = await queue.reschedule(moved, delay=3)
        assert (RescheduleOutcome.MOVED, True) == (again.outcome, again.moved)
        assert [] == await queue.receive(wait=1)
        result = await drain(queue, 2)
        assert {kept: "kept", again.id: "moved"} == {each.id: each.text() for each in result}
        assert datetime.now(UTC) >= at
        assert [] == await queue.receive(wait=2)

    connected(connection_variables, work)


def test_once_and_groups_and_the_time_of_a_purge(connection_variables: dict[str, str]) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/emails")
        key = uuid.uuid4().hex
        assert 1 == len({await queue.put("order", once=key) for _ in range(3)})
        await queue.put_many([Put(str(number), group="g") for number in range(5)])
        result = await drain(queue, 6)
        assert ["0", "1", "2", "3", "4"] == [each.text() for each in result if each.group == "g"]
        await queue.put("to be purged", delay=30)
        assert await queue.purge() <= datetime.now(UTC)

    connected(connection_variables, work)


def test_settling_again_or_too_late_is_reported(connection_variables: dict[str, str]) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/emails")
        await queue.put("x")
        (message,) = await queue.receive(1)
        await message.extend(60)
        assert timedelta(seconds=50) < message.visible_until - datetime.now(UTC)
        await message.ack()
        assert [Settled.STALE] == await queue.settle([settle.Ack(message.receipt)])
        with pytest.raises(headgate.InvalidRequest, match="Not a receipt"):
            await queue.settle([settle.Ack("nonsense")])
        await queue.put("y")
        (message,) = await queue.receive(1, visibility=1)
        again = await queue.receive(1, wait=10)
        assert [2] == [each.attempt for each in again]
        with pytest.raises(headgate.StaleReceipt):
            await message.ack()
        await again[0].ack()

    connected(connection_variables, work)


def test_what_is_in_a_queue_can_be_checked_counted_and_found(connection_variables: dict[str, str]) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/later")
        soon = await queue.put("soon")
        later = await queue.put({"n": 1}, delay=3600)
        assert [soon, later] == [each.id for each in await queue.peek()]
        assert [later] == [each.id for each in await queue.peek(since=datetime.now(UTC) + timedelta(minutes=1))]
        (message,) = await queue.receive(1)
        await asyncio.sleep(2)  # a put is counted within a second
        stats = await queue.stats()
        assert (0, 1, 1, 2) == (stats.backlog, stats.in_flight, stats.delayed, len(stats.lanes))
        await message.ack()
        assert [MessageState.SETTLED, MessageState.WAITING] == [
            (await queue.where(each)).state for each in (soon, later)
        ]
        assert PassEnd.DONE is (await queue.repair(within=20)).outcome

    connected(connection_variables, work)


# ---- without async


def test_without_async_many_threads_put_and_one_receives(connection_variables: dict[str, str]) -> None:
    with headgate.connect_sync(connection_variables) as connection:
        queue = connection.queue("shop/emails")
        ids: list[str] = []
        threads = [
            threading.Thread(target=lambda: ids.extend(queue.put({"n": number}) for number in range(20)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        matches: list[str] = []
        for message in queue:
            with message:
                matches.append(message.id)
            if len(matches) == len(ids):
                break
        assert (160, sorted(ids)) == (len(set(ids)), sorted(matches))
        assert "shop/emails" in connection.queues("shop")


def run(connection_variables: dict[str, str], program: str) -> subprocess.CompletedProcess[str]:
    """A program of a user's, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **connection_variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_program_that_ends_without_closing_gives_its_lanes_back(connection_variables: dict[str, str]) -> None:
    done = run(
        connection_variables,
        """
        import headgate
        q = headgate.connect_sync().open().queue("shop/emails")
        q.put("left behind")
        print(q.receive(1, visibility=5)[0].text())
        """,
    )
    assert (0, "left behind", "") == (done.returncode, done.stdout.strip(), done.stderr)

    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/emails")
        (result,) = await queue.receive(1, wait=20)
        assert ("left behind", 2, False) == (result.text(), result.attempt, result.suspect)
        await result.ack()

    connected(connection_variables, work)


def test_a_child_of_a_fork_is_asked_to_connect_itself(connection_variables: dict[str, str]) -> None:
    done = run(
        connection_variables,
        """
        import os, headgate
        with headgate.connect_sync() as p:
            q = p.queue("shop/emails")
            child = os.fork()
            if child == 0:
                try:
                    q.put("from the child")
                except headgate.OperationRefused as error:
                    print(error, flush=True)
                    with headgate.connect_sync() as own:
                        own.queue("shop/doomed")
                        print("connected again", flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """,
    )
    lines = done.stdout.splitlines()
    assert (0, "", 2) == (done.returncode, done.stderr, len(lines))
    assert lines[0].startswith("A connection does not survive a fork: open one in the child (opened_in=")
    assert "connected again" == lines[1]


# ---- its errors


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop/email", "There is no such queue (queue=shop/email); did you mean shop/emails?"),
        ("stop/emails", "There is no such queue (queue=stop/emails); did you mean shop/emails?"),
        ("emails", "There is no such queue (queue=default/emails); did you mean shop/emails?"),
        ("a/b/c", "A queue is named NAMESPACE/NAME (given=a/b/c); write shop/emails"),
        (
            "billing/invoices",
            "This release has no such engine (queue=billing/invoices, engine=bucket, supported=timeline)",
        ),
    ],
)
def test_a_queue_that_cannot_be_had_is_one_line(
    connection_variables: dict[str, str], name: str, message: str
) -> None:
    async def work(connection: headgate.Headgate) -> None:
        with pytest.raises(HeadgateError) as caught:
            await connection.queue(name)
        assert message == str(caught.value)

    connected(connection_variables, work)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"CONTACT_POINTS": "127.0.0.1:1"}, "No server listens at the contact points"),
        ({"KEYSPACE": "nothing_here"}, "The keyspace does not exist, or the role may not read it"),
        (
            {"KEYSPACE": f"{KEYSPACE}_dead"},
            "The table in Cassandra differs from its expected schema (table=catalogue_entries, ",
        ),
        ({"CONTACT_POINTS": ""}, "HEADGATE_CONTACT_POINTS is not set"),
        ({"DATA_CENTER": "mars"}, "No node is in the data center of this connection"),
    ],
)
def test_bad_surroundings_are_one_line(
    connection_variables: dict[str, str], change: dict[str, str], message: str
) -> None:
    async def work(connection: headgate.Headgate) -> None:
        await connection.queue("shop/emails")

    with pytest.raises(HeadgateError) as caught:
        connected({**connection_variables, **change}, work)
    assert str(caught.value).startswith(message)
    assert 1 == len(str(caught.value).splitlines())


def test_a_queue_that_is_deleted_while_in_use_reports_it_and_its_successor_is_another(
    connection_variables: dict[str, str],
) -> None:
    async def work(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/doomed")
        await queue.put("one")
        assert "shop/doomed" in await connection.queues()
        catalogue = Catalogue(
            connection.process_context.store_in(KEYSPACE), now_us=connection.now_us, owner="cli/headgate"
        )
        entry = await catalogue.set_state(queue.entry, EntryState.DELETING)
        assert "shop/doomed" not in await connection.queues()
        await connection.refresh()
        with pytest.raises(QueueDeleted, match="The queue is being deleted"):
            await queue.put("two")
        with pytest.raises(QueueDeleted):
            await queue.receive(1)
        await catalogue.set_state(entry, EntryState.GONE)
        with pytest.raises(QueueNotFound):
            await connection.queue("shop/doomed")

    connected(connection_variables, work)


def test_after_its_end_a_connection_reports_that_it_is_closed(connection_variables: dict[str, str]) -> None:
    async def work() -> None:
        connection = headgate.connect(connection_variables)
        with pytest.raises(headgate.OperationRefused, match="was not opened"):
            await connection.queue("shop/emails")
        async with connection:
            queue = await connection.queue("shop/emails")
        for used in (queue.put("x"), queue.receive(1), connection.queue("shop/emails")):
            with pytest.raises(headgate.OperationRefused, match="The connection was closed"):
                await used

    asyncio.run(work())


# ---- what the pages and the examples show

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "python"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_how_to_runs_as_it_is_printed(connection_variables: dict[str, str], number: int) -> None:
    done = run(connection_variables, PROGRAMS[number])
    assert (0, "") == (done.returncode, done.stderr), done.stdout


# ---- recipes

RECIPES = examples_of("recipes.md")
RECIPE_PROGRAMS = [each for each in RECIPES if each.language == "python" and not each.words]
"""A second word of the fence, `compiled`, marks programs that need what is not here: a web framework, a worker."""
QUICK = {"shards": 2, "maxClockSkew": "100ms", "timeline": {"safetyLag": "200ms"}}


@pytest.fixture(scope="module")
def shop(cassandra: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of the recipes: the page's queues, its tables, and the module `database` that it speaks of."""
    folder = tmp_path_factory.mktemp("recipes")
    keyspace = f"{KEYSPACE}_recipes"
    environment = {**cassandra.environment(), "KEYSPACE": keyspace}
    resources, tables = (next(each for each in RECIPES if each.language == form) for form in ("yaml", "cql"))
    queues = [{**queue, "spec": {**queue["spec"], **QUICK}} for queue in yaml.safe_load_all(resources.text)]
    apply(environment, yaml.safe_dump_all(queues), folder / "queues.yaml")
    with session_at(environment, read_connection(environment).contact_points[0]) as session:
        for statement in filter(str.strip, tables.text.split(";")):
            session.execute(statement)
    (folder / "database.py").write_text("from tests.system.sdk.recipes_database import session as session\n")
    yield {**environment, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {keyspace}")


@pytest.mark.parametrize("program", RECIPE_PROGRAMS, ids=str)
def test_a_recipe_runs_as_it_is_printed(shop: dict[str, str], program: Example) -> None:
    done = run(shop, program.text)
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    assert done.stdout.strip()


# ---- examples


async def emptied(connection_variables: dict[str, str], name: str) -> None:
    """Other tests leave messages there that are no JSON."""
    async with headgate.connect(connection_variables) as p:
        await (await p.queue(name)).purge()


@pytest.mark.parametrize("name", ["hello.py", "hello_sync.py"])
def test_an_example_receives_what_it_has_put(connection_variables: dict[str, str], name: str) -> None:
    asyncio.run(emptied(connection_variables, "shop/emails"))
    done = run(connection_variables, (EXAMPLES / name).read_text())
    first, *received, last = [line.split()[:2] for line in done.stdout.splitlines()]
    put = first[1]
    assert (0, "", [["received", put]], ["settled", put]) == (done.returncode, done.stderr, received, last)


@pytest.mark.parametrize("name", ["hello.py", "hello_sync.py"])
def test_an_example_ends_where_a_worker_of_the_queue_is_first(
    connection_variables: dict[str, str], name: str
) -> None:
    async def first_of_all() -> subprocess.CompletedProcess[str]:
        async with headgate.connect(connection_variables) as p:
            queue = await p.queue("shop/emails")
            await queue.receive(10, wait=20)  # holds every lane from now on
            running = asyncio.create_task(asyncio.to_thread(run, connection_variables, (EXAMPLES / name).read_text()))
            while not running.done():
                await queue.ack(await queue.receive(10, wait=1))
            return running.result()

    asyncio.run(emptied(connection_variables, "shop/emails"))
    done = asyncio.run(first_of_all())
    lines = [line.split()[:2] for line in done.stdout.splitlines()]
    assert (0, "", ["settled", lines[0][1]]) == (done.returncode, done.stderr, lines[-1])

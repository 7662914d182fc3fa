"""The roles that docs/security.md grants, on a real server: the operator's may do all that people and the operator do
with queues and counters, in its keyspace that is there, and the workers' all but create tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from dev.servers.cassandra.serving import Serving
from tests.kit.page_examples import examples_of
from tests.system.sdk.commands import Commands

PASSWORD = "change-me"
RESOURCES = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {name: emails, namespace: shop}
spec: {shards: 1, maxClockSkew: 100ms, timeline: {safetyLag: 200ms}}
---
apiVersion: headgate.io/v1beta1
kind: Counter
metadata: {name: views, namespace: shop}
spec: {type: sum}
"""


def make_role(cassandra: Serving, name: str) -> dict[str, str]:
    """A role and its keyspace as the page has them, but for the name; the environment of a process with this role."""
    environment = cassandra.environment()
    for example in examples_of("security.md"):
        if example.language == "cql":
            text = example.text.replace("headgate", name).replace("'dc1'", f"'{environment['DATA_CENTER']}'")
            for statement in filter(str.strip, text.split(";")):
                cassandra.cql(statement)
    return {**environment, "KEYSPACE": name, "USERNAME": name, "PASSWORD": PASSWORD}


@pytest.fixture
def granted(cassandra: Serving) -> Iterator[Commands]:
    """Somebody with this role and no other; the page's names are the test's own."""
    name = f"page_{uuid.uuid4().hex[:8]}"
    yield Commands(make_role(cassandra, name))
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {name}")


@pytest.fixture
def as_worker(granted: Commands) -> Commands:
    """The role of pods in the same keyspace."""
    variables = granted.connection_variables
    return Commands({**variables, "USERNAME": f"{variables['USERNAME']}_worker", "PASSWORD": f"{PASSWORD}-too"})


def apply_shop(granted: Commands, folder: Path) -> None:
    file = folder / "shop.yaml"
    file.write_text(RESOURCES)
    applied = granted("apply", str(file))
    assert (0, []) == (applied.code, applied.err)


def work_in_shop(granted: Commands) -> None:
    """Messages, counts and passes."""

    async def work(connection: headgate.Headgate) -> tuple[str, int]:
        emails, views = await connection.queue("shop/emails"), await connection.counter("shop/views")
        await emails.put("hello")
        await views.add("home", 3)
        [message] = await emails.receive(1, wait=20)
        async with message:
            printed = message.text()
        return printed, await views.value("home")

    assert ("hello", 3) == granted.connected(work)
    for command in (("repair", "shop/emails"), ("gc", "shop/views")):
        done = granted(*command)
        assert (0, []) == (done.code, done.err), command


def test_the_role_of_the_page_is_enough_for_queues_counters_repair_and_collection(
    granted: Commands, tmp_path: Path
) -> None:
    apply_shop(granted, tmp_path)
    work_in_shop(granted)


def test_the_role_of_workers_is_enough_for_all_but_tables(
    granted: Commands, as_worker: Commands, tmp_path: Path
) -> None:
    apply_shop(granted, tmp_path)
    hostile = tmp_path / "hostile.yaml"
    hostile.write_text(RESOURCES.replace("emails", "evil").split("---")[0])
    assert 0 != as_worker("apply", str(hostile)).code
    work_in_shop(as_worker)

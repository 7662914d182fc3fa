"""The role that docs/security.md grants, on a real server: it may do all that people and the operator's Jobs do with
queues and counters, in its keyspace that is there.
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
    (grants,) = (example for example in examples_of("security.md") if example.language == "cql")
    text = grants.text.replace("headgate", name).replace("'dc1'", f"'{environment['DATA_CENTER']}'")
    for statement in text.split(";"):
        if statement.strip():
            cassandra.cql(statement)
    return {**environment, "KEYSPACE": name, "USERNAME": name, "PASSWORD": PASSWORD}


@pytest.fixture
def granted(cassandra: Serving) -> Iterator[Commands]:
    """Somebody with this role and no other; the page's names are the test's own."""
    name = f"page_{uuid.uuid4().hex[:8]}"
    yield Commands(make_role(cassandra, name))
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {name}")


def test_the_role_of_the_page_is_enough_for_queues_counters_repair_and_collection(
    granted: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(RESOURCES)
    applied = granted("apply", str(file))
    assert (0, []) == (applied.code, applied.err)

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

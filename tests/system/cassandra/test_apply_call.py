"""`headgate.apply` on a real Cassandra: a dry run, a first call, a second one, a refusal; on a session too."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

import headgate
from dev.servers.cassandra.serving import Serving
from headgate.applying.call import ApplyOutcome
from tests.system.sdk.test_sdk_session import session_by_profiles


@pytest.fixture
def connection_variables(cassandra: Serving) -> Iterator[dict[str, str]]:
    """The environment of an application in a keyspace that is not there yet."""
    keyspace = f"apply_{uuid.uuid4().hex[:12]}"
    yield {**cassandra.environment(), "KEYSPACE": keyspace}
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {keyspace}")


def queue(shards: int = 1, name: str = "emails") -> dict[str, object]:
    """A resource."""
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"shards": shards, "storage": {"tables": "shared"}},
    }


def test_apply_creates_then_changes_nothing_then_updates_and_a_dry_run_only_prints(
    connection_variables: dict[str, str],
) -> None:
    async def work() -> None:
        planned = await headgate.apply(queue(), dry_run=True, environment=connection_variables)
        assert () == planned.results
        assert any(
            line.startswith(f"CREATE KEYSPACE IF NOT EXISTS {connection_variables['KEYSPACE']}")
            for line in planned.statements
        )
        with pytest.raises(headgate.EnvironmentProblem, match="The keyspace does not exist"):
            async with headgate.connect(connection_variables):
                pass
        report = await headgate.apply([queue(), queue(name="orders")], environment=connection_variables)
        assert [
            ("Queue", "shop/emails", ApplyOutcome.CREATED),
            ("Queue", "shop/orders", ApplyOutcome.CREATED),
        ] == [(each.kind, each.name, each.outcome) for each in report.results]
        assert report.results[0].tables
        async with headgate.connect(connection_variables) as connection:
            await (await connection.queue("shop/emails")).put("hello")
        again = await headgate.apply(queue(), environment=connection_variables)
        assert [ApplyOutcome.UNCHANGED] == [each.outcome for each in again.results]
        changed = await headgate.apply(queue(shards=2), environment=connection_variables)
        assert [ApplyOutcome.UPDATED] == [each.outcome for each in changed.results]
        another = await headgate.apply(
            [queue(shards=3), queue(name="new")], owner="another", environment=connection_variables
        )
        assert [ApplyOutcome.REFUSED, ApplyOutcome.CREATED] == [each.outcome for each in another.results]
        with pytest.raises(headgate.OperationRefused, match="shop/emails"):
            another.check()
        taken = await headgate.apply(queue(shards=3), owner="another", adopt=True, environment=connection_variables)
        assert () == taken.refused

    asyncio.run(work())


def test_apply_works_on_a_session_of_the_application_and_without_async(connection_variables: dict[str, str]) -> None:
    with session_by_profiles(connection_variables) as session:
        report = headgate.apply_sync(
            queue(), session=session, environment={}, keyspace=connection_variables["KEYSPACE"]
        )
        assert [ApplyOutcome.CREATED] == [each.outcome for each in report.results]
        with headgate.connect_sync({}, session=session, keyspace=connection_variables["KEYSPACE"]) as connection:
            assert ["shop/emails"] == connection.queues()
        assert not session.is_shutdown

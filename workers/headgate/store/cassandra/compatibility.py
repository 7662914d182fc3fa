"""Whether a real Cassandra stores expirations after 2038: each node's settings contain it, if the role may read
them."""

from __future__ import annotations

import asyncio

from headgate.errors import HeadgateError
from headgate.store.cassandra.store import CassandraStore, Coordinator
from headgate.store.model.consistency import Consistency

ASK_WITHIN_S = 2.0
OLD = "CASSANDRA_4"


async def keeps_past_2038(store: CassandraStore) -> bool:
    """True if every node of the home data center reports that its storage is no longer that of Cassandra 4.

    A node that does not answer, or may not be read, counts as old: then this process rejects the write, with a
    reason, rather than a server.
    """
    modes = await asyncio.gather(*(_mode_of(store, node) for node in store.coordinators()))
    return bool(modes) and all(mode is not None and mode != OLD for mode in modes)


async def _mode_of(store: CassandraStore, node: Coordinator) -> str | None:
    try:
        rows = await store.cql(
            "SELECT value FROM system_views.settings WHERE name = 'storage_compatibility_mode'",
            consistency=Consistency.ONE,
            at=node,
            within_s=ASK_WITHIN_S,
        )
    except HeadgateError:
        return None
    return str(rows[0].value) if rows and rows[0].value else None

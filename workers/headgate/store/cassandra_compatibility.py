"""Whether a real Cassandra keeps what expires after 2038: each node says so in its settings, if the role may ask."""

from __future__ import annotations

import asyncio

from headgate.errors import HeadgateError
from headgate.store.cassandra import CassandraStore, Coordinator
from headgate.store.consistency import Consistency

ASK_WITHIN_S = 2.0
OLD = "CASSANDRA_4"


async def keeps_past_2038(store: CassandraStore) -> bool:
    """True if every node of the home data centre says that its storage is not that of Cassandra 4 any more.

    A node that does not answer, or is not allowed to tell, counts as old: what is refused then is refused here, with
    a reason, rather than by a server.
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

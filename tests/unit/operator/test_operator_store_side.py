"""The operator's knowledge of the catalogue's entries."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from headgate.store.catalogue.entry import Name
from headgate_operator.store.catalogue import StoreSide
from tests.kit.operator_world import CLUSTER, EMAILS, NOW_US, UID, TinyWorld, resource_document


class Catalogue:
    """One Cassandra, with or without the entry of a queue."""

    def __init__(self, *, has_entry: bool) -> None:
        tiny = TinyWorld(resource_document("Queue", {"shards": 1}))
        tiny.settle()
        self.entry = tiny.entry if has_entry else None
        self.reads = 0

    async def find(self, _: Name, **__: Any) -> Any:
        self.reads += 1
        return None if self.entry is None else type("Known", (), {"entry": self.entry})


def test_an_entry_is_believed_for_the_connection_alone_by_which_it_was_read() -> None:
    async def reads() -> list[bool]:
        store = StoreSide(
            cast(Any, None), cluster=CLUSTER, lives=lambda _: True, now_us=lambda: NOW_US, now_s=lambda: 0.0
        )
        local, elsewhere = Catalogue(has_entry=True), Catalogue(has_entry=False)
        matches = [
            await store._entry(EMAILS, UID, digest, cast(Any, of)) is not None
            for digest, of in (("d1", local), ("d1", local), ("d2", elsewhere), ("d1", local))
        ]
        assert (2, 1) == (local.reads, elsewhere.reads)
        return matches

    assert [True, True, False, True] == asyncio.run(reads())

"""What tasks of bulk jobs put: again under the same keys where the end of a put is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.client.outgoing import Put
from penstock.store.store import Unknown
from penstock_spark.jobs import tasks
from penstock_spark.jobs.tasks import TRIES, Puts, puts_messages
from penstock_spark.worker_connection import WorkerConnection

PUTS = Puts({}, "shop/heir", "job", 1, 1_000)


class Doubtful:
    """A queue that does not tell how the first puts ended, and its connection."""

    def __init__(self, fails: int) -> None:
        self.tried: list[list[str | None]] = []
        self._fails = fails

    def queue(self, name: str) -> Doubtful:
        assert name == "shop/heir"
        return self

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    async def put_many(self, messages: Sequence[Put]) -> list[str]:
        self.tried.append([each.once for each in messages])
        if len(self.tried) <= self._fails:
            raise Unknown("it may have been written, or may still be")
        return ["id"] * len(messages)


def put_into(queue: Doubtful, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each batch of a task's result tells, where three are to be put."""
    monkeypatch.setattr(tasks, "connection_here", lambda told: cast("WorkerConnection", queue))
    monkeypatch.setattr(tasks, "PAUSE_S", 0.0)
    rows = [{"id": f"m{number}", "payload": b"x", "attributes": []} for number in range(3)]
    given = puts_messages(PUTS)([pa.RecordBatch.from_pylist(rows)])
    return [batch.column(0).to_pylist()[0] for batch in given]


def test_a_put_whose_end_is_not_known_is_made_again_under_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Doubtful(fails=2)
    assert [3] == put_into(queue, monkeypatch)
    keys: list[str | None] = [f"job 1 m{number}" for number in range(3)]
    assert [keys] * 3 == queue.tried


def test_one_whose_end_is_never_known_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Doubtful(fails=TRIES)
    with pytest.raises(Unknown):
        put_into(queue, monkeypatch)
    assert TRIES == len(queue.tried)

"""Puts of bulk tasks, and the way from an id to a message's row and index.

A put with an unknown outcome is repeated under the same keys, and some messages are put ahead of the rest."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import pyarrow as pa
import pytest

from headgate.client.model.outgoing import Put
from headgate.client.sync.background import BackgroundLoop
from headgate.errors import InvalidRequest, OperationRefused
from headgate.store.store import OutcomeUnknown
from headgate_spark.jobs import tasks
from headgate_spark.jobs.tasks import PUTS_AHEAD, TRIES, Puts, condenses, puts_messages
from headgate_spark.process.worker_connection import WorkerConnection

T = TypeVar("T")
PUTS = Puts({}, "timeline", "shop/heir", "job", 1, 1_000)


class LocalConnection:
    """A connection with one queue, whose puts take a while."""

    def __init__(self) -> None:
        self.background = BackgroundLoop("a test")
        self.tried: list[list[str | None]] = []
        self.under_way = self.most = self.ended = 0

    def queue(self, name: str) -> LocalConnection:
        assert name == "shop/heir"
        return self

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self.background.begin(work)

    async def put_many(self, messages: Sequence[Put]) -> list[str]:
        number = len(self.tried)
        self.tried.append([each.once for each in messages])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.02)
        self.under_way -= 1
        self.ended += 1
        self.judge(number)
        return ["id"] * len(messages)

    def judge(self, number: int) -> None:
        """How this put ends: well."""


class Doubtful(LocalConnection):
    """It does not report how the first puts ended."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self._fails = fails

    def judge(self, number: int) -> None:
        if number < self._fails:
            raise OutcomeUnknown("The message may have been written, or may still be")


class Broken(LocalConnection):
    """Its first put fails for good."""

    def judge(self, number: int) -> None:
        if number == 0:
            raise OperationRefused("no")


def put_into(
    local: LocalConnection, monkeypatch: pytest.MonkeyPatch, *, messages: int = 3, group: str | None = None
) -> list[int]:
    """The number of messages in each batch of a task's result."""
    monkeypatch.setattr(tasks, "process_connection", lambda report: cast("WorkerConnection", local))
    monkeypatch.setattr(tasks, "PAUSE_S", 0.0)
    monkeypatch.setattr(tasks, "PUT_AT_ONCE", 3)
    rows = [{"id": f"m{number}", "payload": b"x", "attributes": [], "group": group} for number in range(messages)]
    try:
        given = puts_messages(PUTS)([pa.RecordBatch.from_pylist(rows)])
        return [batch.column(0).to_pylist()[0] for batch in given]
    finally:
        local.background.stop()


def test_a_put_whose_end_is_not_known_is_recreated_under_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Doubtful(fails=2)
    assert [3] == put_into(queue, monkeypatch)
    keys: list[str | None] = [f"job 1 m{number}" for number in range(3)]
    assert [keys] * 3 == queue.tried


def test_one_whose_end_is_never_known_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Doubtful(fails=TRIES)
    with pytest.raises(OutcomeUnknown):
        put_into(queue, monkeypatch)
    assert TRIES == len(queue.tried)


def test_some_are_put_ahead_of_the_rest_and_all_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalConnection()
    assert [20] == put_into(local, monkeypatch, messages=20)
    assert (7, 7, 0) == (len(local.tried), local.ended, local.under_way)
    assert PUTS_AHEAD == local.most


def test_what_has_groups_waits_for_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalConnection()
    assert [20] == put_into(local, monkeypatch, messages=20, group="g")
    assert (7, 1) == (local.ended, local.most)


def test_a_task_whose_put_fails_ends_once_all_that_it_began_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    local = Broken()
    with pytest.raises(OperationRefused):
        put_into(local, monkeypatch, messages=20)
    assert local.under_way == 0
    assert 2 <= local.ended == len(local.tried) <= 1 + PUTS_AHEAD


@pytest.mark.parametrize("length", [3, 10, 26, 27, 31, 40])
def test_an_id_of_any_length_reports_its_row_and_its_index(length: int) -> None:
    row = bytes(range(length - 2))
    ids = [base64.b32encode(row + index.to_bytes(2, "little")).decode().rstrip("=").lower() for index in (0, 1, 299)]
    outcomes = pa.RecordBatch.from_pydict({"id": ids, "outcome": ["done"] * 3, "reason": [None] * 3})
    (result,) = condenses("timeline")([outcomes])
    assert [(row, 1 << 299 | 0b11)] == [
        (each["row"], int.from_bytes(each["mask"], "little")) for each in result.to_pylist()
    ]


@pytest.mark.parametrize("given", ["m1", "no id at all!", "é" * 44])
def test_an_id_that_is_none_is_reported(given: str) -> None:
    outcomes = pa.RecordBatch.from_pydict({"id": [given], "outcome": ["done"], "reason": [None]})
    with pytest.raises(InvalidRequest, match="The handler returned an invalid id"):
        list(condenses("timeline")([outcomes]))

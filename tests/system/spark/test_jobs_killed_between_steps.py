"""A job whose driver dies before any of its steps, and is run again: nothing is lost, nothing is written twice.

A dead driver asks Cassandra for nothing any more, not even to tidy up: from its last step on each of its calls fails.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from pyspark.sql import SparkSession

from dev.servers.cassandra.serving import Serving
from headgate_spark.process.worker_connection import WorkerConnection
from tests.system.spark.shop import Shop, opened_shop, twice

T = TypeVar("T")

STEPS = (8, 11, 14, 17)
"""Of the first batch: before it is planned, before it is committed, before its lanes are settled and given back."""
ALL_STEPS = range(1, 40)


class Killed(BaseException):
    """The driver is dead."""


class MortalConnection:
    """A connection whose process dies before its step `last`."""

    def __init__(self, connection: WorkerConnection, last: int) -> None:
        self._local = connection
        self._left = last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Until it is dead."""
        self._left -= 1
        if self._left <= 0:
            work.close()
            raise Killed
        return self._local.run(work)


@pytest.fixture(scope="module")
def shop(cassandra: Serving, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Queues of these tests; what one leaves the next would find, so each empties its own."""
    with opened_shop(cassandra, spark, tmp_path_factory.mktemp("shop"), ("mortal", "heir")) as opened:
        yield opened


def killed_and_run_again(shop: Shop, step: int, **fields: Any) -> None:
    """A job that dies before this step, and the next run of it."""
    living = shop.connection
    shop.connection = cast("WorkerConnection", MortalConnection(living, step))
    try:
        shop.job("mortal", batch_messages=300, **fields)
    except Killed:
        pass
    finally:
        shop.connection = living
    shop.job("mortal", batch_messages=300, **fields)


@pytest.mark.parametrize("step", STEPS)
def test_into_files_each_message_comes_once_and_is_settled(shop: Shop, step: int, tmp_path: Path) -> None:
    files_hold_each_once(shop, step, tmp_path)


@pytest.mark.parametrize("step", STEPS)
def test_into_a_queue_each_message_comes_once_and_is_settled(shop: Shop, step: int) -> None:
    queue_holds_each_once(shop, step)


@pytest.mark.slow
@pytest.mark.parametrize("step", ALL_STEPS)
def test_before_any_step_at_all(shop: Shop, step: int, tmp_path: Path) -> None:
    files_hold_each_once(shop, step, tmp_path)
    queue_holds_each_once(shop, step)


def files_hold_each_once(shop: Shop, step: int, folder: Path) -> None:
    ids = shop.put("mortal", 500)
    shop.settle_down()
    sink = {"format": "parquet", "path": str(folder / "out")}
    killed_and_run_again(shop, step, mode="drain", name=f"files{step}", sink=sink)
    written = [row["id"] for row in shop.spark.read.parquet(sink["path"]).collect()]
    assert ([], sorted(ids)) == (twice(written), sorted(written))
    assert [] == shop.taken("mortal", quiet_s=1.0)


def queue_holds_each_once(shop: Shop, step: int) -> None:
    shop.put("mortal", 500)
    shop.settle_down()
    killed_and_run_again(shop, step, mode="move", name=f"move{step}", target="heir")
    moved = shop.taken("heir")
    assert ([], {b"%d" % each for each in range(500)}) == (twice(moved), set(moved))
    assert [] == shop.taken("mortal", quiet_s=1.0)

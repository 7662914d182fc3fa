"""gc and repair by Spark make the passes of `headgate gc` and `headgate repair`, and note them where they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from dev.servers.cassandra.serving import Serving
from headgate.engines.summary.pass_results import read_pass_status
from headgate_spark.jobs import rollup
from headgate_spark.jobs.request import SinkRequest, job_id
from headgate_spark.jobs.rollup import NoSuchWindows, RollupRequest, run_rollup
from headgate_spark.jobs.upkeep import collect, repair, shares_of_buckets
from headgate_spark.process.worker_connection import task_environment
from tests.system.spark.shop import Shop, opened_shop

KEYS = 300
MINUTE_US = 60_000_000


@pytest.fixture(scope="module")
def shop(cassandra: Serving, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Two queues and a counter."""
    with opened_shop(
        cassandra, spark, tmp_path_factory.mktemp("shop"), ("kept",), counters=("views", "timed")
    ) as opened:
        spark.sparkContext.environment.update(opened.environment)
        yield opened


def test_every_bucket_is_in_one_share() -> None:
    for buckets in (1, 4, 64):
        for tasks in (1, 3, 100):
            shares = shares_of_buckets(buckets, tasks)
            assert list(range(buckets)) == sorted(bucket for share in shares for bucket in share)


def test_a_pass_over_a_counter_sees_every_key_and_changes_no_value(shop: Shop) -> None:
    counter = shop.connection.run(shop.connection.headgate.counter("shop/views"))

    async def count() -> None:
        for number in range(KEYS):
            await counter.add(f"page {number}", number)
        await counter.flush()

    shop.connection.run(count())
    assert not collect(shop.spark, shop.connection, task_environment(shop.environment), "shop/views").problems
    standing = shop.connection.run(counter.standing())
    assert (KEYS, True) == (standing.counted()[0], standing.full_us is not None)
    noted = shop.connection.run(
        read_pass_status(
            shop.connection.headgate.process_context.store_in(shop.environment["KEYSPACE"]), counter.entry.id
        )
    )
    assert noted is not None
    assert (KEYS, 0) == (noted.keys, noted.problems)
    values = shop.connection.run(counter.values([f"page {number}" for number in range(KEYS)]))
    assert list(range(KEYS)) == [values[f"page {number}"] for number in range(KEYS)]


def test_a_rollup_writes_each_key_of_each_final_window_once_and_resumes_where_it_was(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = shop.connection.run(shop.connection.headgate.counter("shop/timed"))
    sink = SinkRequest("parquet", str(tmp_path / "windows"), {})
    request = RollupRequest("shop/timed", MINUTE_US, sink, from_="10m")
    job = job_id(counter.entry, "rollup")

    async def count(number: int) -> None:
        for key in ("home", "about"):
            await counter.add(key, number)
        await counter.flush()

    shop.connection.run(count(3))
    assert 0 == run_rollup(shop.spark, shop.connection, request, job).done, "nothing is final an hour early"
    ends_us = (shop.connection.headgate.now_us() // MINUTE_US + 1) * MINUTE_US
    monkeypatch.setattr(rollup, "decide_final_before_us", lambda *_, **__: ends_us)
    monkeypatch.setattr(shop.connection.headgate, "now_us", lambda: ends_us + MINUTE_US)
    assert 2 == run_rollup(shop.spark, shop.connection, request, job).done
    assert 0 == run_rollup(shop.spark, shop.connection, request, job).done
    rows = shop.spark.read.parquet(sink.path).collect()
    assert {("home", "3"), ("about", "3")} == {(row["key"], row["value"]) for row in rows}
    assert {3} == {counter.kind.value(counter.kind.load(bytes(row["state"])), {}) for row in rows}
    assert 2 == len(rows)


def test_a_rollup_of_windows_that_the_counter_does_not_have_states_which_it_has(shop: Shop, tmp_path: Path) -> None:
    request = RollupRequest("shop/timed", 7 * MINUTE_US, SinkRequest("parquet", str(tmp_path), {}))
    with pytest.raises(NoSuchWindows, match="60s"):
        run_rollup(shop.spark, shop.connection, request, UUID(int=3))


def test_repair_makes_a_pass_over_each_queue_and_reports_what_failed(shop: Shop) -> None:
    shop.put("kept", 10)
    done = repair(shop.spark, task_environment(shop.environment), ["shop/kept", "shop/kept-dead", "shop/nowhere"])
    assert ["shop/kept", "shop/kept-dead", "shop/nowhere"] == sorted(name for name, _ in done)
    problems = {name: outcome.problems for name, outcome in done}
    assert ((), ()) == (problems["shop/kept"], problems["shop/kept-dead"])
    assert "shop/nowhere" in problems["shop/nowhere"][0]

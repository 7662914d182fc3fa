"""Drivers and executors of bulk jobs killed with -9 at random beside live consumers, and run again to their end."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from penstock import Ack, PenstockError
from penstock.engines.contract import Settled
from penstock.testing.cassandra.serving import Serving
from penstock_spark.jobs.request import job_id
from penstock_spark.jobs.run import log_of
from penstock_spark.worker_connection import WorkerConnection
from tests.spark.programs import Job, begun
from tests.spark.shop import Shop, opened_shop, twice

MESSAGES = 6_000
KILLS, KILLS_LONG = 1, 2
"""Of one job, before it is let run to its end."""
BEGUN_WITHIN_S = 120.0
KILLED_AFTER_S = (0.0, 10.0)
"""Since it drives the job: while it borrows, works, commits, settles, or never where it was faster."""
LOOK_EVERY_S = 0.1


@pytest.fixture(scope="module")
def shop(cassandra: Serving, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A queue and what it is moved into."""
    with opened_shop(cassandra, spark, tmp_path_factory.mktemp("shop"), ("shot", "heir")) as opened:
        yield opened


class Consumer:
    """Somebody who receives and settles beside the job, in a thread of this process."""

    def __init__(self, shop: Shop, queue: str) -> None:
        self.taken: list[str] = []
        """Its settling of these was honoured."""
        self.unsure: set[str] = set()
        """Whether it was, nobody could tell."""
        self._here = WorkerConnection({**os.environ, **shop.environment})
        self._queue = self._here.queue(queue)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._here.run(self._some())
            except PenstockError:
                continue

    async def _some(self) -> None:
        for message in await self._queue.receive(20, wait=0.5):
            await asyncio.sleep(0.02)
            self.unsure.add(message.id)
            (how,) = await self._queue.settle([Ack(message.receipt)])
            if how is not Settled.UNKNOWN:
                self.unsure.discard(message.id)
            if how is Settled.DONE:
                self.taken.append(message.id)

    def end(self) -> None:
        """It takes no more."""
        self._ends.set()
        self._thread.join()
        self._here.close()


def driver_of(shop: Shop, name: str) -> UUID | None:
    """Which run drives the job of this name."""
    row = shop.here.run(log_of(shop.here, job_id(shop.queue("shot").entry, name)).read())
    return None if row is None else row.driver


def drives(shop: Shop, name: str, before: UUID | None, job: Job) -> bool:
    """Whether it drives its job by now; False where it has ended."""
    until_s = time.monotonic() + BEGUN_WITHIN_S
    while driver_of(shop, name) == before:
        assert time.monotonic() < until_s, f"it did not begin\n{job.said()}"
        if not job.works_for(LOOK_EVERY_S):
            return False
    return True


def run_and_kill(shop: Shop, arguments: list[str], seed: int, folder: Path, *, kills: int) -> None:
    """Killed some times at random moments, now the driver, now an executor and then the driver, and then run to its
    end. Odd seeds have executors of their own: two, where there is time."""
    chance = random.Random(seed)
    name = arguments[arguments.index("--name") + 1]
    executors = "1,2" if kills == KILLS else "2,1"
    master = f"local-cluster[{executors},1024]" if seed % 2 else "local[2]"
    for _ in range(kills):
        before = driver_of(shop, name)
        with begun(shop.environment, arguments, master, folder) as job:
            works = drives(shop, name, before, job) and job.works_for(chance.uniform(*KILLED_AFTER_S))
            if works and seed % 4 == 1:
                job.kill_an_executor(chance)
                job.works_for(chance.uniform(*KILLED_AFTER_S))
    with begun(shop.environment, arguments, master, folder) as job:
        job.run_to_its_end()


def into_files(shop: Shop, seed: int, folder: Path, *, kills: int) -> list[str]:
    sink = folder / "out"
    arguments = ["drain", "--queue", "shop/shot", "--name", f"files{seed}", "--batch", "1500"]
    run_and_kill(shop, [*arguments, "--sink", f"parquet:{sink}"], seed, folder, kills=kills)
    return [row["id"] for row in shop.spark.read.parquet(str(sink)).collect()]


def each_goes_one_way(shop: Shop, seed: int, folder: Path, *, kills: int) -> None:
    """To the job's sink or to a consumer, and none is lost."""
    ids = shop.put("shot", MESSAGES)
    consumer = Consumer(shop, "shop/shot")
    try:
        written = into_files(shop, seed, folder, kills=kills)
    finally:
        consumer.end()
    taken = [*consumer.taken, *(each.id for each in shop.received("shot"))]
    assert ([], []) == (twice(written), twice(taken))
    assert set() == set(written) & set(taken)
    assert set(ids) - consumer.unsure <= set(written) | set(taken) <= set(ids)


@pytest.mark.parametrize("seed", range(2))
def test_a_drain_that_is_killed_gives_each_message_to_its_sink_or_to_a_consumer(
    shop: Shop, seed: int, tmp_path: Path
) -> None:
    each_goes_one_way(shop, seed, tmp_path, kills=KILLS)


def test_a_move_that_is_killed_puts_each_message_once(shop: Shop, tmp_path: Path) -> None:
    move_puts_each_once(shop, 3, tmp_path, kills=KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_thirty_more(shop: Shop, seed: int, tmp_path: Path) -> None:
    (move_puts_each_once if seed % 3 == 0 else each_goes_one_way)(shop, seed, tmp_path, kills=KILLS_LONG)


def move_puts_each_once(shop: Shop, seed: int, folder: Path, *, kills: int) -> None:
    shop.put("shot", MESSAGES)
    shop.settle_down()
    arguments = ["move", "--queue", "shop/shot", "--name", f"move{seed}", "--batch", "1500", "--target", "heir"]
    run_and_kill(shop, arguments, seed, folder, kills=kills)
    moved = [each.payload for each in shop.received("heir")]
    assert ([], {b"%d" % each for each in range(MESSAGES)}) == (twice(moved), set(moved))
    assert [] == shop.taken("shot")

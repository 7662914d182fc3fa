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

from dev.servers.cassandra.serving import Serving
from headgate import HeadgateError, settle
from headgate.engines.contract import Settled
from headgate.store.catalogue.bulk_log import BulkRow, Stage
from headgate_spark.jobs.request import job_id
from headgate_spark.jobs.run import log_of
from headgate_spark.process.worker_connection import WorkerConnection
from tests.system.spark.programs import Job, begun
from tests.system.spark.shop import Shop, opened_shop, twice

MESSAGES = 6_000
KILLS, KILLS_LONG = 1, 2
"""Of one job, before it is let run to its end."""
COMES_WITHIN_S = 180.0
KILLED_AFTER_STEPS = 6
"""At most, since it drives the job: two batches. Each is planned, committed and settled."""
KILLED_AFTER_S = 2.0
"""At most, since it came so far: while it borrows, works, publishes, settles, or never where it was faster."""
STEPS_A_BATCH = {Stage.PLANNED: -2, Stage.COMMITTED: -1, Stage.IDLE: 0}
CHECK_EVERY_S = 0.1
HANDLED_IN_S = 0.1
"""By the consumer, each: it leaves the job something to do also where that takes minutes to begin."""


@pytest.fixture(scope="module")
def shop(cassandra: Serving, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A queue and what it is moved into."""
    with opened_shop(cassandra, spark, tmp_path_factory.mktemp("shop"), ("shot", "heir")) as opened:
        yield opened


class Consumer:
    """A consumer that receives and settles beside the job, in a thread of this process."""

    def __init__(self, shop: Shop, queue: str) -> None:
        self.taken: list[str] = []
        """Its settling of these was honoured."""
        self.unsure: set[str] = set()
        """Whether it was, nobody can know."""
        self._local = WorkerConnection({**os.environ, **shop.environment})
        self._queue = self._local.queue(queue)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._local.run(self._some())
            except HeadgateError:
                continue

    async def _some(self) -> None:
        for message in await self._queue.receive(20, wait=0.5):
            await asyncio.sleep(HANDLED_IN_S)
            self.unsure.add(message.id)
            (how,) = await self._queue.settle([settle.Ack(message.receipt)])
            if how is not Settled.UNKNOWN:
                self.unsure.discard(message.id)
            if how is Settled.DONE:
                self.taken.append(message.id)

    def end(self) -> None:
        """It takes no more."""
        self._ends.set()
        self._thread.join()
        self._local.close()


def row_of(shop: Shop, name: str) -> BulkRow | None:
    """The record of the job of this name."""
    return shop.connection.run(log_of(shop.connection, job_id(shop.queue("shot").entry, name)).read())


def steps_of(row: BulkRow) -> int:
    """How many steps the job came forward, in all its runs."""
    return 3 * row.number + STEPS_A_BATCH[row.stage]


def comes_to(shop: Shop, name: str, before: UUID | None, steps: int, job: Job) -> bool:
    """Whether this run drives its job by now, and has advanced it by this number of steps; False where it has ended.

    What is written down counts, and no time: on a slow machine it would be killed before it had begun.
    """
    until_s = time.monotonic() + COMES_WITHIN_S
    first: int | None = None
    while True:
        row = row_of(shop, name)
        if row is not None and row.driver != before:
            first = steps_of(row) if first is None else first
            if steps_of(row) >= first + steps:
                return True
        assert time.monotonic() < until_s, f"it did not come forward\n{job.output()}"
        if not job.works_for(CHECK_EVERY_S):
            return False


def pauses(job: Job, rng: random.Random) -> bool:
    """For a short time, so that it is killed between two steps; whether it still works."""
    return job.works_for(rng.uniform(0.0, KILLED_AFTER_S))


def run_and_kill(shop: Shop, arguments: list[str], seed: int, folder: Path, *, kills: int) -> None:
    """Killed some times at random, now the driver, now an executor and then the driver, and then run to its
    end. Odd seeds have executors of their own: two, where there is time."""
    rng = random.Random(seed)
    name = arguments[arguments.index("--name") + 1]
    executors = "1,2" if kills == KILLS else "2,1"
    master = f"local-cluster[{executors},1024]" if seed % 2 else "local[2]"
    for _ in range(kills):
        row = row_of(shop, name)
        with begun(shop.environment, arguments, master, folder) as job:
            steps = rng.randrange(KILLED_AFTER_STEPS + 1)
            works = comes_to(shop, name, row and row.driver, steps, job) and pauses(job, rng)
            if works and seed % 4 == 1:
                job.kill_an_executor(rng)
                pauses(job, rng)
    with begun(shop.environment, arguments, master, folder) as job:
        job.run_to_its_end()


def into_files(shop: Shop, seed: int, folder: Path, *, kills: int) -> list[str]:
    sink = folder / "out"
    arguments = ["drain", "shop/shot", "--name", f"files{seed}", "--batch-size", "1500"]
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
    assert set() == set(ids) - consumer.unsure - set(written) - set(taken)
    assert set() == {*written, *taken} - set(ids)


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
    arguments = ["move", "shop/shot", "--name", f"move{seed}", "--batch-size", "1500", "--to", "heir"]
    run_and_kill(shop, arguments, seed, folder, kills=kills)
    moved = [each.payload for each in shop.received("heir")]
    missing = {b"%d" % each for each in range(MESSAGES)} - set(moved)
    assert ([], set(), []) == (twice(moved), missing, shop.taken("shot")), (folder / "log").read_text()

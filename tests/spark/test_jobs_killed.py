"""Drivers and executors of bulk jobs killed with -9 at random beside live consumers, and run again to their end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Ack, PenstockError
from penstock.testing.cassandra.serving import Serving
from penstock_spark.worker_connection import WorkerConnection
from tests.spark.shop import Shop, opened_shop, twice

pytestmark = pytest.mark.slow

MESSAGES = 6_000
KILLS, KILLS_LONG = 1, 2
"""Of one job, before it is let run to its end."""
KILLED_AFTER_S = (8, 30)
"""While it begins, while it works, or never where it was faster."""
RUN_WITHIN_S = 240
EXECUTOR = "CoarseGrainedExecutorBackend"
SETTINGS = "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=2"


@pytest.fixture(scope="module")
def shop(cassandra: Serving, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A queue and what it is moved into."""
    with opened_shop(cassandra, spark, tmp_path_factory.mktemp("shop"), ("shot", "heir")) as opened:
        yield opened


class Consumer:
    """Somebody who receives and settles beside the job, in a thread of this process."""

    def __init__(self, shop: Shop, queue: str) -> None:
        self.taken: list[str] = []
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
            await self._queue.settle([Ack(message.receipt)])
            self.taken.append(message.id)

    def end(self) -> list[str]:
        """What it took."""
        self._ends.set()
        self._thread.join()
        self._here.close()
        return self.taken


@contextmanager
def begun(shop: Shop, arguments: list[str], master: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job as a program of its own, in a group of its own; killed in the end, if it is at work still."""
    program = [sys.executable, "-m", "penstock_spark.bulk_program", *arguments, "--master", master]
    environment = {**os.environ, **shop.environment, "PYSPARK_SUBMIT_ARGS": f"{SETTINGS} pyspark-shell"}
    environment["PYSPARK_PYTHON"] = sys.executable
    with log.open("ab") as out:
        job = subprocess.Popen(program, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield job
    finally:
        if job.poll() is None:
            kill_driver(job)


def kill_driver(job: subprocess.Popen[bytes]) -> None:
    """All of it: the driver, its JVM, and whoever they began."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def kill_an_executor(job: subprocess.Popen[bytes], chance: random.Random) -> None:
    """One of the executors' JVMs, if there is one by now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = os.getpgid(int(folder.name)) == job.pid
            if is_ours and EXECUTOR.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, ProcessLookupError):
            continue
    if found:
        os.kill(chance.choice(sorted(found)), signal.SIGKILL)


def works_for(seconds: float, job: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether it is at work still after so long; one that has ended by itself has ended well."""
    try:
        code = job.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    assert 0 == code, log.read_text()[-2_000:]
    return False


def run_and_kill(shop: Shop, arguments: list[str], seed: int, log: Path, *, kills: int) -> None:
    """Killed some times at random moments, and then run to its end."""
    chance = random.Random(seed)
    master = "local-cluster[2,1,1024]" if seed % 2 else "local[2]"
    for _ in range(kills):
        with begun(shop, arguments, master, log) as job:
            alive = works_for(chance.uniform(*KILLED_AFTER_S), job, log)
            if alive and master != "local[2]" and chance.random() < 0.5:
                kill_an_executor(job, chance)
                works_for(chance.uniform(1, 15), job, log)
    with begun(shop, arguments, master, log) as job:
        assert 0 == job.wait(RUN_WITHIN_S), log.read_text()[-2_000:]


def into_files(shop: Shop, seed: int, folder: Path, *, kills: int) -> list[str]:
    sink = folder / "out"
    arguments = ["drain", "--queue", "shop/shot", "--name", f"files{seed}", "--batch", "1500"]
    run_and_kill(shop, [*arguments, "--sink", f"parquet:{sink}"], seed, folder / "log", kills=kills)
    return [row["id"] for row in shop.spark.read.parquet(str(sink)).collect()]


def each_goes_one_way(shop: Shop, seed: int, folder: Path, *, kills: int) -> None:
    """To the job's sink or to a consumer, and none is lost."""
    ids = shop.put("shot", MESSAGES)
    consumer = Consumer(shop, "shop/shot")
    try:
        written = into_files(shop, seed, folder, kills=kills)
    finally:
        taken = consumer.end()
    taken += [each.id for each in shop.received("shot")]
    assert ([], []) == (twice(written), twice(taken))
    assert set() == set(written) & set(taken)
    assert set(ids) == set(written) | set(taken)


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
    run_and_kill(shop, arguments, seed, folder / "log", kills=kills)
    moved = [each.payload for each in shop.received("heir")]
    assert ([], {b"%d" % each for each in range(MESSAGES)}) == (twice(moved), set(moved))
    assert [] == shop.taken("shot")

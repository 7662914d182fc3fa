"""The reading side of bench-spark: one driver with a session on two cores, which reads by our source or by the
connector. Both have the same session, so that none has a warmer virtual machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench.contender import ClientReport, Contender, Job, Ran
from bench.spark_connector import FORMAT, connector_jars
from bench.spark_work import PACKED, ROWS, SCHEDULED, Read, Work, fill, work_of
from headgate.errors import Bug
from headgate_spark.datasource import register
from headgate_spark.process.session import LOCAL, open_session

COLUMNS = "payload binary, due timestamp"


class ReadingContender(Contender):
    """One driver."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._spark: SparkSession | None = None
        self._filled: set[Read] = set()

    def prepare(self, job: Job) -> int:
        """Put the messages to read, once; and read them once, so that no contender pays for loading and compiling."""
        work = work_of(job)
        if work.read not in self._filled:
            asyncio.run(fill(self._environment, self._environment["KEYSPACE"], work))
            self._filled.add(work.read)
            self._read(work)
        return work.messages

    def run(self, job: Job) -> Ran:
        """Read all of it."""
        work = work_of(job)
        began_s = time.perf_counter()
        rows = self._read(work)
        return Ran(time.perf_counter() - began_s, rows, 1, 0)

    def report(self) -> ClientReport:
        """How many rows came is checked in the run."""
        return ClientReport(0.0, 0.0, 0)

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    def _read(self, work: Work) -> int:
        """Spark reads every payload and every time."""
        result = self._frame(work.read).agg(
            F.count("payload").alias("rows"), F.sum(F.length("payload")), F.max("due")
        )
        row = result.first()
        if row is None or row.rows != work.messages:
            raise Bug("some messages were not read", read=work.read, rows=None if row is None else row.rows)
        return int(row.rows)

    def _frame(self, read: Read) -> DataFrame:
        spark = self._session()
        if read is Read.CONNECTOR:
            options = {"table": ROWS.name, "keyspace": self._environment["KEYSPACE"]}
            result = spark.read.format(FORMAT).options(**options).load()
            return result.select("payload", F.timestamp_micros("due_us").alias("due"))
        queue = PACKED if read is Read.PACKED else SCHEDULED
        return spark.read.format("headgate").schema(COLUMNS).load(queue)

    def _session(self) -> SparkSession:
        if self._spark is None:
            host, _, port = self._environment["CONTACT_POINTS"].partition(",")[0].partition(":")
            settings = {
                **LOCAL,
                "spark.driver.memory": "1g",
                "spark.jars": ",".join(map(str, connector_jars())),
                "spark.cassandra.connection.host": host,
                "spark.cassandra.connection.port": port or "9042",
                "spark.cassandra.connection.localDC": self._environment["DATA_CENTER"],
            }
            if self._environment.get("USERNAME"):
                settings["spark.cassandra.auth.username"] = self._environment["USERNAME"]
                settings["spark.cassandra.auth.password"] = self._environment["PASSWORD"]
            self._spark = register(open_session("bench-spark", master="local[2]", settings=settings))
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark


def open_contender(environment: Mapping[str, str]) -> Contender:
    """For the client process."""
    return ReadingContender(environment)

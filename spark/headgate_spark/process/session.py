"""The Spark session of our jobs, and the session settings that they and the data source depend on.

By `spark-submit`, and as a SparkApplication, a session comes with the configuration of its submission. The required
settings are added to it, and the submission's other settings stay.

Spark waits for executors forever and only logs warnings: a job whose pods are rejected, or have no image or no
resources, would run for days and do nothing. So a job awaits one before anything is reserved.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import SparkSession

from headgate.errors import Unavailable
from headgate_spark.process.worker_connection import WorkerConnection, local_environment, task_environment

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses every read of a Python source that takes filters, as ours does with `pushFilters`."""
NEEDED: Mapping[str, str] = {
    FILTER_PUSHDOWN: "true",
    "spark.sql.session.timeZone": "UTC",  # jobs write days and times as strings
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
"""The settings for a session on one machine, as for tests and benchmarks."""

WITHIN_S: Final = 900.0
"""A cluster that creates nodes on demand takes minutes."""
REPORTED_AFTER_S: Final = 45.0
CHECK_EVERY_S: Final = 1.0
REMEDY: Final = "run kubectl describe on the pods with spark-role=executor; if there are none, run kubectl get events"


def open_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, created if there is none. Default of `master`: that of the submission."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**NEEDED, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def share_environment(spark: SparkSession, connection: WorkerConnection) -> dict[str, str]:
    """The environment of tasks, by which they connect. Python workers on this machine are children of a JVM, and that
    may be older than the environment."""
    if str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.environment.update(local_environment(connection.environment))
    return task_environment(connection.environment)


class NoExecutor(Unavailable):
    """No executor of the job has come."""


def await_executor(spark: SparkSession, report: Callable[[str], None], *, within_s: float = WITHIN_S) -> bool:
    """Return once there is one, with whether their absence was reported; raise at last. With dynamic allocation, no
    executor has to exist."""
    context = spark.sparkContext
    if str(context.master).startswith("local") or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return False
    began_s, is_reported = time.monotonic(), False
    while not executors(spark):
        waited_s = time.monotonic() - began_s
        error = NoExecutor(remedy=REMEDY, waited_s=round(waited_s))
        if waited_s >= within_s:
            raise error
        if waited_s >= REPORTED_AFTER_S and not is_reported:
            report(str(error))
            is_reported = True
        time.sleep(CHECK_EVERY_S)
    return is_reported


def executors(spark: SparkSession) -> int:
    """How many have registered: the driver is in the list, too."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # PySpark has no name for it
    return int(known.size()) - 1

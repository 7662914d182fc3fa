"""The Spark session of our jobs, and the session settings that they and the data source depend on.

By `spark-submit`, and as a SparkApplication, a session comes with the configuration of its submission. The required
settings are added to it, and the submission's other settings stay.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

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


def open_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, created if there is none. Default of `master`: that of the submission."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**NEEDED, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

"""The Spark session of our jobs, and what of a session's configuration they and the data source rest on.

By `spark-submit`, and as a SparkApplication, a session comes with the configuration of its submission; what is needed
here is set beside it, and what the submission says of anything else stays.
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
    "spark.sql.session.timeZone": "UTC",  # jobs write days and moments as texts
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
"""What suits a session on one machine, as tests and benchmarks have it."""


def open_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none. `master` is that of the submission unless told."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**NEEDED, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

"""The Spark session that our sources and jobs run in: what of its configuration they rest on.

By `spark-submit`, and as a SparkApplication, a session comes with the configuration of its submission; what is needed
here is set beside it, and what the submission says of anything else stays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

NEEDED: Mapping[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",  # without it every read of a source that takes filters fails
    "spark.sql.session.timeZone": "UTC",  # moments are told, and compared in SQL, as the queue means them
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

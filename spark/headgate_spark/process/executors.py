"""Missing executors. Spark waits for them forever and only logs warnings: a job whose pods are rejected, or have no
image or no resources, would run for days and do nothing.

Checked before anything is reserved. With dynamic allocation, no executor has to exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from headgate.errors import Unavailable

WITHIN_S: Final = 900.0
"""A cluster that creates nodes on demand takes minutes."""
REPORTED_AFTER_S: Final = 45.0
CHECK_EVERY_S: Final = 1.0
REMEDY: Final = "run kubectl describe on the pods with spark-role=executor; if there are none, run kubectl get events"


class NoExecutor(Unavailable):
    """No executor of the job has come."""


def await_executor(spark: SparkSession, report: Callable[[str], None], *, within_s: float = WITHIN_S) -> bool:
    """Return once there is one, with whether their absence was reported; raise at last."""
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

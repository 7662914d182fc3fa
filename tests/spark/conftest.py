"""One SparkSession and one Cassandra for all tests of Spark: they run in one process (dev/tests.py: SERVER_GROUPS).

`local[2,3]`: two cores, and a task may fail twice before its job does, so that tests can let tasks fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock_spark.session import LOCAL, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; half a minute on a busy machine."""
    session = open_session("penstock tests", master="local[2,3]", settings={**LOCAL, "spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

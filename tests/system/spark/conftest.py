"""One SparkSession and one Cassandra for all tests of Spark: they run in one process (dev/tests.py: SERVER_GROUPS).

`local[2,3]`: two cores, and a task may fail twice before its job does, so that tests can let tasks fail. The session
begins after Cassandra, since its Python workers inherit the environment that names its address.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate
from dev.servers.cassandra.serving import Serving
from headgate.client.sync.blocking import SyncHeadgate
from headgate_spark.datasource import register
from headgate_spark.process.session import LOCAL, open_session
from tests.system.spark.java import SHORT_LIVED

KEYSPACE = f"spark_{uuid.uuid4().hex[:12]}"
Applied = Callable[[str], None]
FIRST = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {name: first, namespace: shop}
spec: {shards: 1, storage: {tables: shared}}
"""
"""Before anything is applied there is no keyspace to connect to."""


@pytest.fixture(scope="session")
def connection_variables(cassandra: Serving) -> Iterator[dict[str, str]]:
    """Where Cassandra is, in this process's environment too: Spark's Python workers are its grandchildren."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}
    before = dict(os.environ)
    os.environ.update(environment)
    yield environment
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def spark(connection_variables: dict[str, str]) -> Iterator[SparkSession]:
    """The session; half a minute on a busy machine."""
    settings = {**LOCAL, "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": SHORT_LIVED}
    session = register(open_session("headgate tests", master="local[2,3]", settings=settings))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def applied(connection_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """Applies resources, given as YAML."""

    def apply(text: str) -> None:
        file = Path(tmp_path_factory.mktemp("spark")) / "resources.yaml"
        file.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **connection_variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert 0 == done.returncode, done.stderr

    apply(FIRST)
    return apply


@pytest.fixture(scope="session")
def connection(connection_variables: dict[str, str], applied: Applied) -> Iterator[SyncHeadgate]:
    """A plain process of Headgate beside Spark's."""
    with headgate.connect_sync(connection_variables) as opened:
        yield opened

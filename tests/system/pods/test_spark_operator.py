"""A bulk job under the real Spark operator: launched by our operator, run by a driver and executors in pods, shown
in the queue's status. `make demo SPARK=1` shows the same, here on the tests' cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster import image, lifecycle, spark_operator
from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm
from dev.cluster.kubectl import Kubectl
from dev.demo_setup import BULK
from dev.demo_shell import Shell
from dev.demo_spark import Drain
from dev.servers.cassandra import Cassandra
from tests.system.chart.chart_release import release_of

pytestmark = pytest.mark.slow  # the image has a gigabyte, and three JVMs start


@pytest.fixture
def with_spark_operator(kubernetes: KubernetesUnderTest, spark_image: str) -> Iterator[Kubectl]:
    """A cluster that carries out SparkApplications for as long as the test lasts."""
    made = spark_operator.spark_operator_image(image.build_image("headgate-spark"))
    lifecycle.load(kubernetes.cluster, made)
    spark_operator.install(kubernetes.kubectl)
    try:
        yield kubernetes.kubectl
    finally:
        kubernetes.kubectl.delete("namespace", spark_operator.NAMESPACE)
        kubernetes.kubectl.delete("crd", *spark_operator.CRDS)


def test_what_waits_is_drained_by_pods_of_spark_and_reported_in_the_queues_status(
    kubernetes: KubernetesUnderTest,
    with_spark_operator: Kubectl,
    spark_image: str,
    headgate_image: str,
    helm: Helm,
    near_cassandra: Cassandra,
) -> None:
    with release_of(kubernetes, helm, headgate_image, near_cassandra.environment()) as release:
        release.install({"spark": {"image": spark_image}})
        try:
            Drain(Shell(with_spark_operator, {**near_cassandra.environment(), "KEYSPACE": release.keyspace})).show()
        finally:
            with_spark_operator.run("delete", "--ignore-not-found", "-f", str(BULK), timeout_s=180)
    near_cassandra.cql(f"DROP KEYSPACE IF EXISTS {release.keyspace}")

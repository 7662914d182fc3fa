"""The image `headgate-spark`, built by its Dockerfile, and run as strict clusters run it; in test-long: it has a
gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import docker_build
from tests.system.pods.image_built import ANYBODY, CODE_AT_MOST, MIB, VERSION, Built, built

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(docker_build.obstacle() is not None, reason="needs root: a Docker engine of its own"),
]

OURS_AT_MOST = 1300 * MIB
"""The largest size on top of the base image, not compressed. docs/chart.md states the present one."""

JOB = """
import os
from pyspark.sql import SparkSession

def doubled(batches):
    import pyarrow.compute, headgate, headgate_spark
    for batch in batches:
        yield pyarrow.RecordBatch.from_arrays([pyarrow.compute.multiply(batch.column(0), 2)], names=["id"])

spark = SparkSession.builder.getOrCreate()
(row,) = spark.range(0, 1000, 1, 2).mapInArrow(doubled, "id long").groupBy().sum("id").collect()
print("sum", row[0], "user", spark.sparkContext.sparkUser(), os.getuid())
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[Built]:
    with built("headgate-spark") as made:
        yield made


def test_a_job_of_spark_runs_python_and_arrow_for_a_number_without_a_name(spark: Built, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    # A stranger reads it, through every directory above it.
    (tmp_path / "job.py").chmod(0o644)
    options = ("--volume", f"{tmp_path / 'job.py'}:/job.py:ro", "--env", "SPARK_LOCAL_IP=127.0.0.1")
    ran = spark.run("spark-submit", "--master", "local[2]", "/job.py", options=options)
    assert (0, ["sum 999000 user headgate 12345"]) == (
        ran.code,
        [line for line in ran.out.splitlines() if line.startswith("sum")],
    ), "\n".join(line for line in ran.err.splitlines() if "\tat " not in line)[-6000:]


def test_an_executor_that_spark_has_reported_nothing_reports_it_in_one_line(spark: Built) -> None:
    ran = spark.run("executor", user=ANYBODY)
    assert (2, 1) == (ran.code, len(ran.err.strip().splitlines())), ran
    assert "SPARK_EXECUTOR_MEMORY" in ran.err


def test_spark_stands_where_its_own_images_have_it(spark: Built) -> None:
    script = "ls -d /opt/spark/bin/spark-submit /opt/spark/conf /opt/java/bin/java /opt/headgate/bulk.py"
    assert 4 == len(spark.output_of("sh", "-c", script).splitlines())
    assert int(spark.output_of("sh", "-c", "ls /opt/spark/jars | grep -c kubernetes")) > 5


def test_the_data_plane_and_the_jobs_can_be_imported(spark: Built) -> None:
    assert "" == spark.output_of(
        "python3", "-c", "import headgate, headgate_spark.entrypoint, pyspark, pyarrow, datasketches"
    )


def test_it_is_as_strict_as_the_other_image(spark: Built) -> None:
    assert ([], [], True) == (spark.left_of_the_build(), spark.writable_by_anybody(), spark.is_compiled())
    assert ("65532:65532", VERSION) == (
        spark.config["User"],
        spark.config["Labels"]["org.opencontainers.image.version"],
    )


def test_the_size_stays_within_what_the_page_states(spark: Built) -> None:
    _, *layers = [layer.size for layer in spark.image.layers]
    assert (True, True) == (sum(layers) < OURS_AT_MOST, layers[-1] < CODE_AT_MOST), layers


def test_the_image_that_a_cluster_is_given_is_the_one_that_docker_has_built(spark: Built) -> None:
    assert (spark.image.id, [each.digest for each in spark.image.layers]) == spark.in_docker()

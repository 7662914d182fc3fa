"""The role of a container of the Spark image, by the arguments that Spark passes."""

from __future__ import annotations

import pytest

from headgate.errors import InvalidRequest
from headgate_spark.entrypoint import build_command, build_names, class_path, java_options

DRIVER = {"SPARK_HOME": "/opt/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
EXECUTOR = {
    "SPARK_HOME": "/opt/spark",
    "JAVA_HOME": "/opt/java",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-2",
}


def test_a_driver_submits_in_the_pod_it_is_in_bound_to_its_address() -> None:
    assert build_command(["driver", "--class", "x", "local:///opt/headgate/bulk.py", "a/b"], DRIVER) == [
        "/opt/spark/bin/spark-submit",
        "--conf",
        "spark.driver.bindAddress=10.0.0.7",
        "--conf",
        "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.7",
        "--deploy-mode",
        "client",
        "--class",
        "x",
        "local:///opt/headgate/bulk.py",
        "a/b",
    ]


def test_an_executor_is_java_with_what_spark_has_reported() -> None:
    values = {**EXECUTOR, "SPARK_JAVA_OPT_1": "-Db=2", "SPARK_JAVA_OPT_0": "-Da=1"}
    assert build_command(["executor"], values) == [
        *("/opt/java/bin/java", "-Da=1", "-Db=2", "-Xms1g", "-Xmx1g", "-cp", "/opt/spark/conf:/opt/spark/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://driver:7078", "--executor-id", "2", "--cores", "1", "--app-id", "spark-1"),
        *("--hostname", "10.0.0.8", "--resourceProfileId", "0", "--podName", "exec-2"),
    ]


def test_javas_options_go_by_their_numbers_and_not_by_their_letters() -> None:
    assert java_options({f"SPARK_JAVA_OPT_{each}": str(each) for each in (10, 9, 1)}) == ["1", "9", "10"]


def test_what_is_configured_comes_before_sparks_jars_and_what_is_added_after() -> None:
    values = {
        "SPARK_HOME": "/s",
        "SPARK_CONF_DIR": "/mounted",
        "HADOOP_CONF_DIR": "/hadoop",
        "SPARK_EXTRA_CLASSPATH": "/jars/mine.jar",
    }
    assert class_path(values) == "/hadoop:/mounted:/s/jars/*:/jars/mine.jar"


def test_other_words_are_run_as_they_are() -> None:
    assert build_command(["spark-submit", "job.py"], {}) == ["spark-submit", "job.py"]


@pytest.mark.parametrize("missing", sorted(EXECUTOR))
def test_a_variable_that_spark_has_not_reported_is_one_line(missing: str) -> None:
    values = {name: value for name, value in EXECUTOR.items() if name != missing}
    with pytest.raises(InvalidRequest, match=missing):
        build_command(["executor"], values)


def test_nothing_to_run_is_one_line() -> None:
    with pytest.raises(InvalidRequest, match="No program to run"):
        build_command([], {})


def test_a_number_without_a_name_gets_one_beside_roots() -> None:
    names = build_names(12345, 54321, "/tmp")  # noqa: S108 - of a container
    assert names.passwd.splitlines() == [
        "root:x:0:0:root:/root:/bin/sh",
        "headgate:x:12345:54321:headgate:/tmp:/bin/sh",
    ]
    assert names.group.splitlines() == ["root:x:0:", "headgate:x:54321:"]


def test_the_group_of_root_is_named_once() -> None:
    assert build_names(12345, 0, "/tmp").group == "root:x:0:\n"  # noqa: S108 - of a container

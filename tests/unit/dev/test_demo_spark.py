"""The bulk job of the demo: what it stands on, as documents, and that it does not call well what did not go well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from dev.cluster import spark_operator
from dev.cluster.choice import Choice
from dev.cluster.kubectl import Kubectl
from dev.cluster.oci import Layer, Run, Source, assemble, write_layer
from dev.demo import print_plan
from dev.demo_setup import BULK
from dev.demo_shell import Shell
from dev.demo_spark import JOB, MESSAGES, NAME, Drain, require_spark_operator
from headgate.api.read.loader import read_files
from headgate.api.resources.queues import QueueResource
from headgate.errors import EnvironmentProblem
from headgate_operator.manifests.spark_application import CONTAINERS

WELL = {"application": "newsletters-send-1", "state": "Succeeded", "done": MESSAGES}
PODS = "n-driver 1/1 Running 0 1s\nn-exec-1 1/1 Running 0 1s\n"


class Cluster:
    """A kubectl with prepared answers."""

    def __init__(
        self, report: dict[str, Any], *, backlog: int = 0, pods: str = PODS, state: str = "COMPLETED"
    ) -> None:
        self._queue = {"status": {"bulk": {JOB: report}, "backlog": backlog}}
        self._application = {"metadata": {"name": "n"}, "status": {"applicationState": {"state": state}}}
        self._pods = pods

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self._queue if kind == "queue" else self._application

    def run(self, *arguments: str, **_: Any) -> str:
        return self._pods if "pods" in arguments else ""

    def logs(self, pod: str, *arguments: str) -> str:
        return f"the last line of {pod}"


class Person:
    """A shell on it; what it waits for holds, or it waits in vain."""

    def __init__(self, cluster: Cluster, *, held: int = 0) -> None:
        self.kubectl = cluster
        self._held = held

    def wait(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        if not holds():
            raise EnvironmentProblem("the condition was not met in time", waited_for=what)

    def held(self, queue: str) -> int:
        return self._held

    def type(self, line: str) -> str:
        return ""


def end_of(person: Person) -> None:
    """From the launch on."""
    drain = Drain(cast("Shell", person))
    drain._launch()
    drain._work()
    drain._inspect()


def test_all_that_was_put_is_done_by_a_driver_and_executors() -> None:
    end_of(Person(Cluster(WELL)))


@pytest.mark.parametrize(
    ("person", "message"),
    [
        (Person(Cluster({})), "a SparkApplication"),
        (Person(Cluster({**WELL, "state": "Running"})), "the end of the bulk job"),
        (Person(Cluster({**WELL, "state": "Failed"}, state="FAILED")), "the last line of n-driver"),
        (Person(Cluster(WELL, pods=PODS.splitlines()[0])), "did not finish"),
        (Person(Cluster({**WELL, "done": MESSAGES - 1})), f"{MESSAGES} done and none waiting"),
        (Person(Cluster(WELL, backlog=1)), f"{MESSAGES} done and none waiting"),
        (Person(Cluster(WELL), held=1), "the backlog was not drained"),
    ],
)
def test_what_did_not_go_well_is_reported(person: Person, message: str) -> None:
    with pytest.raises(EnvironmentProblem, match=message):
        end_of(person)


def test_it_states_beforehand_that_spark_comes(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(Choice("node", "this user is root"), spark=True)
    assert f"{MESSAGES:,} more, which Spark drains" in capsys.readouterr().out


def test_a_cluster_of_somebody_else_needs_a_spark_operator_and_is_answered_so_in_one_line() -> None:
    with pytest.raises(EnvironmentProblem, match="has no Spark operator"):
        require_spark_operator(cast("Kubectl", Cluster({})))


def test_the_queue_of_the_example_is_drained_by_the_handler_that_the_driver_finds() -> None:
    (queue,) = (one for one in read_files([BULK]).resources if isinstance(one, QueueResource))
    (job,) = queue.spec.bulk or ()
    assert (NAME, JOB, "drain") == (queue.metadata.name, job.name, job.mode)
    assert job.backlog_above is not None
    assert job.backlog_above < MESSAGES
    module, _, function = str(job.handler).partition(":")
    assert f"{module}.py: |" in BULK.read_text()
    assert f"def {function}(" in BULK.read_text()
    assert job.spark.driver is not None
    (container,) = job.spark.driver["template"]["spec"]["containers"]
    assert CONTAINERS["driver"] == container["name"]


def test_the_image_of_the_spark_operator_is_ours_with_one_layer_more(tmp_path: Path) -> None:
    ours, more = layer(tmp_path, "ours"), layer(tmp_path, "more")
    image = assemble("headgate.local/headgate-spark:dev", [ours], Run(entrypoint=("python3",), user="65532:65532"))
    made = spark_operator.with_layer(image, spark_operator.TAG, more)
    config = json.loads(made.config)
    assert ([ours.digest, more.digest], ["python3"], "65532:65532") == (
        config["rootfs"]["diff_ids"],
        config["config"]["Entrypoint"],
        config["config"]["User"],
    )
    assert (spark_operator.TAG, (ours, more)) == (made.tag, made.layers)


def layer(directory: Path, name: str) -> Layer:
    (directory / name).write_text(name)
    return write_layer(directory / f"{name}.tar", [Source(directory / name, f"/{name}")])


def test_the_spark_operator_runs_the_image_that_was_brought_and_pulls_none() -> None:
    pod = spark_operator.build_deployment()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (spark_operator.TAG, "Never") == (container["image"], container["imagePullPolicy"])
    (account, role, binding) = spark_operator.build_account()
    assert (pod["serviceAccountName"], role["metadata"]["name"]) == (
        account["metadata"]["name"],
        binding["roleRef"]["name"],
    )

"""`make demo SPARK=1`, after the day: a queue that waits is drained in bulk, by Spark, launched by our operator.

A hundred thousand messages are put; the operator sees the backlog and creates a SparkApplication, the Spark operator
starts its driver, the driver its executors. In the end the queue's status reports the number of messages that were
put.
"""

from __future__ import annotations

import time
from typing import Any

from dev.cluster import image, lifecycle, spark_operator
from dev.cluster.kubectl import Kubectl, KubectlRefused
from dev.cluster.state import Cluster
from dev.demo_shell import NAMESPACE, Shell, Watch, print_line
from headgate.errors import EnvironmentProblem
from headgate.local.progress import duration, print_progress, step

MESSAGES = 100_000
NAME, JOB = "newsletters", "send"
QUEUE = f"{NAMESPACE}/{NAME}"
APPLY = "kubectl apply -f examples/spark.yaml"
PUT = f"""headgate put {QUEUE} '{{"to": "reader-{{n}}@example.org"}}' --count {MESSAGES} --quiet"""
SHOW_JOB = f"kubectl get queue {NAME} -n {NAMESPACE} -o jsonpath='{{.status.bulk.{JOB}}}'"
SHOW_QUEUE = f"headgate stats {QUEUE}"
LINES = (APPLY, PUT, SHOW_JOB, SHOW_QUEUE)
"""All that it types."""
READY_WITHIN_S, LAUNCHED_WITHIN_S, DRAINED_WITHIN_S, REPORTED_WITHIN_S = 60.0, 90.0, 420.0, 90.0
_PODS = ("get", "pods", "-l", "spark-role", "--no-headers")


def bring_spark_operator(cluster: Cluster) -> None:
    """Start the Spark operator; a cluster named by the user has its own."""
    kubectl = lifecycle.client(cluster)
    if cluster.mode == "context":
        require_spark_operator(kubectl)
        return
    with step("start the Spark operator, built from source, in a pod", expect_s=40):
        spark = image.build_image("headgate-spark")
        lifecycle.load(cluster, spark_operator.spark_operator_image(spark))
        spark_operator.install(kubectl)


def require_spark_operator(kubectl: Kubectl) -> None:
    """Nothing is installed into a cluster that is not ours but Headgate itself."""
    if not spark_operator.is_there(kubectl):
        raise EnvironmentProblem(
            "this cluster has no Spark operator, which runs bulk jobs",
            remedy="install it (https://www.kubeflow.org/docs/components/spark-operator), or do not set SPARK=1",
            missing=spark_operator.CRDS[0],
        )


class Drain:
    """A bulk job, from the messages that call for it to its end in the queue's status."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._kubectl = shell.kubectl
        self._pods: set[str] = set()

    def show(self) -> None:
        """All of it."""
        with step("declare a queue with a bulk job", expect_s=10):
            self._shell.apply(APPLY, f"queue/{NAME}", within_s=READY_WITHIN_S)
        watch = Watch(self._kubectl)
        try:
            self._put()
            began = time.monotonic()
            self._launch()
            self._work()
            print_progress(f"      {MESSAGES:,} drained {duration(time.monotonic() - began)} after the last put")
            self._inspect()
        finally:
            watch.end()

    def _put(self) -> None:
        with step(f"put {MESSAGES:,} messages", expect_s=20):
            self._shell.type(PUT)

    def _launch(self) -> None:
        with step(
            "the backlog is large enough for the operator to create a SparkApplication for its bulk job", expect_s=10
        ):
            self._shell.wait(
                lambda: bool(self._job_status().get("application")), LAUNCHED_WITHIN_S, "a SparkApplication"
            )

    def _work(self) -> None:
        with step(
            "the Spark operator starts a driver, the driver its executors, and they drain the backlog", expect_s=75
        ):
            self._shell.wait(self._has_ended, DRAINED_WITHIN_S, "the end of the bulk job")
        application = self._kubectl.get("sparkapplication", str(self._job_status()["application"]))
        state = application["status"]["applicationState"]["state"]
        roles = {"driver" if name.endswith("-driver") else "executor" for name in self._pods}
        if state != "COMPLETED" or roles != {"driver", "executor"}:
            raise EnvironmentProblem(
                "the bulk job did not finish",
                remedy="run kubectl describe sparkapplication -n shop; see the driver's last line above",
                state=state,
                pods=", ".join(sorted(self._pods)),
                cause=self._last_line(),
            )
        print_progress(f"      {application['metadata']['name']}: {state}; pods: {', '.join(sorted(self._pods))}")

    def _inspect(self) -> None:
        with step("the queue's status reports what the job did", expect_s=10):
            self._shell.wait(
                self._has_job, REPORTED_WITHIN_S, f"{MESSAGES} done and none waiting, in the queue's status"
            )
            print_line(self._shell.type(SHOW_JOB))
            left = self._shell.held(QUEUE)
            if left:
                raise EnvironmentProblem("the backlog was not drained", remedy=SHOW_QUEUE, left=left)
            print_line(self._shell.type(SHOW_QUEUE))

    # ---- observations

    def _status(self) -> dict[str, Any]:
        fields: dict[str, Any] = self._kubectl.get("queue", NAME).get("status") or {}
        return fields

    def _job_status(self) -> dict[str, Any]:
        """The status of the queue's job."""
        fields: dict[str, Any] = (self._status().get("bulk") or {}).get(JOB) or {}
        return fields

    def _has_ended(self) -> bool:
        """Whether the operator reports an end; each pod is shown when it comes."""
        for line in self._kubectl.run(*_PODS).splitlines():
            name, _, state = line.split()[:3]
            if name not in self._pods:
                self._pods.add(name)
                print_progress(f"      pod {name}: {state}")
        return self._job_status().get("state") in ("Succeeded", "Failed")

    def _has_job(self) -> bool:
        status = self._status()
        output = (status.get("bulk") or {}).get(JOB) or {}
        return (output.get("done"), output.get("failed", 0), status.get("backlog")) == (MESSAGES, 0, 0)

    def _last_line(self) -> str:
        driver = next((name for name in self._pods if name.endswith("-driver")), None)
        try:
            text = self._kubectl.logs(driver, "--tail=1").strip() if driver else ""
        except KubectlRefused:
            text = ""
        return text or str(self._job_status().get("message", "nothing"))

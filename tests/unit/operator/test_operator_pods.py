"""The operator's verdicts on pods that do not become ready, from statuses as a kubelet writes them."""

from __future__ import annotations

from typing import Any

from headgate_operator.observe.pods import pod_status

ENDED = {"exitCode": 2, "reason": "Error", "message": "loading\nno module named shop\n"}


def pod(*containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    inits = [each for each in containers if each["name"] == "handler"]
    return {
        "metadata": {"name": "p", "labels": {"headgate.io/consumer": "mailer"}},
        "status": {
            "initContainerStatuses": inits,
            "containerStatuses": [each for each in containers if each not in inits],
            **status,
        },
    }


def container(name: str, *, restarts: int = 0, started: bool = False, **state: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": restarts, "started": started, "state": {}, **state}


WAITING = container("worker", state={"waiting": {"reason": "PodInitializing"}})


def test_a_worker_that_ended_reports_its_code_and_its_last_line() -> None:
    observation = pod_status(pod(container("worker", restarts=3, lastState={"terminated": ENDED})))
    assert (2, 3, "no module named shop", "mailer") == (
        observation.exit_code,
        observation.restarts,
        observation.message,
        observation.consumer,
    )


def test_the_code_of_somebody_else_s_handler_is_no_refusal_of_ours() -> None:
    """A Go program that panics ends with 2 as well."""
    observation = pod_status(pod(container("handler", restarts=1, lastState={"terminated": ENDED}), WAITING))
    assert (None, "no module named shop") == (observation.exit_code, observation.message)


def test_a_handler_that_listens_where_nobody_sees_it_is_reported() -> None:
    handler = container("handler", restarts=1, state={"running": {}}, lastState={"terminated": {"exitCode": 0}})
    assert "does not listen at its port on the pod's address" in pod_status(pod(handler, WAITING)).message
    assert "" == pod_status(pod({**handler, "restartCount": 0}, WAITING)).message


def test_why_a_pod_waits_is_reported_in_the_kubelet_s_words() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    assert "ErrImagePull not found" == pod_status(pod(container("worker", state=waiting))).message
    nowhere = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    assert "0/3 nodes are available" == pod_status(pod(conditions=[nowhere])).message


def test_a_ready_pod_is_ready() -> None:
    assert pod_status(pod(conditions=[{"type": "Ready", "status": "True"}])).ready

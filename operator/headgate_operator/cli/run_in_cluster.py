"""Runs a command of `headgate` as a Job in the queue's namespace: creates it, follows its log, and deletes it.

So a person with the right to create Jobs in that namespace needs no route to Cassandra. The image is that of the
namespace's repair, which is the operator's; connection and account are those of the workers.
"""

from __future__ import annotations

import json
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NoReturn

import click

from headgate.errors import EnvironmentProblem, HeadgateError
from headgate_operator.cli.kubectl import Kubectl
from headgate_operator.cli.target import Target
from headgate_operator.manifests.job import Errand, build_errand_job
from headgate_operator.model.names import CONNECTION_COPY, GROUP

POLL_EVERY_S: Final = 0.5
END_WITHIN_S: Final = 15.0
EXIT_TERMINATED: Final = 143
NEVER: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that do not pass by themselves."""


class JobNotStarted(EnvironmentProblem):
    """The Job could not start."""


class ImageUnknown(EnvironmentProblem):
    """The operator's image is unknown."""


@dataclass(frozen=True)
class JobPodState:
    pod: str = ""
    message: str = "it has no pod yet"
    started: bool = False
    hopeless: bool = False
    exit_code: int | None = None


def run_errand(target: Target, task: str, words: Sequence[str], *, image: str | None, start_within_s: float) -> int:
    secret = (target.spec.get("storage") or {}).get("connectionSecret") or CONNECTION_COPY
    kubectl = target.kubectl
    errand = Errand(
        target.namespace,
        target.name,
        f"headgate-{task}-{secrets.token_hex(4)}",
        words,
        image or find_image(target),
        secret,
    )
    with _terminable():
        kubectl.run("create", "-f", "-", stdin=json.dumps(build_errand_job(errand)))
        try:
            pod = _started(kubectl, errand.name, start_within_s)
            kubectl.show("logs", "--follow", pod)
            return _exit_code(kubectl, errand.name)
        finally:
            _delete(kubectl, errand.name)


def find_image(target: Target) -> str:
    """The operator's image, from its CronJobs in this namespace."""
    jobs = target.kubectl.read("get", "cronjobs", "-l", f"{GROUP}/task=repair", "-o", "json")
    for job in jobs.get("items") or ():
        containers = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        return str(containers[0]["image"])
    raise ImageUnknown(
        namespace=target.namespace,
        why="the namespace has no CronJob of repair",
        remedy=f"wait until {target} is Ready, or pass --image",
    )


def job_pod_state(pods: Sequence[Mapping[str, Any]]) -> JobPodState:
    if not pods:
        return JobPodState()
    name, status = str(pods[0]["metadata"]["name"]), pods[0].get("status") or {}
    state = next((each.get("state") or {} for each in status.get("containerStatuses") or ()), {})
    if "terminated" in state:
        return JobPodState(
            name, "its pod has ended", started=True, exit_code=int(state["terminated"].get("exitCode") or 0)
        )
    if "running" in state:
        return JobPodState(name, "its pod is running", started=True)
    if "waiting" in state:
        reason = str(state["waiting"].get("reason") or "waiting")
        message = ": ".join(filter(None, (reason, state["waiting"].get("message"))))
        return JobPodState(name, message, hopeless=reason in NEVER)
    if status.get("phase") == "Failed":
        message = ": ".join(filter(None, (status.get("reason"), status.get("message")))) or "its pod failed"
        return JobPodState(name, message, hopeless=True)
    unmet = [each for each in status.get("conditions") or () if each.get("status") == "False"]
    return JobPodState(
        name, str(unmet[0].get("message") or unmet[0].get("reason")) if unmet else "its pod is pending"
    )


def _pods(kubectl: Kubectl, job: str) -> JobPodState:
    return job_pod_state(kubectl.read("get", "pods", "-l", f"job-name={job}", "-o", "json").get("items") or ())


def _started(kubectl: Kubectl, job: str, within_s: float) -> str:
    """The name of its pod, once it has a log."""
    deadline_s = time.monotonic() + within_s
    while True:
        standing = _pods(kubectl, job)
        if standing.started:
            return standing.pod
        refused = "" if standing.pod else _refused(kubectl, job)
        if standing.hopeless or refused:
            raise JobNotStarted(why=refused or standing.message)
        if time.monotonic() > deadline_s:
            raise JobNotStarted(within_s=within_s, why=standing.message, remedy="wait longer with --start-timeout")
        time.sleep(POLL_EVERY_S)


def _refused(kubectl: Kubectl, job: str) -> str:
    """Why no pod can be created (a quota, a missing account), by the Job's controller."""
    selector = f"involvedObject.kind=Job,involvedObject.name={job},reason=FailedCreate"
    try:
        events = kubectl.read("get", "events", "--field-selector", selector, "-o", "json").get("items") or ()
    except HeadgateError:  # without the right to read events it waits until the timeout
        return ""
    return str(events[-1].get("message") or "") if events else ""


def _exit_code(kubectl: Kubectl, job: str) -> int:
    """The exit code, which is known shortly after the end of the log."""
    deadline_s = time.monotonic() + END_WITHIN_S
    while True:
        standing = _pods(kubectl, job)
        if standing.exit_code is not None:
            return standing.exit_code
        if time.monotonic() > deadline_s:
            raise JobNotStarted("The log ended, but the command has no exit code", job=job)
        time.sleep(POLL_EVERY_S)


def _delete(kubectl: Kubectl, job: str) -> None:
    """Kubernetes deletes a Job that stays after a while, unless it never ran."""
    try:
        kubectl.run("delete", "job", job, "--cascade=background", "--wait=false", "--ignore-not-found")
    except HeadgateError as error:
        click.echo(f"the Job {job} could not be deleted: {error}", err=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: with the Job deleted."""

    def leave(_: int, __: FrameType | None) -> NoReturn:
        sys.exit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

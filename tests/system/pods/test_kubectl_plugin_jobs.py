"""`kubectl headgate lanes`, `purge` and `redrive` beside a queue, on a real node and a real Cassandra, by a user that
may create Jobs there and cannot reach Cassandra.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import headgate
from dev.cluster.kubectl import Kubectl
from headgate.command_line.exit_codes import ExitCode
from headgate.local.processes import wait_until
from headgate_operator.manifests.namespace_objects import build_cronjob
from headgate_operator.model.world import JobGroup
from tests.system.operator.people import Calling, person
from tests.system.pods.test_children_run import connection_variables, namespaced
from tests.unit.operator.operator_children_cases import CONNECTION, SETTINGS

__all__ = ["connection_variables", "namespaced"]

ROOT = Path(__file__).resolve().parents[3]
RIGHTS = [
    ("headgate.io", "queues", "get"), ("batch", "cronjobs", "list"), ("batch", "jobs", "create,delete,get"),
    ("", "pods,events", "list"), ("", "pods,pods/log", "get"),
]  # fmt: skip
SPEC = {"shards": 2, "maxClockSkew": "100ms", "timeline": {"safetyLag": "200ms"}, "storage": {"tables": "shared"}}


def make_queue(namespaced: Kubectl, connection_variables: dict[str, str], image: str, folder: Path) -> str:
    """A queue in this namespace, on both sides, with repair as the operator makes it; its name for programs."""
    namespace = str(namespaced.namespace)
    metadata = {"name": "emails", "namespace": namespace}
    document = {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": metadata, "spec": SPEC}
    namespaced.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    namespaced.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
    group = JobGroup("repair", "*/5 * * * *", CONNECTION.secret, image)
    repair = build_cronjob(namespace, replace(SETTINGS, image=image), group)
    repair["spec"]["suspend"] = True
    namespaced.apply(document, repair)
    file = folder / "queue.yaml"
    file.write_text(json.dumps(document))
    command = [sys.executable, "-m", "headgate.cli.main", "apply", str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **connection_variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == done.returncode, done.stderr
    return f"{namespace}/emails"


def put(connection_variables: dict[str, str], queue: str, *texts: str) -> None:
    async def work() -> None:
        async with headgate.connect(connection_variables) as connection:
            result = await connection.queue(queue)
            for text in texts:
                await result.put(text)

    asyncio.run(work())


def test_lanes_purge_and_redrive_run_beside_the_queue_and_leave_nothing(
    namespaced: Kubectl,
    connection_variables: dict[str, str],
    headgate_image: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    queue = make_queue(namespaced, connection_variables, headgate_image, tmp_path)
    put(connection_variables, queue, "one", "two")
    user, calling = person(namespaced, tmp_path, {str(namespaced.namespace): RIGHTS}), Calling(namespaced, tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        capfd.readouterr()
        result, _, err = calling.plugin(user, *arguments)
        assert code == result, err
        return capfd.readouterr().out

    def backlog() -> int:
        return int(json.loads(run("lanes", "queue/emails", "-o", "json").splitlines()[-1])["backlog"])

    shown = run("lanes", "queue/emails")
    assert "backlog    2" in shown
    assert ["1/0", "1/1"] == [line.split()[0] for line in shown.splitlines()[-2:]]
    assert "moved 0" in run("redrive", "queue/emails", code=ExitCode.PARTLY_DONE)
    assert "deleted messages put before" in run("purge", "queue/emails", "--yes")
    assert wait_until(lambda: backlog() == 0, timeout_s=30)
    assert wait_until(lambda: namespaced.list("jobs") == [] == namespaced.list("pods"), timeout_s=60)


def test_a_command_that_fails_in_the_job_fails_here_with_its_words(
    namespaced: Kubectl,
    connection_variables: dict[str, str],
    headgate_image: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    make_queue(namespaced, connection_variables, headgate_image, tmp_path)
    user, calling = person(namespaced, tmp_path, {str(namespaced.namespace): RIGHTS}), Calling(namespaced, tmp_path)
    code, _, _ = calling.plugin(user, "purge", "queue/emails", "--yes", "--until", "yesterday")
    assert 2 == code
    assert "'yesterday' is not a time such as" in capfd.readouterr().out
    assert wait_until(lambda: namespaced.list("jobs") == [], timeout_s=60)


def test_an_image_that_is_not_there_is_reported_and_nothing_is_left(
    namespaced: Kubectl, connection_variables: dict[str, str], headgate_image: str, tmp_path: Path
) -> None:
    make_queue(namespaced, connection_variables, headgate_image, tmp_path)
    user, calling = person(namespaced, tmp_path, {str(namespaced.namespace): RIGHTS}), Calling(namespaced, tmp_path)
    missing = ("--image", "localhost:1/none:1", "--start-timeout", "30s")
    code, _, err = calling.plugin(user, "lanes", "queue/emails", *missing)
    assert (1, 1) == (code, err.count("\n"))
    assert err.startswith("The Job could not start (")
    assert wait_until(lambda: namespaced.list("jobs") == [], timeout_s=60)

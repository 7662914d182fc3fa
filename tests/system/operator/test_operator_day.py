"""A day of a queue as a person has it: applied, it works; its workers follow its load, by the real operator, node and
Cassandra. Handlers in pods report each message to this process, so what is measured is what a user would see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import headgate
from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl, has_condition
from dev.servers.cassandra import Cassandra
from headgate.client.sync.blocking import SyncHeadgate, SyncQueue
from headgate.errors import InvalidRequest, Unavailable
from headgate.local.processes import wait_until
from headgate_operator.model.names import consumer_name
from tests.system.cassandra.slowed import slowed
from tests.system.operator.operator_process import OperatorProcess, home, leading
from tests.system.operator.watched import Watched, watched
from tests.system.sdk.listener import Listener, listening

READY_AND_HANDLED_S = 10.0
RAISED_S = 3.0
HANDLED_S = 10.0
ALL_S = 20.0
TO_ZERO_S = 45.0
TURNED_S = 20.0
DELAY_S = 20
HEADGATE_AND_HANDLER = "/handler"

Measured = Callable[[str], None]


@dataclass(frozen=True)
class Day:
    """A person's tools: a cluster with the operator, a program that puts, and handlers that report."""

    connection: SyncHeadgate
    listener: Listener
    operator: OperatorProcess


@pytest.fixture(scope="module")
def day(
    kubernetes: KubernetesUnderTest,
    near_cassandra: Cassandra,
    headgate_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Day]:
    environment = near_cassandra.environment()
    with ExitStack() as stack:
        its_home = stack.enter_context(home(kubernetes, environment, tmp_path_factory.mktemp("day")))
        operator = stack.enter_context(leading(its_home, "--image", headgate_image))
        listener = stack.enter_context(listening(str(kubernetes.host_address)))
        own = kubernetes.kubectl.in_namespace(its_home.namespace)
        # It makes the keyspace, and has the image unpacked, as somebody's first queue did long ago.
        own.apply(handler_of(listener), queue("warm", 1))
        own.wait_for("queue", "warm", has_condition("Ready"), what="is Ready", timeout_s=90)
        own.delete("queue", "warm", wait=False)
        variables = {**environment, "KEYSPACE": its_home.keyspace}
        yield Day(stack.enter_context(headgate.connect_sync(variables)), listener, operator)


@pytest.fixture
def namespaced(day: Day, k8s_namespace: Kubectl) -> Kubectl:
    """A restricted namespace with a handler's module, as it is in an image of the user's."""
    k8s_namespace.run(
        "label", "namespace", str(k8s_namespace.namespace), "pod-security.kubernetes.io/enforce=restricted"
    )
    k8s_namespace.apply(handler_of(day.listener))
    return k8s_namespace


def handler_of(listener: Listener) -> dict[str, Any]:
    """The module, as pods mount it."""
    data = {"day_handler.py": listener.handler}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "handler"}, "data": data}


def queue(name: str, shards: int, **consumer: Any) -> dict[str, Any]:
    """With tables of its own and one consumer."""
    worker = {
        "name": "worker",
        "env": [{"name": "PYTHONPATH", "value": HEADGATE_AND_HANDLER}],
        "volumeMounts": [{"name": "handler", "mountPath": "/handler"}],
    }
    volumes = [{"name": "handler", "configMap": {"name": "handler"}}]
    values = {
        "name": "mailer",
        "handler": "day_handler:handle",
        "template": {"spec": {"containers": [worker], "volumes": volumes}},
        **consumer,
    }
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {
            "shards": shards,
            "maxClockSkew": "100ms",
            "timeline": {"safetyLag": "200ms"},
            "consumers": [values],
        },
    }


def replicas(number: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a Deployment is asked for this number."""
    return lambda observation: observation["spec"].get("replicas") == number


def at_least_one(observation: dict[str, Any]) -> bool:
    return int(observation["spec"]["replicas"]) >= 1


@dataclass(frozen=True)
class Measuring:
    """The promised durations, adapted to the load of the machine."""

    by: float
    show: Measured

    def within(self, promised_s: float, **took_s: float) -> None:
        """Show what was measured; none of it took longer than promised."""
        text = ", ".join(f"{name.replace('_', ' ')} after {each:.1f} s" for name, each in took_s.items())
        self.show(f"{text} (promised {promised_s:g} s; this machine is {self.by:.1f} times slowed)")
        late = {name: each for name, each in took_s.items() if each > promised_s * self.by}
        assert {} == late, f"promised within {promised_s:g} s, {self.by:.1f} times slowed"


@pytest.fixture
def measuring(namespaced: Kubectl, measured: Measured) -> Measuring:
    """Asked while all is idle."""
    return Measuring(slowed(), measured)


def opened(day: Day, namespaced: Kubectl, name: str) -> SyncQueue:
    """The queue as a program finds it that waits for nothing but the queue."""
    matches: list[SyncQueue] = []

    def is_there() -> bool:
        try:
            matches.append(day.connection.queue(f"{namespaced.namespace}/{name}"))
        except (InvalidRequest, Unavailable):  # not applied yet, or its tables are being created
            return False
        return True

    assert wait_until(is_there, timeout_s=60, every_s=0.1)
    return matches[0]


def test_a_queue_that_is_applied_is_ready_and_its_first_message_is_handled_within_ten_seconds(
    day: Day, namespaced: Kubectl, measuring: Measuring
) -> None:
    with watched(namespaced, "queues") as queues:
        applied_s = time.monotonic()
        namespaced.apply(queue("emails", 2))
        opened(day, namespaced, "emails").put("first of all")
        put_s = time.monotonic()
        handled_s = day.listener.first("first of all")
        ready_s = queues.first("emails", has_condition("Ready"), what="Ready")
    measuring.within(
        READY_AND_HANDLED_S,
        put=put_s - applied_s,
        first_message_handled=handled_s - applied_s,
        ready=ready_s - applied_s,
    )


def test_workers_follow_the_load_from_none_to_all_and_back_and_a_delayed_message_wakes_them(
    day: Day, namespaced: Kubectl, measuring: Measuring
) -> None:
    scaling = {"scaling": {"min": 0, "max": 4, "backlogPerWorker": 6}, "concurrency": 2}
    all_of, asleep = consumer_name("emails", "mailer"), consumer_name("reminders", "mailer")
    namespaced.apply(queue("emails", 4, **scaling), queue("reminders", 1, **scaling))
    with watched(namespaced, "queues") as queues, watched(namespaced, "deployments") as deployments:
        for name in ("emails", "reminders"):
            queues.first(name, has_condition("Ready"), what="Ready")
        emails, reminders = opened(day, namespaced, "emails"), opened(day, namespaced, "reminders")
        due_s = time.monotonic() + DELAY_S
        reminders.put("remind me", delay=DELAY_S)
        first_s = time.monotonic()
        emails.put_many(["slow"] * 24)
        _load_is_followed(day, deployments, all_of, first_s, measuring)
        _reminder_wakes(day, deployments, asleep, due_s, measuring)
        zero_s = deployments.first(all_of, replicas(0), what="at 0 again", since_s=first_s + RAISED_S, timeout_s=120)
        last_s = max(word.at_s for word in day.listener.words if word.text == "slow")
        measuring.within(TO_ZERO_S, at_0_after_the_last_message=zero_s - last_s)


def _load_is_followed(day: Day, deployments: Watched, name: str, first_s: float, measuring: Measuring) -> None:
    raised_s = deployments.first(name, at_least_one, what="raised", since_s=first_s)
    measuring.within(RAISED_S, raised=raised_s - first_s)
    measuring.within(HANDLED_S, first_handled=day.listener.first("slow") - first_s)
    all_s = deployments.first(name, all_are_ready, what="all ready", since_s=first_s)
    measuring.within(ALL_S, all_4_ready=all_s - first_s)


def _reminder_wakes(day: Day, deployments: Watched, name: str, due_s: float, measuring: Measuring) -> None:
    handled_s = day.listener.first("remind me")
    raised_s = deployments.first(name, at_least_one, what="raised")
    assert due_s <= handled_s
    measuring.within(RAISED_S, raised_for_a_delayed_message=raised_s - due_s)
    measuring.within(HANDLED_S, the_delayed_message_handled=handled_s - due_s)


def test_kubectl_scale_reshards_and_external_scaling_leaves_replicas_alone(
    day: Day, namespaced: Kubectl, measuring: Measuring
) -> None:
    name = consumer_name("emails", "mailer")
    namespaced.apply(queue("emails", 1))
    with watched(namespaced, "queues") as queues, watched(namespaced, "deployments") as deployments:
        queues.first("emails", has_condition("Ready"), what="Ready")
        scaled_s = time.monotonic()
        namespaced.run("scale", "queue/emails", "--replicas=2")
        turned_s = queues.first("emails", has_two_shards, what="of two shards")
        deployments.first(name, replicas(2), what="at two workers", since_s=scaled_s)
        measuring.within(TURNED_S, two_shards_in_force=turned_s - scaled_s)
        namespaced.apply(queue("emails", 2, scaling={"mode": "external", "max": 5}))
        left_s = deployments.first(name, is_left_alone, what="left to another's hand", since_s=scaled_s)
        namespaced.run("scale", f"deployment/{name}", "--replicas=3")
        deployments.first(name, replicas(3), what="at three workers", since_s=left_s)
        opened(day, namespaced, "emails").put("under external")
        day.listener.first("under external")
        assert {2, 3} == {one["spec"]["replicas"] for at_s, one in deployments.events if at_s >= left_s}
        assert replicas(3)(deployments.of(name)[-1])
        back_s = time.monotonic()
        namespaced.apply(queue("emails", 2, scaling={"min": 1, "max": 1}))
        taken_s = deployments.first(name, replicas(1), what="scaled by us again", since_s=back_s)
        measuring.within(RAISED_S, taken_back_from_another=taken_s - back_s)


def all_are_ready(observation: dict[str, Any]) -> bool:
    return bool(observation.get("status", {}).get("readyReplicas") == 4)


def has_two_shards(observation: dict[str, Any]) -> bool:
    return bool(observation.get("status", {}).get("replicas") == 2)


def is_left_alone(observation: dict[str, Any]) -> bool:
    """Whether the operator's main field manager has given the replicas up."""
    managers = observation["metadata"].get("managedFields") or ()
    held = [each["fieldsV1"].get("f:spec", {}) for each in managers if each["manager"] == "headgate"]
    return not any("f:replicas" in fields for fields in held)

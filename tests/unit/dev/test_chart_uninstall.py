"""`leave --remove` as a whole, on the simulated API server: all goes, or what is left is named with what holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.errors import Unavailable
from headgate_operator.cluster.port import ApiObject, Denied
from headgate_operator.install.uninstall import OperatorInstallation, leave
from headgate_operator.model.kinds import DEPLOYMENT, QUEUE, ObjectAddress
from tests.contract.cluster.worlds import applied
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_world import World

FOLDER = OperatorInstallation("headgate-system", "headgate-operator", "app.kubernetes.io/component=operator")


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as made:
        yield made


def queue(name: str, **metadata: Any) -> dict[str, Any]:
    values = {"name": name, "namespace": "shop", **metadata}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": values, "spec": {}}


async def made(port: SimulatedCluster, *documents: dict[str, Any]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    for document in (namespace, *documents):
        applied(await port.apply(document, manager="test"))


def deployment_of(owner: ApiObject) -> dict[str, Any]:
    """As the operator makes one for a consumer."""
    labels = {"app.kubernetes.io/managed-by": "headgate"}
    reference = {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "name": "emails", "uid": owner.uid}
    containers = [{"name": "worker", "image": "registry.example/worker:1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mailer", "namespace": "shop", "labels": labels, "ownerReferences": [reference]},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


def test_all_resources_go_and_what_was_made_for_them_is_waited_for(world: World) -> None:
    port = SimulatedCluster(SimulatedApi(world), world.process("leaving"))

    async def work() -> list[bool]:
        await made(port, queue("emails"), queue("letters"))
        owner = applied(await port.get(ObjectAddress(QUEUE, "shop", "emails")))
        applied(await port.apply(deployment_of(owner), manager="test"))
        await leave(port, FOLDER, remove=True)
        there = (ObjectAddress(QUEUE, "shop", "emails"), ObjectAddress(QUEUE, "shop", "letters"))
        return [
            isinstance(await port.get(at), Denied) for at in (*there, ObjectAddress(DEPLOYMENT, "shop", "mailer"))
        ]

    assert [True, True, True] == world.run(work())


def test_what_anothers_finalizer_holds_is_named_with_it(world: World) -> None:
    port = SimulatedCluster(SimulatedApi(world), world.process("leaving"))

    async def work() -> None:
        await made(port, queue("held", finalizers=["example.org/other"]), queue("free"))
        await leave(port, FOLDER, remove=True)

    with pytest.raises(Unavailable) as raised:
        world.run(work())
    assert "queue shop/held (held by example.org/other)" == raised.value.facts["left"]

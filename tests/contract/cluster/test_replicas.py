"""Replicas that somebody else sets: what `scaling: {mode: external}` rests on."""

from __future__ import annotations

from typing import Any

from headgate_operator.model.kinds import DEPLOYMENT, ObjectAddress
from tests.contract.cluster.documents import deployment
from tests.contract.cluster.worlds import CaseWorld, applied

OURS, HOLDS = "headgate", "headgate-replicas"


def without_replicas(world: CaseWorld) -> dict[str, Any]:
    made = deployment(world)
    del made["spec"]["replicas"]
    return made


def replicas_alone(world: CaseWorld, replicas: int | None) -> dict[str, Any]:
    made = deployment(world)
    return {
        **{name: made[name] for name in ("apiVersion", "kind")},
        "metadata": {name: made["metadata"][name] for name in ("namespace", "name")},
        **({"spec": {"replicas": replicas}} if replicas is not None else {}),
    }


def at(world: CaseWorld) -> ObjectAddress:
    return ObjectAddress(DEPLOYMENT, world.namespace, "mailer")


async def test_53_replicas_held_by_a_second_manager_stay_when_they_are_left_out(world: CaseWorld) -> None:
    await world.port.apply(deployment(world, {"replicas": 0}), manager=OURS)
    applied(await world.port.apply(replicas_alone(world, 0), manager=HOLDS))
    left = applied(await world.port.apply(without_replicas(world), manager=OURS))
    assert left.document["spec"]["replicas"] == 0


async def test_53_an_autoscaler_then_takes_them_and_we_take_them_back_by_force(world: CaseWorld) -> None:
    await world.port.apply(deployment(world, {"replicas": 0}), manager=OURS)
    await world.port.apply(replicas_alone(world, 0), manager=HOLDS)
    await world.port.apply(without_replicas(world), manager=OURS)
    applied(await world.port.patch(at(world), {"spec": {"replicas": 0}}, manager="hpa", subresource="scale"))
    back = applied(await world.port.apply(deployment(world, {"replicas": 0}), manager=OURS, force=True))
    assert back.document["spec"]["replicas"] == 0
    applied(await world.port.apply(replicas_alone(world, None), manager=HOLDS, force=True))
    result = applied(await world.port.get(at(world))).document
    owners = [
        one["manager"]
        for one in result["metadata"]["managedFields"]
        if "f:replicas" in one["fieldsV1"].get("f:spec", {}) and one.get("subresource") != "status"
    ]
    assert (result["spec"]["replicas"], owners) == (0, [OURS])


async def test_54_replicas_left_out_without_one_become_one(world: CaseWorld) -> None:
    await world.port.apply(deployment(world, {"replicas": 0}), manager=OURS)
    left = applied(await world.port.apply(without_replicas(world), manager=OURS))
    assert left.document["spec"]["replicas"] == 1

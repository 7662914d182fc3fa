"""Replicas that somebody else sets: what `scaling: {mode: external}` rests on."""

from __future__ import annotations

from typing import Any

from headgate_operator.kinds import DEPLOYMENT, ObjectAddress
from tests.conformance.cluster.documents import deployment
from tests.conformance.cluster.grounds import Ground, applied

OURS, HOLDS = "headgate", "headgate-replicas"


def without_replicas(ground: Ground) -> dict[str, Any]:
    made = deployment(ground)
    del made["spec"]["replicas"]
    return made


def replicas_alone(ground: Ground, replicas: int | None) -> dict[str, Any]:
    made = deployment(ground)
    return {
        **{name: made[name] for name in ("apiVersion", "kind")},
        "metadata": {name: made["metadata"][name] for name in ("namespace", "name")},
        **({"spec": {"replicas": replicas}} if replicas is not None else {}),
    }


def at(ground: Ground) -> ObjectAddress:
    return ObjectAddress(DEPLOYMENT, ground.namespace, "mailer")


async def test_53_replicas_held_by_a_second_manager_stay_when_they_are_left_out(ground: Ground) -> None:
    await ground.port.apply(deployment(ground, {"replicas": 0}), manager=OURS)
    applied(await ground.port.apply(replicas_alone(ground, 0), manager=HOLDS))
    left = applied(await ground.port.apply(without_replicas(ground), manager=OURS))
    assert left.document["spec"]["replicas"] == 0


async def test_53_an_autoscaler_then_takes_them_and_we_take_them_back_by_force(ground: Ground) -> None:
    await ground.port.apply(deployment(ground, {"replicas": 0}), manager=OURS)
    await ground.port.apply(replicas_alone(ground, 0), manager=HOLDS)
    await ground.port.apply(without_replicas(ground), manager=OURS)
    applied(await ground.port.patch(at(ground), {"spec": {"replicas": 0}}, manager="hpa", subresource="scale"))
    back = applied(await ground.port.apply(deployment(ground, {"replicas": 0}), manager=OURS, force=True))
    assert back.document["spec"]["replicas"] == 0
    applied(await ground.port.apply(replicas_alone(ground, None), manager=HOLDS, force=True))
    result = applied(await ground.port.get(at(ground))).document
    owners = [
        one["manager"]
        for one in result["metadata"]["managedFields"]
        if "f:replicas" in one["fieldsV1"].get("f:spec", {}) and one.get("subresource") != "status"
    ]
    assert (result["spec"]["replicas"], owners) == (0, [OURS])


async def test_54_replicas_left_out_without_one_become_one(ground: Ground) -> None:
    await ground.port.apply(deployment(ground, {"replicas": 0}), manager=OURS)
    left = applied(await ground.port.apply(without_replicas(ground), manager=OURS))
    assert left.document["spec"]["replicas"] == 1

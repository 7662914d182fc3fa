"""Status and scale: each writes its part and nothing else."""

from __future__ import annotations

from headgate_operator.model.kinds import DEPLOYMENT, ObjectAddress
from tests.contract.cluster.documents import deployment, queue, queue_at, status_of
from tests.contract.cluster.worlds import CaseWorld, applied, denied

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Reconciled",
    "message": "",
    "lastTransitionTime": "2026-11-18T09:00:00Z",
}


async def test_22_a_status_leaves_the_spec_alone(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    both = {**status_of(world, {"replicas": 3}), "spec": {"shards": 9}}
    written = applied(await world.port.apply(both, manager="one", subresource="status"))
    assert (written.document["spec"]["shards"], written.document["status"]) == (6, {"replicas": 3})


async def test_23_a_condition_is_replaced_by_its_type(world: CaseWorld) -> None:
    await world.port.apply(queue(world), manager="one")
    stalled = {**CONDITION, "type": "Stalled"}
    first = status_of(world, {"conditions": [CONDITION, stalled]})
    await world.port.apply(first, manager="one", subresource="status")
    second = status_of(world, {"conditions": [{**CONDITION, "status": "False"}]})
    written = applied(await world.port.apply(second, manager="one", subresource="status"))
    assert written.document["status"]["conditions"] == [{**CONDITION, "status": "False"}]
    assert written.document["metadata"]["generation"] == 1


async def test_24_the_main_resource_never_writes_the_status(world: CaseWorld) -> None:
    await world.port.apply(queue(world), manager="one")
    await world.port.apply(status_of(world, {"replicas": 3}), manager="one", subresource="status")
    both = {**queue(world, spec={"shards": 6}), "status": {"replicas": 9}}
    kept = applied(await world.port.apply(both, manager="one"))
    assert kept.document["status"] == {"replicas": 3}
    made = {**queue(world, "other"), "status": {"replicas": 9}}
    assert "status" not in applied(await world.port.apply(made, manager="one")).document


async def test_25_a_scale_is_the_shards_of_a_queue(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    figures = {"replicas": 6, "selector": "headgate.io/queue=emails"}
    await world.port.apply(status_of(world, figures), manager="one", subresource="status")
    change = {"spec": {"replicas": 12}}
    scaled = applied(await world.port.patch(queue_at(world), change, manager="hand", subresource="scale"))
    assert (scaled.document["kind"], scaled.document["spec"], scaled.document["status"]) == (
        "Scale",
        {"replicas": 12},
        figures,
    )
    result = applied(await world.port.get(queue_at(world))).document
    assert (result["spec"]["shards"], result["metadata"]["generation"]) == (12, 2)
    refused = denied(await world.port.apply(queue(world, spec={"shards": 6}), manager="one"))
    words = 'conflict with "hand" with subresource "scale" using headgate.io/v1beta1: .spec.shards'
    assert refused.message == f"Apply failed with 1 conflict: {words}"


async def test_25_a_scale_is_the_replicas_of_a_deployment(world: CaseWorld) -> None:
    await world.port.apply(deployment(world), manager="one")
    at = ObjectAddress(DEPLOYMENT, world.namespace, "mailer")
    scaled = applied(await world.port.patch(at, {"spec": {"replicas": 0}}, manager="hand", subresource="scale"))
    assert scaled.document["spec"] == {}
    assert applied(await world.port.get(at)).document["spec"]["replicas"] == 0


async def test_25_the_scale_of_a_queue_is_held_to_its_bounds(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"engine": "extent"}), manager="one")
    change = {"spec": {"replicas": 17}}
    refused = denied(await world.port.patch(queue_at(world), change, manager="hand", subresource="scale"))
    assert "shards is the fewest open extents" in refused.message

"""Status and scale: each writes its part and nothing else."""

from __future__ import annotations

from headgate_operator.kinds import DEPLOYMENT, ObjectAddress
from tests.conformance.cluster.documents import deployment, queue, queue_at, status_of
from tests.conformance.cluster.grounds import Ground, applied, denied

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Reconciled",
    "message": "",
    "lastTransitionTime": "2026-11-18T09:00:00Z",
}


async def test_22_a_status_leaves_the_spec_alone(ground: Ground) -> None:
    await ground.port.apply(queue(ground, spec={"shards": 6}), manager="one")
    both = {**status_of(ground, {"replicas": 3}), "spec": {"shards": 9}}
    written = applied(await ground.port.apply(both, manager="one", subresource="status"))
    assert (written.document["spec"]["shards"], written.document["status"]) == (6, {"replicas": 3})


async def test_23_a_condition_is_replaced_by_its_type(ground: Ground) -> None:
    await ground.port.apply(queue(ground), manager="one")
    stalled = {**CONDITION, "type": "Stalled"}
    first = status_of(ground, {"conditions": [CONDITION, stalled]})
    await ground.port.apply(first, manager="one", subresource="status")
    second = status_of(ground, {"conditions": [{**CONDITION, "status": "False"}]})
    written = applied(await ground.port.apply(second, manager="one", subresource="status"))
    assert written.document["status"]["conditions"] == [{**CONDITION, "status": "False"}]
    assert written.document["metadata"]["generation"] == 1


async def test_24_the_main_resource_never_writes_the_status(ground: Ground) -> None:
    await ground.port.apply(queue(ground), manager="one")
    await ground.port.apply(status_of(ground, {"replicas": 3}), manager="one", subresource="status")
    both = {**queue(ground, spec={"shards": 6}), "status": {"replicas": 9}}
    kept = applied(await ground.port.apply(both, manager="one"))
    assert kept.document["status"] == {"replicas": 3}
    made = {**queue(ground, "other"), "status": {"replicas": 9}}
    assert "status" not in applied(await ground.port.apply(made, manager="one")).document


async def test_25_a_scale_is_the_shards_of_a_queue(ground: Ground) -> None:
    await ground.port.apply(queue(ground, spec={"shards": 6}), manager="one")
    figures = {"replicas": 6, "selector": "headgate.io/queue=emails"}
    await ground.port.apply(status_of(ground, figures), manager="one", subresource="status")
    change = {"spec": {"replicas": 12}}
    scaled = applied(await ground.port.patch(queue_at(ground), change, manager="hand", subresource="scale"))
    assert (scaled.document["kind"], scaled.document["spec"], scaled.document["status"]) == (
        "Scale",
        {"replicas": 12},
        figures,
    )
    result = applied(await ground.port.get(queue_at(ground))).document
    assert (result["spec"]["shards"], result["metadata"]["generation"]) == (12, 2)
    refused = denied(await ground.port.apply(queue(ground, spec={"shards": 6}), manager="one"))
    words = 'conflict with "hand" with subresource "scale" using headgate.io/v1beta1: .spec.shards'
    assert refused.message == f"Apply failed with 1 conflict: {words}"


async def test_25_a_scale_is_the_replicas_of_a_deployment(ground: Ground) -> None:
    await ground.port.apply(deployment(ground), manager="one")
    at = ObjectAddress(DEPLOYMENT, ground.namespace, "mailer")
    scaled = applied(await ground.port.patch(at, {"spec": {"replicas": 0}}, manager="hand", subresource="scale"))
    assert scaled.document["spec"] == {}
    assert applied(await ground.port.get(at)).document["spec"]["replicas"] == 0


async def test_25_the_scale_of_a_queue_is_held_to_its_bounds(ground: Ground) -> None:
    await ground.port.apply(queue(ground, spec={"engine": "extent"}), manager="one")
    change = {"spec": {"replicas": 17}}
    refused = denied(await ground.port.patch(queue_at(ground), change, manager="hand", subresource="scale"))
    assert "shards is the fewest open extents" in refused.message

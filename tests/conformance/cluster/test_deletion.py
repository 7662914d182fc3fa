"""Finalizers, cascades and namespaces."""

from __future__ import annotations

import asyncio
import secrets

from headgate_operator.kinds import CONFIG_MAP, NAMESPACE, ObjectAddress
from headgate_operator.port import ApiObject, Denial, address_of
from tests.conformance.cluster.documents import config, owned_by, queue, queue_at
from tests.conformance.cluster.grounds import Ground, applied, deleted, denied

STORE = "headgate.io/store"


def config_at(ground: Ground, name: str) -> ObjectAddress:
    return ObjectAddress(CONFIG_MAP, ground.namespace, name)


async def test_26_a_finalizer_turns_a_delete_into_a_time(ground: Ground) -> None:
    await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one")
    assert not deleted(await ground.port.delete(queue_at(ground))).gone
    left = applied(await ground.port.get(queue_at(ground))).document["metadata"]
    assert (left["finalizers"], left["deletionTimestamp"] != "", left["generation"]) == ([STORE], True, 2)


async def test_26_a_second_delete_changes_nothing(ground: Ground) -> None:
    await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one")
    await ground.port.delete(queue_at(ground))
    before = applied(await ground.port.get(queue_at(ground)))
    assert not deleted(await ground.port.delete(queue_at(ground))).gone
    assert applied(await ground.port.get(queue_at(ground))).document == before.document


async def test_27_what_is_being_deleted_can_still_be_changed(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one"))
    await ground.port.delete(queue_at(ground))
    wanted = queue(ground, spec={"deletionPolicy": "Delete"}, finalizers=[STORE], uid=made.uid)
    changed = applied(await ground.port.apply(wanted, manager="one"))
    assert changed.document["spec"]["deletionPolicy"] == "Delete"


async def test_28_the_last_finalizer_gone_it_is_gone(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one"))
    await ground.port.delete(queue_at(ground))
    change = {"metadata": {"finalizers": None, "uid": made.uid}}
    applied(await ground.port.patch(queue_at(ground), change, manager="one"))
    assert denied(await ground.port.get(queue_at(ground))).denial is Denial.NOT_FOUND


async def test_28_an_apply_that_leaves_the_finalizer_out_lets_it_go(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one"))
    await ground.port.delete(queue_at(ground))
    applied(await ground.port.apply(queue(ground, uid=made.uid), manager="one"))
    assert denied(await ground.port.get(queue_at(ground))).denial is Denial.NOT_FOUND


async def test_28_an_apply_of_no_finalizers_lets_it_go_and_keeps_those_of_others(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one"))
    await ground.port.apply(queue(ground, finalizers=["a.io/b"]), manager="other")
    await ground.port.delete(queue_at(ground))
    left = applied(await ground.port.apply(queue(ground, finalizers=[], uid=made.uid), manager="one"))
    assert left.document["metadata"]["finalizers"] == ["a.io/b"]
    applied(await ground.port.apply(queue(ground, finalizers=[], uid=made.uid), manager="other"))
    assert denied(await ground.port.get(queue_at(ground))).denial is Denial.NOT_FOUND


async def test_29_what_is_being_deleted_gets_no_new_finalizer(ground: Ground) -> None:
    await ground.port.apply(queue(ground, finalizers=["a.io/b"]), manager="other")
    await ground.port.delete(queue_at(ground))
    refused = denied(await ground.port.apply(queue(ground, finalizers=[STORE]), manager="one"))
    assert (refused.denial, {cause.field for cause in refused.causes}) == (Denial.INVALID, {"metadata.finalizers"})
    assert refused.causes[0].message.endswith(f'found new finalizers []string{{"{STORE}"}}')


async def test_30_a_finalizer_and_a_delete_that_race_never_leave_it_undeleted(ground: Ground) -> None:
    """A finalizer that was acknowledged holds nothing if the delete was under way: the server checks too early."""
    for number in range(5):
        name = f"race-{number}"
        made = applied(await ground.port.apply(queue(ground, name), manager="one"))
        ordered, added = await asyncio.gather(
            ground.port.delete(queue_at(ground, name), uid=made.uid),
            ground.port.apply(queue(ground, name, finalizers=[STORE], uid=made.uid), manager="one", force=True),
        )
        if deleted(ordered).gone:
            assert isinstance(added, ApiObject) or added.is_of_another
            assert await ground.gone(queue_at(ground, name))
            continue
        applied(added)
        left = applied(await ground.port.get(queue_at(ground, name))).document["metadata"]
        assert (left["finalizers"], "deletionTimestamp" in left) == ([STORE], True)
        await ground.port.patch(queue_at(ground, name), {"metadata": {"finalizers": None}}, manager="one")


async def test_31_children_go_with_their_owner_in_the_background(ground: Ground) -> None:
    await ground.collects()
    owner = applied(await ground.port.apply(queue(ground), manager="one"))
    await ground.port.apply(config(ground, "child", ownerReferences=owned_by(owner.document)), manager="one")
    assert deleted(await ground.port.delete(queue_at(ground), propagation="Background")).gone
    assert await ground.gone(config_at(ground, "child"))


async def test_31_a_child_that_comes_after_its_owner_has_gone_goes_too(ground: Ground) -> None:
    await ground.collects()
    owner = applied(await ground.port.apply(queue(ground), manager="one"))
    deleted(await ground.port.delete(queue_at(ground)))
    applied(await ground.port.apply(config(ground, "late", ownerReferences=owned_by(owner.document)), manager="one"))
    assert await ground.gone(config_at(ground, "late"))


async def test_32_in_the_foreground_the_owner_waits_for_its_children(ground: Ground) -> None:
    await ground.collects()
    owner = applied(await ground.port.apply(queue(ground), manager="one"))
    child = config(ground, "child", ownerReferences=owned_by(owner.document), finalizers=["a.io/hold"])
    await ground.port.apply(child, manager="one")
    assert not deleted(await ground.port.delete(queue_at(ground), propagation="Foreground")).gone
    waiting = applied(await ground.port.get(queue_at(ground))).document["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]

    async def is_marked() -> bool | None:
        result = applied(await ground.port.get(config_at(ground, "child"))).document
        return True if result["metadata"].get("deletionTimestamp") else None

    await ground.until(is_marked)
    assert applied(await ground.port.get(queue_at(ground)))
    await ground.port.patch(config_at(ground, "child"), {"metadata": {"finalizers": None}}, manager="one")
    assert await ground.gone(config_at(ground, "child"))
    assert await ground.gone(queue_at(ground))


async def test_33_orphans_stay_without_the_reference(ground: Ground) -> None:
    await ground.collects()
    owner = applied(await ground.port.apply(queue(ground), manager="one"))
    await ground.port.apply(config(ground, "child", ownerReferences=owned_by(owner.document)), manager="one")
    deleted(await ground.port.delete(queue_at(ground), propagation="Orphan"))
    assert await ground.gone(queue_at(ground))
    left = applied(await ground.port.get(config_at(ground, "child"))).document
    assert "ownerReferences" not in left["metadata"]


async def test_34_a_child_of_two_stays_with_the_one_that_is_left(ground: Ground) -> None:
    await ground.collects()
    owners = [applied(await ground.port.apply(queue(ground, name), manager="one")) for name in ("a", "b")]
    references = owned_by(*(owner.document for owner in owners))
    await ground.port.apply(config(ground, "child", ownerReferences=references), manager="one")
    deleted(await ground.port.delete(queue_at(ground, "a")))

    async def has_one_owner() -> bool | None:
        result = applied(await ground.port.get(config_at(ground, "child"))).document
        return True if result["metadata"]["ownerReferences"] == references[1:] else None

    await ground.until(has_one_owner)
    deleted(await ground.port.delete(queue_at(ground, "b")))
    assert await ground.gone(config_at(ground, "child"))


async def test_35_a_namespace_that_terminates_takes_nothing_new(ground: Ground) -> None:
    other = f"ending-{secrets.token_hex(4)}"
    await ground.make_namespace(other)
    held = {**queue(ground, finalizers=[STORE])}
    held["metadata"]["namespace"] = other
    made = applied(await ground.port.apply(held, manager="one"))
    assert not deleted(await ground.port.delete(ObjectAddress(NAMESPACE, None, other))).gone
    late = config(ground)
    late["metadata"]["namespace"] = other
    refused = denied(await ground.port.apply(late, manager="one"))
    assert (refused.denial, refused.namespace_terminates) == (Denial.FORBIDDEN, True)
    change = {"metadata": {"finalizers": None, "uid": made.uid}}
    await ground.port.patch(address_of(made.document), change, manager="one")
    assert await ground.gone(ObjectAddress(NAMESPACE, None, other))


async def test_36_a_namespace_waits_for_the_finalizers_in_it(ground: Ground) -> None:
    other = f"waiting-{secrets.token_hex(4)}"
    await ground.make_namespace(other)
    for document in (queue(ground, "held", finalizers=[STORE]), queue(ground, "free")):
        document["metadata"]["namespace"] = other
        applied(await ground.port.apply(document, manager="one"))
    deleted(await ground.port.delete(ObjectAddress(NAMESPACE, None, other)))
    held = ObjectAddress(queue_at(ground).kind, other, "held")
    assert await ground.gone(ObjectAddress(queue_at(ground).kind, other, "free"))
    result = applied(await ground.port.get(ObjectAddress(NAMESPACE, None, other))).document
    assert (result["status"]["phase"], result["metadata"].get("deletionTimestamp") is None) == ("Terminating", False)
    assert applied(await ground.port.get(held)).document["metadata"]["deletionTimestamp"]
    await ground.port.patch(held, {"metadata": {"finalizers": None}}, manager="one")
    assert await ground.gone(ObjectAddress(NAMESPACE, None, other))


async def test_36_in_a_namespace_that_is_not_there_nothing_is_made(ground: Ground) -> None:
    nowhere = config(ground)
    nowhere["metadata"]["namespace"] = "nowhere"
    refused = denied(await ground.port.apply(nowhere, manager="one"))
    assert (refused.denial, refused.message) == (Denial.NOT_FOUND, 'namespaces "nowhere" not found')

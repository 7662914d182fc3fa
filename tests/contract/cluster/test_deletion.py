"""Finalizers, cascades and namespaces."""

from __future__ import annotations

import asyncio
import secrets

from headgate_operator.cluster.port import ApiObject, Denial
from headgate_operator.model.kinds import CONFIG_MAP, NAMESPACE, ObjectAddress, address_of
from tests.contract.cluster.documents import config, owned_by, queue, queue_at
from tests.contract.cluster.worlds import CaseWorld, applied, deleted, denied

STORE = "headgate.io/store"


def config_at(world: CaseWorld, name: str) -> ObjectAddress:
    return ObjectAddress(CONFIG_MAP, world.namespace, name)


async def test_26_a_finalizer_turns_a_delete_into_a_time(world: CaseWorld) -> None:
    await world.port.apply(queue(world, finalizers=[STORE]), manager="one")
    assert not deleted(await world.port.delete(queue_at(world))).gone
    left = applied(await world.port.get(queue_at(world))).document["metadata"]
    assert (left["finalizers"], left["deletionTimestamp"] != "", left["generation"]) == ([STORE], True, 2)


async def test_26_a_second_delete_changes_nothing(world: CaseWorld) -> None:
    await world.port.apply(queue(world, finalizers=[STORE]), manager="one")
    await world.port.delete(queue_at(world))
    before = applied(await world.port.get(queue_at(world)))
    assert not deleted(await world.port.delete(queue_at(world))).gone
    assert applied(await world.port.get(queue_at(world))).document == before.document


async def test_27_what_is_being_deleted_can_still_be_changed(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, finalizers=[STORE]), manager="one"))
    await world.port.delete(queue_at(world))
    wanted = queue(world, spec={"deletionPolicy": "Delete"}, finalizers=[STORE], uid=made.uid)
    changed = applied(await world.port.apply(wanted, manager="one"))
    assert changed.document["spec"]["deletionPolicy"] == "Delete"


async def test_28_the_last_finalizer_gone_it_is_gone(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, finalizers=[STORE]), manager="one"))
    await world.port.delete(queue_at(world))
    change = {"metadata": {"finalizers": None, "uid": made.uid}}
    applied(await world.port.patch(queue_at(world), change, manager="one"))
    assert denied(await world.port.get(queue_at(world))).denial is Denial.NOT_FOUND


async def test_28_an_apply_that_leaves_the_finalizer_out_lets_it_go(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, finalizers=[STORE]), manager="one"))
    await world.port.delete(queue_at(world))
    applied(await world.port.apply(queue(world, uid=made.uid), manager="one"))
    assert denied(await world.port.get(queue_at(world))).denial is Denial.NOT_FOUND


async def test_28_an_apply_of_no_finalizers_lets_it_go_and_keeps_those_of_others(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, finalizers=[STORE]), manager="one"))
    await world.port.apply(queue(world, finalizers=["a.io/b"]), manager="other")
    await world.port.delete(queue_at(world))
    left = applied(await world.port.apply(queue(world, finalizers=[], uid=made.uid), manager="one"))
    assert left.document["metadata"]["finalizers"] == ["a.io/b"]
    applied(await world.port.apply(queue(world, finalizers=[], uid=made.uid), manager="other"))
    assert denied(await world.port.get(queue_at(world))).denial is Denial.NOT_FOUND


async def test_29_what_is_being_deleted_gets_no_new_finalizer(world: CaseWorld) -> None:
    await world.port.apply(queue(world, finalizers=["a.io/b"]), manager="other")
    await world.port.delete(queue_at(world))
    refused = denied(await world.port.apply(queue(world, finalizers=[STORE]), manager="one"))
    assert (refused.denial, {cause.field for cause in refused.causes}) == (Denial.INVALID, {"metadata.finalizers"})
    assert refused.causes[0].message.endswith(f'found new finalizers []string{{"{STORE}"}}')


async def test_30_a_finalizer_and_a_delete_that_race_never_leave_it_undeleted(world: CaseWorld) -> None:
    """A finalizer that was acknowledged holds nothing if the delete was under way: the server checks too early."""
    for number in range(5):
        name = f"race-{number}"
        made = applied(await world.port.apply(queue(world, name), manager="one"))
        ordered, added = await asyncio.gather(
            world.port.delete(queue_at(world, name), uid=made.uid),
            world.port.apply(queue(world, name, finalizers=[STORE], uid=made.uid), manager="one", force=True),
        )
        if deleted(ordered).gone:
            assert isinstance(added, ApiObject) or added.is_of_another
            assert await world.gone(queue_at(world, name))
            continue
        applied(added)
        left = applied(await world.port.get(queue_at(world, name))).document["metadata"]
        assert (left["finalizers"], "deletionTimestamp" in left) == ([STORE], True)
        await world.port.patch(queue_at(world, name), {"metadata": {"finalizers": None}}, manager="one")


async def test_31_children_go_with_their_owner_in_the_background(world: CaseWorld) -> None:
    await world.collects()
    owner = applied(await world.port.apply(queue(world), manager="one"))
    await world.port.apply(config(world, "child", ownerReferences=owned_by(owner.document)), manager="one")
    assert deleted(await world.port.delete(queue_at(world), propagation="Background")).gone
    assert await world.gone(config_at(world, "child"))


async def test_31_a_child_that_comes_after_its_owner_has_gone_goes_too(world: CaseWorld) -> None:
    await world.collects()
    owner = applied(await world.port.apply(queue(world), manager="one"))
    deleted(await world.port.delete(queue_at(world)))
    applied(await world.port.apply(config(world, "late", ownerReferences=owned_by(owner.document)), manager="one"))
    assert await world.gone(config_at(world, "late"))


async def test_32_in_the_foreground_the_owner_waits_for_its_children(world: CaseWorld) -> None:
    await world.collects()
    owner = applied(await world.port.apply(queue(world), manager="one"))
    child = config(world, "child", ownerReferences=owned_by(owner.document), finalizers=["a.io/hold"])
    await world.port.apply(child, manager="one")
    assert not deleted(await world.port.delete(queue_at(world), propagation="Foreground")).gone
    waiting = applied(await world.port.get(queue_at(world))).document["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]

    async def is_marked() -> bool | None:
        result = applied(await world.port.get(config_at(world, "child"))).document
        return True if result["metadata"].get("deletionTimestamp") else None

    await world.until(is_marked)
    assert applied(await world.port.get(queue_at(world)))
    await world.port.patch(config_at(world, "child"), {"metadata": {"finalizers": None}}, manager="one")
    assert await world.gone(config_at(world, "child"))
    assert await world.gone(queue_at(world))


async def test_33_orphans_stay_without_the_reference(world: CaseWorld) -> None:
    await world.collects()
    owner = applied(await world.port.apply(queue(world), manager="one"))
    await world.port.apply(config(world, "child", ownerReferences=owned_by(owner.document)), manager="one")
    deleted(await world.port.delete(queue_at(world), propagation="Orphan"))
    assert await world.gone(queue_at(world))
    left = applied(await world.port.get(config_at(world, "child"))).document
    assert "ownerReferences" not in left["metadata"]


async def test_34_a_child_of_two_stays_with_the_one_that_is_left(world: CaseWorld) -> None:
    await world.collects()
    owners = [applied(await world.port.apply(queue(world, name), manager="one")) for name in ("a", "b")]
    references = owned_by(*(owner.document for owner in owners))
    await world.port.apply(config(world, "child", ownerReferences=references), manager="one")
    deleted(await world.port.delete(queue_at(world, "a")))

    async def has_one_owner() -> bool | None:
        result = applied(await world.port.get(config_at(world, "child"))).document
        return True if result["metadata"]["ownerReferences"] == references[1:] else None

    await world.until(has_one_owner)
    deleted(await world.port.delete(queue_at(world, "b")))
    assert await world.gone(config_at(world, "child"))


async def test_35_a_namespace_that_terminates_takes_nothing_new(world: CaseWorld) -> None:
    other = f"ending-{secrets.token_hex(4)}"
    await world.make_namespace(other)
    held = {**queue(world, finalizers=[STORE])}
    held["metadata"]["namespace"] = other
    made = applied(await world.port.apply(held, manager="one"))
    assert not deleted(await world.port.delete(ObjectAddress(NAMESPACE, None, other))).gone
    late = config(world)
    late["metadata"]["namespace"] = other
    refused = denied(await world.port.apply(late, manager="one"))
    assert (refused.denial, [each.reason for each in refused.causes]) == (Denial.FORBIDDEN, ["NamespaceTerminating"])
    change = {"metadata": {"finalizers": None, "uid": made.uid}}
    await world.port.patch(address_of(made.document), change, manager="one")
    assert await world.gone(ObjectAddress(NAMESPACE, None, other))


async def test_36_a_namespace_waits_for_the_finalizers_in_it(world: CaseWorld) -> None:
    other = f"waiting-{secrets.token_hex(4)}"
    await world.make_namespace(other)
    for document in (queue(world, "held", finalizers=[STORE]), queue(world, "free")):
        document["metadata"]["namespace"] = other
        applied(await world.port.apply(document, manager="one"))
    deleted(await world.port.delete(ObjectAddress(NAMESPACE, None, other)))
    held = ObjectAddress(queue_at(world).kind, other, "held")
    assert await world.gone(ObjectAddress(queue_at(world).kind, other, "free"))
    result = applied(await world.port.get(ObjectAddress(NAMESPACE, None, other))).document
    assert (result["status"]["phase"], result["metadata"].get("deletionTimestamp") is None) == ("Terminating", False)
    assert applied(await world.port.get(held)).document["metadata"]["deletionTimestamp"]
    await world.port.patch(held, {"metadata": {"finalizers": None}}, manager="one")
    assert await world.gone(ObjectAddress(NAMESPACE, None, other))


async def test_36_in_a_namespace_that_is_not_there_nothing_is_made(world: CaseWorld) -> None:
    nowhere = config(world)
    nowhere["metadata"]["namespace"] = "nowhere"
    refused = denied(await world.port.apply(nowhere, manager="one"))
    assert (refused.denial, refused.message) == (Denial.NOT_FOUND, 'namespaces "nowhere" not found')

"""uid and resourceVersion as preconditions: nothing that is gone comes back, nothing is written over unseen."""

from __future__ import annotations

from headgate_operator.cluster.port import Denial
from headgate_operator.model.kinds import CONFIG_MAP, ObjectAddress
from tests.contract.cluster.documents import config, queue, queue_at, status_of
from tests.contract.cluster.worlds import CaseWorld, applied, deleted, denied

NOBODYS = "00000000-0000-4000-8000-000000000000"


async def test_13_an_apply_with_the_uid_of_another_is_refused(world: CaseWorld) -> None:
    """With 422 and not 409: to the server it is an attempt to change the uid."""
    made = applied(await world.port.apply(queue(world), manager="one"))
    refused = denied(await world.port.apply(queue(world, spec={"shards": 9}, uid=NOBODYS), manager="one", force=True))
    assert (refused.denial, {cause.field for cause in refused.causes}) == (Denial.INVALID, {"metadata.uid"})
    assert refused.is_of_another
    assert applied(await world.port.get(queue_at(world))).version == made.version


async def test_14_an_apply_with_a_uid_makes_nothing(world: CaseWorld) -> None:
    for document in (queue(world, uid=NOBODYS), config(world, uid=NOBODYS)):
        refused = denied(await world.port.apply(document, manager="one", force=True))
        assert (refused.denial, refused.reason, refused.is_of_another) == (Denial.CONFLICT, "Conflict", True)
        assert "uid mismatch" in refused.message
    assert denied(await world.port.get(queue_at(world))).denial is Denial.NOT_FOUND


async def test_15_an_apply_with_the_right_uid_applies(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    changed = applied(await world.port.apply(queue(world, spec={"shards": 9}, uid=made.uid), manager="one"))
    assert (changed.uid, changed.document["spec"]["shards"]) == (made.uid, 9)


async def test_15_on_status_a_uid_protects_nothing_and_a_version_does(world: CaseWorld) -> None:
    """The server sets aside the metadata of a status before it compares the uid."""
    made = applied(await world.port.apply(queue(world), manager="one"))
    by_uid = status_of(world, {"replicas": 3}, uid=NOBODYS)
    written = applied(await world.port.apply(by_uid, manager="one", subresource="status"))
    assert (written.uid, written.document["status"]) == (made.uid, {"replicas": 3})
    stale = status_of(world, {"replicas": 4}, resourceVersion=made.version)
    refused = denied(await world.port.apply(stale, manager="one", subresource="status", force=True))
    assert refused.denial is Denial.CONFLICT
    fresh = status_of(world, {"replicas": 4}, resourceVersion=written.version)
    again = applied(await world.port.apply(fresh, manager="one", subresource="status"))
    assert again.document["status"] == {"replicas": 4}


async def test_15_a_status_of_what_is_gone_is_not_found(world: CaseWorld) -> None:
    refused = denied(await world.port.apply(status_of(world, {"replicas": 3}), manager="one", subresource="status"))
    assert refused.denial is Denial.NOT_FOUND


async def test_16_a_delete_with_the_uid_of_another_is_refused(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    refused = denied(await world.port.delete(queue_at(world), uid=NOBODYS))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "Conflict")
    assert f"does not match the UID in record ({made.uid})" in refused.message
    assert deleted(await world.port.delete(queue_at(world), uid=made.uid)).gone


async def test_16_a_delete_at_another_version_is_refused(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    await world.port.apply(queue(world, spec={"shards": 9}), manager="one")
    assert denied(await world.port.delete(queue_at(world), version=made.version)).denial is Denial.CONFLICT


async def test_17_a_delete_of_what_is_not_there_reports_it(world: CaseWorld) -> None:
    refused = denied(await world.port.delete(queue_at(world), uid=NOBODYS))
    assert (refused.denial, refused.message) == (Denial.NOT_FOUND, 'queues.headgate.io "emails" not found')


async def test_18_a_replacement_at_a_stale_version_is_refused(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    await world.port.apply(queue(world, spec={"shards": 9}), manager="one")
    stale = queue(world, spec={"shards": 5}, resourceVersion=made.version)
    refused = denied(await world.port.replace(stale, manager="one"))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in refused.message


async def test_18_a_replacement_has_to_name_its_version(world: CaseWorld) -> None:
    await world.port.apply(queue(world), manager="one")
    refused = denied(await world.port.replace(queue(world), manager="one"))
    assert [cause.field for cause in refused.causes] == ["metadata.resourceVersion"]


async def test_19_an_apply_needs_no_version_and_heeds_one(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    changed = applied(await world.port.apply(queue(world, spec={"shards": 9}), manager="one"))
    stale = queue(world, spec={"shards": 5}, resourceVersion=made.version)
    assert denied(await world.port.apply(stale, manager="one")).denial is Denial.CONFLICT
    fresh = queue(world, spec={"shards": 5}, resourceVersion=changed.version)
    assert applied(await world.port.apply(fresh, manager="one")).document["spec"]["shards"] == 5


async def test_20_each_change_has_a_new_version_of_one_count(world: CaseWorld) -> None:
    versions = []
    for number in ("1", "2"):
        for name in ("a", "b"):
            made = applied(await world.port.apply(config(world, name, data={"n": number}), manager="one"))
            versions.append(int(made.version))
    assert versions == sorted(set(versions))


async def test_20_a_create_where_one_is_reports_it(world: CaseWorld) -> None:
    await world.port.create(config(world), manager="one")
    refused = denied(await world.port.create(config(world), manager="one"))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "AlreadyExists")


async def test_20_a_patch_heeds_a_version(world: CaseWorld) -> None:
    made = applied(await world.port.apply(config(world), manager="one"))
    await world.port.apply(config(world, data={"a": "1"}), manager="one")
    at = ObjectAddress(CONFIG_MAP, world.namespace, "settings")
    change = {"metadata": {"resourceVersion": made.version}, "data": {"a": "2"}}
    assert denied(await world.port.patch(at, change, manager="one")).denial is Denial.CONFLICT


async def test_21_a_status_moves_the_version_and_not_the_generation(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    written = applied(await world.port.apply(status_of(world, {"replicas": 3}), manager="one", subresource="status"))
    assert int(written.version) > int(made.version)
    assert written.document["metadata"]["generation"] == made.document["metadata"]["generation"] == 1

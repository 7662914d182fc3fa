"""uid and resourceVersion as preconditions: nothing that is gone comes back, nothing is written over unseen."""

from __future__ import annotations

from headgate_operator.kinds import CONFIG_MAP, ObjectAddress
from headgate_operator.port import Denial
from tests.conformance.cluster.documents import config, queue, queue_at, status_of
from tests.conformance.cluster.grounds import Ground, applied, deleted, denied

NOBODYS = "00000000-0000-4000-8000-000000000000"


async def test_13_an_apply_with_the_uid_of_another_is_refused(ground: Ground) -> None:
    """With 422 and not 409: to the server it is an attempt to change the uid."""
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    refused = denied(
        await ground.port.apply(queue(ground, spec={"shards": 9}, uid=NOBODYS), manager="one", force=True)
    )
    assert (refused.denial, {cause.field for cause in refused.causes}) == (Denial.INVALID, {"metadata.uid"})
    assert refused.is_of_another
    assert applied(await ground.port.get(queue_at(ground))).version == made.version


async def test_14_an_apply_with_a_uid_makes_nothing(ground: Ground) -> None:
    for document in (queue(ground, uid=NOBODYS), config(ground, uid=NOBODYS)):
        refused = denied(await ground.port.apply(document, manager="one", force=True))
        assert (refused.denial, refused.reason, refused.is_of_another) == (Denial.CONFLICT, "Conflict", True)
        assert "uid mismatch" in refused.message
    assert denied(await ground.port.get(queue_at(ground))).denial is Denial.NOT_FOUND


async def test_15_an_apply_with_the_right_uid_applies(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    changed = applied(await ground.port.apply(queue(ground, spec={"shards": 9}, uid=made.uid), manager="one"))
    assert (changed.uid, changed.document["spec"]["shards"]) == (made.uid, 9)


async def test_15_on_status_a_uid_protects_nothing_and_a_version_does(ground: Ground) -> None:
    """The server sets aside the metadata of a status before it compares the uid."""
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    by_uid = status_of(ground, {"replicas": 3}, uid=NOBODYS)
    written = applied(await ground.port.apply(by_uid, manager="one", subresource="status"))
    assert (written.uid, written.document["status"]) == (made.uid, {"replicas": 3})
    stale = status_of(ground, {"replicas": 4}, resourceVersion=made.version)
    refused = denied(await ground.port.apply(stale, manager="one", subresource="status", force=True))
    assert refused.denial is Denial.CONFLICT
    fresh = status_of(ground, {"replicas": 4}, resourceVersion=written.version)
    again = applied(await ground.port.apply(fresh, manager="one", subresource="status"))
    assert again.document["status"] == {"replicas": 4}


async def test_15_a_status_of_what_is_gone_is_not_found(ground: Ground) -> None:
    refused = denied(await ground.port.apply(status_of(ground, {"replicas": 3}), manager="one", subresource="status"))
    assert refused.denial is Denial.NOT_FOUND


async def test_16_a_delete_with_the_uid_of_another_is_refused(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    refused = denied(await ground.port.delete(queue_at(ground), uid=NOBODYS))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "Conflict")
    assert f"does not match the UID in record ({made.uid})" in refused.message
    assert deleted(await ground.port.delete(queue_at(ground), uid=made.uid)).gone


async def test_16_a_delete_at_another_version_is_refused(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    await ground.port.apply(queue(ground, spec={"shards": 9}), manager="one")
    assert denied(await ground.port.delete(queue_at(ground), version=made.version)).denial is Denial.CONFLICT


async def test_17_a_delete_of_what_is_not_there_reports_it(ground: Ground) -> None:
    refused = denied(await ground.port.delete(queue_at(ground), uid=NOBODYS))
    assert (refused.denial, refused.message) == (Denial.NOT_FOUND, 'queues.headgate.io "emails" not found')


async def test_18_a_replacement_at_a_stale_version_is_refused(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    await ground.port.apply(queue(ground, spec={"shards": 9}), manager="one")
    stale = queue(ground, spec={"shards": 5}, resourceVersion=made.version)
    refused = denied(await ground.port.replace(stale, manager="one"))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in refused.message


async def test_18_a_replacement_has_to_name_its_version(ground: Ground) -> None:
    await ground.port.apply(queue(ground), manager="one")
    refused = denied(await ground.port.replace(queue(ground), manager="one"))
    assert [cause.field for cause in refused.causes] == ["metadata.resourceVersion"]


async def test_19_an_apply_needs_no_version_and_heeds_one(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    changed = applied(await ground.port.apply(queue(ground, spec={"shards": 9}), manager="one"))
    stale = queue(ground, spec={"shards": 5}, resourceVersion=made.version)
    assert denied(await ground.port.apply(stale, manager="one")).denial is Denial.CONFLICT
    fresh = queue(ground, spec={"shards": 5}, resourceVersion=changed.version)
    assert applied(await ground.port.apply(fresh, manager="one")).document["spec"]["shards"] == 5


async def test_20_each_change_has_a_new_version_of_one_count(ground: Ground) -> None:
    versions = []
    for number in ("1", "2"):
        for name in ("a", "b"):
            made = applied(await ground.port.apply(config(ground, name, data={"n": number}), manager="one"))
            versions.append(int(made.version))
    assert versions == sorted(set(versions))


async def test_20_a_create_where_one_is_reports_it(ground: Ground) -> None:
    await ground.port.create(config(ground), manager="one")
    refused = denied(await ground.port.create(config(ground), manager="one"))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "AlreadyExists")


async def test_20_a_patch_heeds_a_version(ground: Ground) -> None:
    made = applied(await ground.port.apply(config(ground), manager="one"))
    await ground.port.apply(config(ground, data={"a": "1"}), manager="one")
    at = ObjectAddress(CONFIG_MAP, ground.namespace, "settings")
    change = {"metadata": {"resourceVersion": made.version}, "data": {"a": "2"}}
    assert denied(await ground.port.patch(at, change, manager="one")).denial is Denial.CONFLICT


async def test_21_a_status_moves_the_version_and_not_the_generation(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    written = applied(
        await ground.port.apply(status_of(ground, {"replicas": 3}), manager="one", subresource="status")
    )
    assert int(written.version) > int(made.version)
    assert written.document["metadata"]["generation"] == made.document["metadata"]["generation"] == 1

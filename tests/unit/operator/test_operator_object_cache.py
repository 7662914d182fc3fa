"""The cache of the cluster: the newest version counts, echoes are no news, and each event concerns the right keys."""

from __future__ import annotations

from typing import Any

import pytest

from headgate_operator.informers.event_ingest import EventIngest, urgency_of
from headgate_operator.informers.object_cache import ObjectCache, place_of
from headgate_operator.informers.work_queue import Class
from headgate_operator.model.names import Key, namespace_key

EMAILS = Key("Queue", "shop", "emails")
THEIRS = {"labels": {"whose": "theirs"}}


def queue(name: str = "emails", *, uid: str = "u1", version: int = 1, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": str(version), "generation": 1}
    document = {"kind": "Queue", "apiVersion": "headgate.io/v1beta1", "metadata": metadata, "spec": {}}
    metadata |= more.pop("metadata", {})
    return {**document, **more}


def deployment(*, owner: str | None = "u1", version: int = 5, uid: str = "d1", **metadata: Any) -> dict[str, Any]:
    reference = {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "name": "emails", "uid": owner}
    values = {"name": "emails-mailer", "namespace": "shop", "uid": uid, "resourceVersion": str(version), **metadata}
    if owner is not None:
        values["ownerReferences"] = [reference]
    return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": values, "spec": {"replicas": 1}}


def keys_of(changes: Any) -> set[Key]:
    return set() if changes is None else set(changes.keys)


def test_a_resource_concerns_itself_and_its_namespace() -> None:
    assert {EMAILS, namespace_key("shop")} == keys_of(ObjectCache().update(queue()))


def test_the_same_version_twice_is_no_news() -> None:
    objects = ObjectCache()
    objects.update(queue())
    assert objects.update(queue()) is None


def test_an_older_version_never_replaces_a_newer_one() -> None:
    objects = ObjectCache()
    objects.update(queue(version=10))
    assert objects.update(queue(version=9, spec={"shards": 3})) is None
    assert {} == (objects.get("Queue", "shop", "emails") or {})["spec"]


def test_what_was_deleted_does_not_come_back_by_a_late_answer() -> None:
    objects = ObjectCache()
    objects.update(queue(version=3))
    assert EMAILS in keys_of(objects.update(queue(version=8), deleted=True))
    assert objects.update(queue(version=7)) is None
    assert not objects.is_there("u1")


def test_what_had_only_lost_our_label_comes_back() -> None:
    objects = ObjectCache()
    objects.update(deployment(version=3))
    objects.update(deployment(version=8), deleted=True)
    assert {EMAILS} == keys_of(objects.update(deployment(version=8)))


def test_a_resource_recreated_takes_its_place_before_the_end_of_the_first_was_reported() -> None:
    objects = ObjectCache()
    objects.update(queue(uid="u1", version=3))
    objects.update(queue(uid="u2", version=5))
    assert objects.update(queue(uid="u1", version=3), deleted=True) is None
    assert "u2" == (objects.get("Queue", "shop", "emails") or {})["metadata"]["uid"]


def test_a_child_concerns_its_owner_and_one_of_nobody_its_namespace() -> None:
    objects = ObjectCache()
    assert {EMAILS} == keys_of(objects.update(deployment()))
    assert {namespace_key("shop")} == keys_of(objects.update(deployment(owner=None, uid="d2", name="other")))


def test_an_owner_that_was_taken_off_is_concerned_as_well() -> None:
    objects = ObjectCache()
    objects.update(deployment(version=5))
    assert EMAILS in keys_of(objects.update(deployment(version=6, owner=None)))


def test_children_are_found_by_the_uid_of_their_owner() -> None:
    objects = ObjectCache()
    objects.update(deployment())
    assert ["emails-mailer"] == [each["metadata"]["name"] for each in objects.children_of("u1")]
    assert [] == objects.children_of("u2")


def test_a_process_that_names_a_queue_for_dead_letters_is_concerned_by_its_making_and_its_end() -> None:
    objects = ObjectCache()
    objects.update(queue("orders", uid="o", spec={"deadLetter": "emails"}))
    orders = Key("Queue", "shop", "orders")
    assert orders in keys_of(objects.update(queue()))
    assert orders not in keys_of(objects.update(queue(version=2, status={"observedGeneration": 1})))
    assert orders in keys_of(objects.update(queue(version=3), deleted=True))
    assert frozenset({"emails"}) == objects.dead_letters_of("shop", "orders")


def test_a_namespace_that_ends_concerns_all_in_it() -> None:
    objects = ObjectCache()
    objects.update(queue())
    namespace = {"kind": "Namespace", "metadata": {"name": "shop", "uid": "n", "resourceVersion": "9"}}
    assert {namespace_key("shop")} == keys_of(objects.update(namespace))
    ending = {"name": "shop", "uid": "n", "resourceVersion": "10", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert {EMAILS, namespace_key("shop")} == keys_of(objects.update({"kind": "Namespace", "metadata": ending}))


def test_of_managed_fields_only_that_has_the_replicas_is_kept() -> None:
    objects = ObjectCache()
    fields = [
        {"manager": "headgate", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}}}},
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}},
    ]
    objects.update(deployment(managedFields=fields))
    result = (objects.get("Deployment", "shop", "emails-mailer") or {})["metadata"]["managedFields"]
    assert [("headgate", {"f:spec": {"f:replicas": {}}})] == [(each["manager"], each["fieldsV1"]) for each in result]


class Keys:
    """A queue that notes what is added."""

    def __init__(self) -> None:
        self.added: list[tuple[Key, Class]] = []

    def add(self, key: Key, class_: Class) -> None:
        self.added.append((key, class_))


def test_an_echo_of_our_own_write_gives_no_key() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    intake.changed(queue(version=2))
    keys.added.clear()
    intake.wrote(queue(version=4, status={"shards": 1}))
    intake.changed(queue(version=4, status={"shards": 1}))
    intake.changed(queue(version=3))
    assert [] == keys.added
    intake.changed(queue(version=5, metadata=THEIRS))
    assert (EMAILS, Class.NEW) in keys.added


def test_what_changed_in_nothing_but_its_version_gives_no_key_and_is_known_at_that_version() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    intake.changed(deployment(version=5, managedFields=[]))
    keys.added.clear()
    intake.changed(deployment(version=6, managedFields=[{"manager": "kubelet"}]))
    assert ([], "6") == (keys.added, objects.version_of("d1"))
    assert "6" == (objects.get("Deployment", "shop", "emails-mailer") or {})["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("status", "is_change"),
    [
        ({"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}, False),
        ({"observedGeneration": 1, "replicas": 1}, True),
        ({"conditions": [{"type": "ReplicaFailure", "status": "True"}]}, True),
        ({"conditions": [{"type": "Progressing", "status": "False"}]}, True),
    ],
)
def test_the_status_of_a_deployment_without_pods_is_news_only_if_something_is_there_or_fails(
    status: dict[str, Any], is_change: bool
) -> None:
    objects = ObjectCache()
    asleep = {"spec": {"replicas": 0}}
    objects.update({**deployment(version=5), **asleep})
    assert is_change is (objects.update({**deployment(version=6), **asleep, "status": status}) is not None)


def test_an_echo_that_comes_before_the_answer_gives_no_key() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    with intake.writing(place_of(queue())):
        intake.changed(queue(version=4))
        intake.wrote(queue(version=4))
    assert [] == keys.added


@pytest.mark.parametrize("theirs", [3, 5])
def test_what_others_did_while_we_wrote_is_reported_once_we_know_what_was_ours(theirs: int) -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    with intake.writing(place_of(queue())):
        for version in sorted((4, theirs)):
            intake.changed(queue(version=version, metadata={} if version == 4 else THEIRS))
        assert [] == keys.added
        intake.wrote(queue(version=4))
    assert (EMAILS, Class.NEW) in keys.added


def test_a_write_that_nobody_answered_reports_all_that_was_seen() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    with intake.writing(place_of(queue())):
        intake.changed(queue("other", uid="u2", version=3))
        assert Key("Queue", "shop", "other") in {key for key, _ in keys.added}
        intake.changed(queue(version=4))
        assert EMAILS not in {key for key, _ in keys.added}
    assert EMAILS in {key for key, _ in keys.added}


def test_what_we_deleted_does_not_come_back_by_a_watch_that_reports_its_making_late() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    made = deployment(version=4)
    intake.wrote(made)
    intake.gone(made["metadata"]["uid"])
    intake.changed(made)
    assert not objects.is_there(made["metadata"]["uid"])
    assert [] == keys.added


def test_a_spec_that_an_answer_reported_before_the_watch_is_reported_to_all_but_which_process_asked() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    intake.changed(queue("orders", uid="u2", spec={"deadLetter": "emails"}))
    intake.changed(queue(version=3))
    keys.added.clear()
    changed = queue(version=5, metadata={"generation": 2}, spec={"shards": 3})
    intake.wrote(changed)  # the request was refused at version 3, and the client read the present state
    intake.changed(changed)
    others = {(namespace_key("shop"), Class.CHANGED), (Key("Queue", "shop", "orders"), Class.CHANGED)}
    assert others == set(keys.added)


def test_an_end_that_an_answer_reported_before_the_watch_is_reported_to_all_but_which_process_asked() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    intake.changed(queue(version=3))
    keys.added.clear()
    intake.gone("u1")
    intake.deleted(queue(version=6))
    assert [(namespace_key("shop"), Class.CHANGED)] == keys.added


def test_what_a_list_did_not_have_is_there_again_once_the_watch_reports_it() -> None:
    objects = ObjectCache()
    intake = EventIngest(objects, Keys())  # type: ignore[arg-type]
    made = queue(version=4)
    intake.wrote(made)
    intake.lost(made["metadata"]["uid"])
    assert not objects.is_there(made["metadata"]["uid"])
    intake.changed(made)
    assert objects.is_there(made["metadata"]["uid"])


def test_a_lost_label_that_is_reported_after_our_write_has_restored_it_is_no_end() -> None:
    """A watch that continues after a cut replays what was written before (seed 46 of the operator's lives)."""
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    intake.changed(deployment(version=4))
    intake.wrote(deployment(version=7))
    keys.added.clear()
    intake.deleted(deployment(version=6))
    intake.changed(deployment(version=7))
    assert ([], True) == (keys.added, objects.get("Deployment", "shop", "emails-mailer") is not None)
    intake.deleted(deployment(version=8))
    assert objects.get("Deployment", "shop", "emails-mailer") is None


def test_what_a_list_no_longer_has_is_reported_as_gone() -> None:
    keys, objects = Keys(), ObjectCache()
    intake = EventIngest(objects, keys)  # type: ignore[arg-type]
    intake.changed(queue(), listed=True)
    keys.added.clear()
    intake.lost("u1")
    assert (EMAILS, Class.CHANGED) in keys.added
    assert not objects.is_there("u1")


def test_how_urgent_news_are() -> None:
    settled = {"status": {"observedGeneration": 1}}
    assert Class.NEW is urgency_of(queue(), listed=True)
    assert Class.RESYNC is urgency_of(queue(**settled), listed=True)
    assert Class.CHANGED is urgency_of(queue(**settled), listed=False)
    assert Class.CHANGED is urgency_of(queue(metadata={"generation": 2}, **settled), listed=True)
    assert Class.RESYNC is urgency_of(deployment(), listed=True)
    assert Class.CHILD is urgency_of(deployment(), listed=False)

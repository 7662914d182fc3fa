"""Server-side apply: which manager owns a field, which takes it from another, and what goes when it is left out."""

from __future__ import annotations

from typing import Any

from headgate_operator.cluster.port import Denial
from headgate_operator.model.kinds import CONFIG_MAP, ObjectAddress
from tests.contract.cluster.documents import config, queue, queue_at
from tests.contract.cluster.worlds import CaseWorld, applied, denied


def fields_by_manager(document: Any) -> dict[str, Any]:
    """The fields that each manager owns."""
    return {each["manager"]: each["fieldsV1"] for each in document["metadata"]["managedFields"]}


async def test_01_an_apply_makes_what_is_not_there(world: CaseWorld) -> None:
    made = applied(await world.port.apply(config(world, data={"a": "1"}), manager="one"))
    assert made.document["data"] == {"a": "1"}
    assert made.uid
    assert fields_by_manager(made.document) == {"one": {"f:data": {"f:a": {}}}}


async def test_02_an_apply_changes_what_is_there(world: CaseWorld) -> None:
    made = applied(await world.port.apply(config(world, data={"a": "1"}), manager="one"))
    changed = applied(await world.port.apply(config(world, data={"a": "2"}), manager="one"))
    assert (changed.uid, changed.document["data"]) == (made.uid, {"a": "2"})
    assert int(changed.version) > int(made.version)


async def test_03_the_same_apply_again_keeps_the_version(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, spec={"shards": 6}), manager="one"))
    again = applied(await world.port.apply(queue(world, spec={"shards": 6}), manager="one"))
    assert again.document == made.document


async def test_04_two_managers_own_fields_side_by_side(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    both = applied(await world.port.apply(queue(world, spec={"retention": "5d"}), manager="two"))
    assert (both.document["spec"]["shards"], both.document["spec"]["retention"]) == (6, "5d")
    assert fields_by_manager(both.document) == {
        "one": {"f:spec": {"f:shards": {}}},
        "two": {"f:spec": {"f:retention": {}}},
    }


async def test_05_a_conflict_names_the_manager_and_the_field(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    refused = denied(await world.port.apply(queue(world, spec={"shards": 7}), manager="two"))
    assert (refused.denial, refused.reason) == (Denial.CONFLICT, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .spec.shards'
    assert [(cause.reason, cause.field) for cause in refused.causes] == [("FieldManagerConflict", ".spec.shards")]


async def test_05_several_conflicts_are_all_reported(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6, "retention": "5d"}), manager="one")
    refused = denied(await world.port.apply(queue(world, spec={"shards": 7, "retention": "6d"}), manager="two"))
    assert [cause.field for cause in refused.causes] == [".spec.retention", ".spec.shards"]
    assert refused.message.startswith('Apply failed with 2 conflicts: conflicts with "one":')


async def test_05_a_client_that_states_the_same_shares_the_field_without_conflict(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    shared = applied(await world.port.apply(queue(world, spec={"shards": 6}), manager="two"))
    owned: dict[str, Any] = {"f:spec": {"f:shards": {}}}
    assert fields_by_manager(shared.document) == {"one": owned, "two": owned}


async def test_06_force_takes_the_field(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6, "retention": "5d"}), manager="one")
    taken = applied(await world.port.apply(queue(world, spec={"shards": 7}), manager="two", force=True))
    assert taken.document["spec"]["shards"] == 7
    assert fields_by_manager(taken.document) == {
        "one": {"f:spec": {"f:retention": {}}},
        "two": {"f:spec": {"f:shards": {}}},
    }


async def test_07_a_field_left_out_is_removed(world: CaseWorld) -> None:
    await world.port.apply(config(world, data={"a": "1", "b": "2"}), manager="one")
    left = applied(await world.port.apply(config(world, data={"a": "1"}), manager="one"))
    assert left.document["data"] == {"a": "1"}


async def test_07_what_a_patch_has_written_stays_when_another_leaves_it_out(world: CaseWorld) -> None:
    await world.port.apply(config(world, data={"a": "1"}), manager="one")
    at = ObjectAddress(CONFIG_MAP, world.namespace, "settings")
    patched = applied(await world.port.patch(at, {"data": {"b": "2"}}, manager="hand"))
    assert fields_by_manager(patched.document) == {"one": {"f:data": {"f:a": {}}}, "hand": {"f:data": {"f:b": {}}}}
    left = applied(await world.port.apply(config(world, data={}), manager="one"))
    assert left.document["data"] == {"b": "2"}


async def test_07_a_patch_takes_a_field_without_asking(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    taken = applied(await world.port.patch(queue_at(world), {"spec": {"shards": 7}}, manager="hand"))
    assert fields_by_manager(taken.document) == {"hand": {"f:spec": {"f:shards": {}}}}
    refused = denied(await world.port.apply(queue(world, spec={"shards": 6}), manager="one"))
    words = 'conflict with "hand" using headgate.io/v1beta1: .spec.shards'
    assert refused.message == f"Apply failed with 1 conflict: {words}"


async def test_08_a_field_left_out_stays_where_another_owns_it(world: CaseWorld) -> None:
    for manager in ("one", "two"):
        await world.port.apply(queue(world, spec={"shards": 6}), manager=manager)
    left = applied(await world.port.apply(queue(world), manager="one"))
    assert left.document["spec"]["shards"] == 6


async def test_08_a_field_of_ours_left_out_by_its_last_owner_has_its_default_again(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"shards": 6}), manager="one")
    left = applied(await world.port.apply(queue(world), manager="one"))
    assert left.document["spec"]["shards"] == 4
    assert left.document["metadata"]["generation"] == 2

"""Lists: in pages, how current they are, metadata alone, by labels and by name."""

from __future__ import annotations

from headgate_operator.cluster.port import Denial
from headgate_operator.model.kinds import CONFIG_MAP, QUEUE, ResourceKind
from tests.contract.cluster.documents import config, queue, queue_at
from tests.contract.cluster.worlds import CaseWorld, applied, deleted, denied, page

NOBODYS = ResourceKind("nobody.example", "v1", "things", "Thing")


async def test_43_a_list_comes_in_pages_of_one_time(world: CaseWorld) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in names:
        await world.port.apply(queue(world, name), manager="one")
    first = page(await world.port.list(QUEUE, world.namespace, limit=2))
    await world.port.apply(queue(world, "q9"), manager="one")
    second = page(await world.port.list(QUEUE, world.namespace, limit=2, more=first.more))
    third = page(await world.port.list(QUEUE, world.namespace, limit=2, more=second.more))
    matches = [one["metadata"]["name"] for part in (first, second, third) for one in part.items]
    assert (matches, third.more) == (names, None)
    assert first.version == second.version == third.version


async def test_43_a_continuation_that_nobody_gave_is_refused(world: CaseWorld) -> None:
    refused = denied(await world.port.list(QUEUE, world.namespace, limit=2, more="nonsense"))
    assert refused.denial in (Denial.MALFORMED, Denial.GONE)


async def test_44_a_list_has_all_that_was_written_before_it_began(world: CaseWorld) -> None:
    """So an object that was known by then, and is not in it, is gone."""
    for number in range(5):
        made = applied(await world.port.apply(queue(world, f"q{number}"), manager="one"))
        listed = page(await world.port.list(QUEUE, world.namespace, metadata_only=True, limit=100))
        assert int(listed.version) >= int(made.version)
        assert made.uid in [one["metadata"]["uid"] for one in listed.items]
    deleted(await world.port.delete(queue_at(world, "q0")))
    listed = page(await world.port.list(QUEUE, world.namespace, metadata_only=True, limit=100))
    assert [one["metadata"]["name"] for one in listed.items] == ["q1", "q2", "q3", "q4"]


async def test_45_metadata_alone_has_no_spec(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, labels={"a": "b"}), manager="one"))
    listed = page(await world.port.list(QUEUE, world.namespace, metadata_only=True))
    (item,) = listed.items
    assert (item["kind"], "spec" in item) == ("Queue", False)
    assert (item["metadata"]["uid"], item["metadata"]["labels"]) == (made.uid, {"a": "b"})
    alone = applied(await world.port.get(queue_at(world), metadata_only=True)).document
    assert (alone["metadata"]["resourceVersion"], "spec" in alone) == (made.version, False)


async def test_45_a_list_chooses_by_labels(world: CaseWorld) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"y": "1"})):
        await world.port.apply(config(world, name, labels=labels), manager="one")

    async def chosen(labels: str) -> list[str]:
        listed = page(await world.port.list(CONFIG_MAP, world.namespace, labels=labels))
        return [one["metadata"]["name"] for one in listed.items if one["metadata"]["name"] in ("a", "b", "c")]

    assert await chosen("x=1") == ["a"]
    assert await chosen("x") == ["a", "b"]
    assert await chosen("x!=1") == ["b", "c"]
    assert await chosen("x in (1,2),y!=1") == ["a", "b"]
    assert await chosen("!x") == ["c"]


async def test_45_a_list_chooses_one_name(world: CaseWorld) -> None:
    for name in ("a", "b"):
        await world.port.apply(config(world, name), manager="one")
    listed = page(await world.port.list(CONFIG_MAP, world.namespace, fields="metadata.name=b"))
    assert [one["metadata"]["name"] for one in listed.items] == ["b"]


async def test_45_items_state_their_kind(world: CaseWorld) -> None:
    await world.port.apply(config(world, labels={"x": "1"}), manager="one")
    (item,) = page(await world.port.list(CONFIG_MAP, world.namespace, labels="x=1")).items
    assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")


async def test_45_a_kind_that_is_not_installed_is_not_found(world: CaseWorld) -> None:
    assert denied(await world.port.list(NOBODYS, world.namespace)).denial is Denial.NOT_FOUND

"""Lists: in pages, from the cache, metadata alone, by labels."""

from __future__ import annotations

from headgate_operator.kinds import CONFIG_MAP, QUEUE, ResourceKind
from headgate_operator.port import Denial
from tests.conformance.cluster.documents import config, queue, queue_at
from tests.conformance.cluster.grounds import Ground, applied, denied, page

NOBODYS = ResourceKind("nobody.example", "v1", "things", "Thing")


async def test_43_a_list_comes_in_pages_of_one_time(ground: Ground) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in names:
        await ground.port.apply(queue(ground, name), manager="one")
    first = page(await ground.port.list(QUEUE, ground.namespace, limit=2))
    await ground.port.apply(queue(ground, "q9"), manager="one")
    second = page(await ground.port.list(QUEUE, ground.namespace, limit=2, more=first.more))
    third = page(await ground.port.list(QUEUE, ground.namespace, limit=2, more=second.more))
    matches = [one["metadata"]["name"] for part in (first, second, third) for one in part.items]
    assert (matches, third.more) == (names, None)
    assert first.version == second.version == third.version


async def test_43_a_continuation_that_nobody_gave_is_refused(ground: Ground) -> None:
    refused = denied(await ground.port.list(QUEUE, ground.namespace, limit=2, more="nonsense"))
    assert refused.denial in (Denial.MALFORMED, Denial.GONE)


async def test_44_a_list_from_the_cache_has_a_version_to_watch_from(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))

    async def shows_it() -> str | None:
        listed = page(await ground.port.list(QUEUE, ground.namespace, cached=True))
        return listed.version if [one["metadata"]["uid"] for one in listed.items] == [made.uid] else None

    assert int(await ground.until(shows_it)) >= int(made.version)


async def test_45_metadata_alone_has_no_spec(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground, labels={"a": "b"}), manager="one"))
    listed = page(await ground.port.list(QUEUE, ground.namespace, metadata_only=True))
    (item,) = listed.items
    assert (item["kind"], "spec" in item) == ("Queue", False)
    assert (item["metadata"]["uid"], item["metadata"]["labels"]) == (made.uid, {"a": "b"})
    alone = applied(await ground.port.get(queue_at(ground), metadata_only=True)).document
    assert (alone["metadata"]["resourceVersion"], "spec" in alone) == (made.version, False)


async def test_45_a_list_chooses_by_labels(ground: Ground) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"y": "1"})):
        await ground.port.apply(config(ground, name, labels=labels), manager="one")

    async def chosen(labels: str) -> list[str]:
        listed = page(await ground.port.list(CONFIG_MAP, ground.namespace, labels=labels))
        return [one["metadata"]["name"] for one in listed.items if one["metadata"]["name"] in ("a", "b", "c")]

    assert await chosen("x=1") == ["a"]
    assert await chosen("x") == ["a", "b"]
    assert await chosen("x!=1") == ["b", "c"]
    assert await chosen("x in (1,2),y!=1") == ["a", "b"]
    assert await chosen("!x") == ["c"]


async def test_45_items_state_their_kind(ground: Ground) -> None:
    await ground.port.apply(config(ground, labels={"x": "1"}), manager="one")
    (item,) = page(await ground.port.list(CONFIG_MAP, ground.namespace, labels="x=1")).items
    assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")


async def test_45_a_kind_that_is_not_installed_is_not_found(ground: Ground) -> None:
    assert denied(await ground.port.list(NOBODYS, ground.namespace)).denial is Denial.NOT_FOUND

"""Watches: from where, in which order, until when."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.model.kinds import CONFIG_MAP, QUEUE, ObjectAddress, ResourceKind
from tests.contract.cluster.documents import config, queue, queue_at
from tests.contract.cluster.worlds import CaseWorld, applied, deleted, denied, page
from tests.kit.simulated_cluster.watching import WatchEvent

NOBODYS = ResourceKind("nobody.example", "v1", "things", "Thing")


async def first(changes: AsyncIterator[WatchEvent | Denied], count: int) -> list[WatchEvent]:
    """The first events, bookmarks included."""
    events: list[WatchEvent] = []
    async for change in changes:
        assert isinstance(change, WatchEvent), str(change)
        events.append(change)
        if len(events) == count:
            break
    return events


async def heard(changes: AsyncIterator[WatchEvent | Denied], count: int) -> list[WatchEvent]:
    """The first changes, bookmarks aside."""
    return await first((change async for change in changes if getattr(change, "type", "") != "BOOKMARK"), count)


def summarize(changes: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(change.type, change.document["metadata"]["name"]) for change in changes]


async def test_37_a_watch_continues_from_the_version_of_a_list(world: CaseWorld) -> None:
    await world.port.apply(queue(world, "before"), manager="one")
    listed = page(await world.port.list(QUEUE, world.namespace))
    await world.port.apply(queue(world, "after"), manager="one")
    changes = await heard(world.watch(QUEUE, version=listed.version), 1)
    assert summarize(changes) == [("ADDED", "after")]


async def test_37_a_watch_without_a_version_begins_with_all_there_is(world: CaseWorld) -> None:
    for name in ("a", "b"):
        await world.port.apply(queue(world, name), manager="one")
    changes = await heard(world.watch(QUEUE), 2)
    assert sorted(summarize(changes)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_38_a_bookmark_shows_how_far_a_quiet_watch_is(world: CaseWorld) -> None:
    """A real server sends one every minute, and one two seconds before the end if the watch was open by then."""
    made = applied(await world.port.apply(queue(world), manager="one"))
    [mark] = await first(world.watch(QUEUE, version=made.version, within_s=12), 1)
    assert mark.type == "BOOKMARK"
    assert int(mark.version) >= int(made.version)
    assert mark.document["kind"] == "Queue"


async def test_39_a_version_that_is_compacted_is_gone(world: CaseWorld) -> None:
    await world.port.apply(queue(world), manager="one")
    answers = [change async for change in world.watch(QUEUE, version="1")]
    gone = denied(answers[0])
    assert (gone.denial, gone.status, gone.reason, len(answers)) == (Denial.GONE, 410, "Expired", 1)
    assert gone.message.startswith("too old resource version: 1")


async def test_40_events_come_in_the_order_of_the_writes(world: CaseWorld) -> None:
    listed = page(await world.port.list(CONFIG_MAP, world.namespace))
    written = []
    for number in range(4):
        for name in ("a", "b"):
            made = applied(await world.port.apply(config(world, name, data={"n": str(number)}), manager="one"))
            written.append((name, made.version))
    watch = world.watch(CONFIG_MAP, version=listed.version)
    changes = [one for one in await heard(watch, 8) if one.document["metadata"]["name"] in ("a", "b")]
    assert [(one.document["metadata"]["name"], one.version) for one in changes] == written[: len(changes)]
    assert [one.type for one in changes[:2]] == ["ADDED", "ADDED"]
    assert {one.type for one in changes[2:]} == {"MODIFIED"}


async def test_41_a_deletion_carries_the_last_state(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, spec={"shards": 9}), manager="one"))
    deleted(await world.port.delete(queue_at(world)))
    changes = await heard(world.watch(QUEUE, version=made.version), 1)
    (last,) = changes
    assert (last.type, last.document["spec"]["shards"]) == ("DELETED", 9)
    assert int(last.version) > int(made.version)


async def test_41_a_deletion_held_by_a_finalizer_is_first_a_change(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world, finalizers=["a.io/b"]), manager="one"))
    deleted(await world.port.delete(queue_at(world)))
    await world.port.patch(queue_at(world), {"metadata": {"finalizers": None}}, manager="one")
    changes = await heard(world.watch(QUEUE, version=made.version), 2)
    assert [change.type for change in changes] == ["MODIFIED", "DELETED"]
    assert changes[0].document["metadata"]["deletionTimestamp"]


async def test_42_what_loses_the_label_is_deleted_for_the_selector(world: CaseWorld) -> None:
    ours = {"app.kubernetes.io/managed-by": "headgate"}
    made = applied(await world.port.apply(config(world, labels=ours), manager="one"))
    await world.port.apply(config(world, data={"a": "1"}), manager="one")
    await world.port.apply(config(world, labels=ours), manager="one")
    await world.port.apply(config(world, "another"), manager="one")
    watch = world.watch(CONFIG_MAP, version=made.version, labels="app.kubernetes.io/managed-by=headgate")
    changes = await heard(watch, 2)
    assert summarize(changes) == [("DELETED", "settings"), ("ADDED", "settings")]
    assert changes[0].document["metadata"]["labels"] == ours


async def test_42_a_watch_of_one_name_reports_no_other(world: CaseWorld) -> None:
    listed = page(await world.port.list(CONFIG_MAP, world.namespace))
    for name in ("another", "settings"):
        await world.port.apply(config(world, name), manager="one")
    watch = world.watch(CONFIG_MAP, version=listed.version, fields="metadata.name=settings")
    assert summarize(await heard(watch, 1)) == [("ADDED", "settings")]


async def test_42_a_watch_of_a_kind_that_is_not_installed_reports_it(world: CaseWorld) -> None:
    answers = [change async for change in world.watch(NOBODYS, within_s=5)]
    assert [denied(answer).denial for answer in answers] == [Denial.NOT_FOUND]


async def test_42_a_watch_ends_quietly_after_its_time(world: CaseWorld) -> None:
    made = applied(await world.port.apply(config(world), manager="one"))
    at = ObjectAddress(CONFIG_MAP, world.namespace, "settings")
    assert applied(await world.port.get(at)).version == made.version
    async for change in world.watch(CONFIG_MAP, version=made.version, within_s=2):
        assert isinstance(change, WatchEvent)

"""Entries of a keyspace that trees before 0.1 have left: they are used where they lie, and moved once."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headgate.errors import Unavailable
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.decide_generation import first
from headgate.store.catalogue.entry import (
    Entry,
    EntryState,
    Name,
    StoragePlace,
    WrongDataCenter,
    entry_cells,
    entry_of,
)
from headgate.store.catalogue.tables import EARLIER_ENTRIES, ENTRIES
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.store import OutcomeUnknown
from tests.kit.simulated_store.cluster import Cluster
from tests.kit.simulated_store.store import SimulatedStore
from tests.kit.simulated_world import Process, World

EMAILS = Name("Queue", "shop", "emails")
SKEW = 500_000
CREATION = UUID("11111111-2222-4333-8444-555555555555")


def earlier_entry(home: str = "dc1") -> Entry:
    """As a tree before 0.1 has made it."""
    place = StoragePlace(home, "headgate", "dedicated")
    document = {"spec": {"shards": 6}}
    return Entry(EMAILS, CREATION, "cli/us", EntryState.ACTIVE, 3, document, place, first(6), 5, b"key")


def catalogue(process: Process, cluster: Cluster) -> Catalogue:
    """A process's own."""
    store = SimulatedStore(cluster, process)
    return Catalogue(store, now_us=process.clock.wall_us, owner="cli/us", new_uuid=process.uuid)


async def declare(one: Catalogue) -> None:
    """Create a queue of that name at home in the data center of the process."""
    place = replace(earlier_entry().place, data_center=one.data_center)
    await one.declare(EMAILS, {"spec": {}}, place=place, shards=1)


async def leave(process: Process, cluster: Cluster, entry: Entry) -> None:
    """Write an entry as those trees did."""
    cells = {"home_data_center": entry.place.data_center, **entry_cells(entry)}
    statement = InsertIfAbsent(EARLIER_ENTRIES, {**EMAILS.key, **cells}, attempt=process.uuid())
    await SimulatedStore(cluster, process).decide(statement)


async def earlier_row(process: Process, cluster: Cluster) -> Any:
    """The row that those trees read."""
    select = Select(EARLIER_ENTRIES, EMAILS.key, consistency=Consistency.SERIAL)
    return (await SimulatedStore(cluster, process).read(select))[0]


async def set_state_as_earlier(process: Process, cluster: Cluster, state: EntryState) -> bool:
    """As those trees did: whether it was applied."""
    conditions = is_("id", CREATION), is_("owner", "cli/us"), is_("state", EntryState.ACTIVE.value)
    cells = {"state": state.value}
    statement = UpdateIf(EARLIER_ENTRIES, EMAILS.key, cells, *conditions, attempt=process.uuid())
    try:
        return (await SimulatedStore(cluster, process).decide(statement)).applied
    except OutcomeUnknown:
        return False


def test_an_earlier_entry_is_read_as_it_was_and_a_read_moves_nothing() -> None:
    with World(1) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            person = world.process("person")
            await person.start(leave(person, cluster, earlier_entry()))
            one = catalogue(person, cluster)
            for consistency in (Consistency.LOCAL_QUORUM, Consistency.SERIAL):
                known = await person.start(one.find(EMAILS, consistency=consistency))
                assert known is not None
                assert earlier_entry() == known.entry
            assert [earlier_entry()] == [each.entry for each in await person.start(one.list("shop"))]
            assert [earlier_entry()] == [each.entry for each in await person.start(one.owned("cli/"))]
            assert "cli/us" == (await person.start(earlier_row(person, cluster))).owner

        world.run(scenario())


def test_a_change_moves_it_and_no_earlier_process_uses_or_changes_it_any_more() -> None:
    with World(1) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            person = world.process("person")
            await person.start(leave(person, cluster, earlier_entry()))
            one = catalogue(person, cluster)
            announced = await person.start(one.announce(earlier_entry(), 2, 8, skew_us=SKEW))
            assert (CREATION, 3, b"key") == (announced.id, announced.revision, announced.receipt_key)
            row = await person.start(earlier_row(person, cluster))
            assert ("dc1", "cli/us") != (row.home_data_center, row.owner)
            assert "dc1" not in {entry_of(row).place.data_center}
            assert not await person.start(set_state_as_earlier(person, cluster, EntryState.RETAINED))
            known = await person.start(catalogue(person, cluster).find(EMAILS))
            assert known is not None
            assert announced == known.entry

        world.run(scenario())


def test_what_was_deleted_after_it_was_moved_stays_deleted() -> None:
    with World(1) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            person = world.process("person")
            await person.start(leave(person, cluster, earlier_entry()))
            one = catalogue(person, cluster)
            deleting = await person.start(one.set_state(earlier_entry(), EntryState.DELETING))
            await person.start(one.set_state(deleting, EntryState.GONE))
            assert await person.start(one.find(EMAILS)) is None
            await person.start(one.move_earlier())
            assert await person.start(one.find(EMAILS)) is None
            assert [] == await person.start(one.list("shop"))

        world.run(scenario())


def test_an_entry_at_home_in_another_data_center_is_left_to_its_processes() -> None:
    with World(1) as world:
        cluster = Cluster(world, data_centres={"dc1": 3, "dc2": 3})

        async def scenario() -> None:
            person = world.process("person")
            await person.start(leave(person, cluster, earlier_entry("dc2")))
            await person.start(catalogue(person, cluster).move_earlier())
            with pytest.raises(WrongDataCenter):
                await person.start(declare(catalogue(person, cluster)))
            assert "dc2" == (await person.start(earlier_row(person, cluster))).home_data_center
            there = world.process("there", data_centre="dc2")
            await there.start(catalogue(there, cluster).move_earlier())
            await world.sleep(5)
            with pytest.raises(WrongDataCenter):
                await person.start(declare(catalogue(person, cluster)))
            select = Select(ENTRIES, {"home_data_center": "dc2", **EMAILS.key})
            assert CREATION == (await there.start(SimulatedStore(cluster, there).read(select)))[0].id

        world.run(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_movers_and_an_earlier_writer_at_once_with_answers_lost_leave_one_creation_with_its_last_state(
    seed: int,
) -> None:
    with World(seed, shuffled=True) as world:
        cluster = Cluster(world)
        rng = world.rng("faults")

        async def move(person: Process) -> None:
            for _ in range(20):
                with contextlib.suppress(Unavailable):
                    await catalogue(person, cluster).move_earlier()
                    return
                await asyncio.sleep(1)

        async def scenario() -> None:
            people = [world.process(f"person{number}") for number in range(3)]
            await people[0].start(leave(people[0], cluster, earlier_entry()))
            for node in cluster.nodes:
                for person in people[:2]:
                    if rng.random() < 0.5:
                        world.network.lose(source=node, target=person.name, count=rng.randrange(1, 4))
            tasks = [each.start(move(each)) for each in people[:2]]
            applied = people[2].start(set_state_as_earlier(people[2], cluster, EntryState.RETAINED))
            for task in tasks:
                await task
            known = await people[2].start(catalogue(people[2], cluster).find(EMAILS))
            assert known is not None
            state = EntryState.RETAINED if await applied else EntryState.ACTIVE
            assert replace(earlier_entry(), state=state) == known.entry

        world.run(scenario())


def test_killed_before_any_step_the_next_that_changes_it_finishes_the_move() -> None:
    steps = 0
    for strike in range(1, 200):
        with World(strike) as world:
            cluster = Cluster(world)

            async def scenario(world: World = world, cluster: Cluster = cluster, strike: int = strike) -> int:
                first_ = world.process("first")
                await first_.start(leave(first_, cluster, earlier_entry()))
                struck = world.process("struck")
                struck.kill_before_step(strike)
                struck.start(catalogue(struck, cluster).move_earlier())
                await world.sleep(30)
                done = struck.steps < strike
                second = world.process("second")
                known = await second.start(catalogue(second, cluster).find(EMAILS))
                assert known is not None
                assert earlier_entry() == known.entry
                moved = await second.start(catalogue(second, cluster).turn(known.entry, skew_us=SKEW))
                assert earlier_entry() == moved
                return struck.steps if done else 0

            steps = world.run(scenario())
        if steps:
            break
    assert 3 < steps < 200, "every step of a move was struck"

"""Queues and counters in two data centers, one of which is lost: each continues with all that is at home in it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from headgate.client.message import Message
from headgate.client.queue import Queue
from headgate.errors import HeadgateError
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import EntryState, Name, WrongDataCenter
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Program, Schema, Shop, counter_text, queue_text

CENTRES = {"dc1": ["n1", "n2", "n3"], "dc2": ["n4", "n5", "n6"]}
OTHER = {"dc1": "dc2", "dc2": "dc1"}
BEYOND_KNOWLEDGE_S = 70
"""Longer than any knowledge of the catalogue may be used."""


def simulate(scenario: Callable[[Shop], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in a world with two data centers."""
    with World(1) as world:
        cluster = Cluster(world, data_centres={name: len(nodes) for name, nodes in CENTRES.items()})
        world.run(scenario(Shop(world, cluster, Schema(data_centers=tuple(CENTRES)))))


def cut(shop: Shop) -> None:
    """Each data center loses the other."""
    shop.world.network.cut(*CENTRES.values())


async def opened(program: Program, name: str) -> Queue:
    """The queue as that process has it."""
    await program.process.start(program.connection.open())
    return await program.process.start(program.connection.queue(name))


async def refusal(program: Program, name: str) -> str:
    """The one line with which a queue is refused."""
    await program.process.start(program.connection.open())

    async def ask() -> str:
        try:
            await program.connection.queue(name)
        except HeadgateError as error:
            return f"{type(error).__name__}: {error}"
        return "opened"

    return await program.process.start(ask())


async def pass_through(program: Program, queue: Queue, *names: str) -> list[str]:
    """Put these, receive until nothing comes any more, and return what came, in order of names."""

    async def work() -> list[str]:
        await queue.put_many(list(names))
        came: list[Message] = []
        while received := await queue.receive(50, wait=10):
            came += received
            for message in received:
                await message.ack()
        return sorted(str(message.payload.decode()) for message in came)

    return await program.process.start(work())


@pytest.mark.parametrize("home", sorted(CENTRES))
def test_with_the_other_data_center_lost_queues_and_counters_at_home_here_are_used_and_created_and_resharded(
    home: str,
) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 3}"), counter_text(), home=home)
        program = shop.program("program", home=home)
        queue = await opened(program, "shop/emails")
        assert ["a"] == await pass_through(program, queue, "a")
        cut(shop)
        await shop.world.sleep(BEYOND_KNOWLEDGE_S)
        assert ["b"] == await pass_through(program, queue, "b")
        late = shop.program("late", home=home)
        await late.process.start((await opened(late, "shop/emails")).put("c"))
        assert ["c"] == await pass_through(program, queue)
        (again,) = await shop.apply(queue_text("{shards: 5}"), home=home)
        assert again.entry is not None
        assert again.entry.generations.next is not None
        await shop.apply(queue_text("{shards: 1}", name="fresh"), home=home)
        fresh = await program.process.start(program.connection.queue("shop/fresh"))
        assert ["d"] == await pass_through(program, fresh, "d")
        counter = await program.process.start(program.connection.counter("shop/page-views"))
        await program.process.start(counter.add("k", 3))
        assert 3 == await program.process.start(counter.value("k"))
        await shop.world.sleep(2 * BEYOND_KNOWLEDGE_S)
        many = [f"m{number}" for number in range(20)]
        assert sorted(many) == await pass_through(program, queue, *many)
        assert 5 == queue.entry.generations.current.shards or queue.entry.generations.next is not None
        shop.world.network.heal()
        await shop.world.sleep(BEYOND_KNOWLEDGE_S)
        assert ["e"] == await pass_through(program, queue, "e")

    simulate(scenario)


def test_a_name_at_home_elsewhere_is_refused_in_one_line_that_names_the_home() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text(), home="dc1")
        await shop.world.sleep(5)
        for lost in (False, True):
            if lost:
                cut(shop)
            line = await refusal(shop.program(f"elsewhere-{lost}", home="dc2"), "shop/emails")
            assert line.startswith("WrongDataCenter: "), line
            assert "set DATA_CENTER=dc1" in line
            assert "\n" not in line
            person = shop.world.process(f"person-{lost}", data_centre="dc2")
            (applied,) = await person.start(shop.applied(person, queue_text()))
            assert applied.refused
            assert "DATA_CENTER=dc1" in applied.notes[0]

    simulate(scenario)


def test_a_declaration_is_refused_where_the_name_or_its_place_is_elsewhere() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text(), home="dc1")
        assert made.entry is not None
        await shop.world.sleep(5)
        person = shop.world.process("person", data_centre="dc2")
        store = SimulatedStore(shop.cluster, person)
        catalogue = Catalogue(store, now_us=person.clock.wall_us, owner="cli/test")
        place = made.entry.place
        fresh = Name("Queue", "shop", "fresh")
        for name, data_center in ((made.entry.name, "dc2"), (fresh, "dc1")):
            wanted = replace(place, data_center=data_center)
            with pytest.raises(WrongDataCenter):
                await person.start(catalogue.declare(name, {"spec": {}}, place=wanted, shards=1))

    simulate(scenario)


def test_a_name_that_both_create_while_they_are_cut_is_two_queues_of_which_each_keeps_its_own() -> None:
    async def scenario(shop: Shop) -> None:
        cut(shop)
        made = [(await shop.apply(queue_text("{shards: 1}"), home=home))[0].entry for home in CENTRES]
        ids = {entry.id for entry in made if entry is not None}
        assert 2 == len(ids)
        shop.world.network.heal()
        await shop.world.sleep(BEYOND_KNOWLEDGE_S)
        for home in CENTRES:
            program = shop.program(f"program-{home}", home=home)
            queue = await opened(program, "shop/emails")
            assert home == queue.entry.place.data_center
            assert [home] == await pass_through(program, queue, home)

    simulate(scenario)


def test_a_name_that_was_deleted_in_its_home_is_free_in_the_other_data_center() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text(), home="dc1")
        assert made.entry is not None
        person = shop.world.process("person", data_centre="dc1")
        store = SimulatedStore(shop.cluster, person)
        catalogue = Catalogue(store, now_us=person.clock.wall_us, owner="cli/test")
        deleting = await person.start(catalogue.set_state(made.entry, EntryState.DELETING))
        await person.start(catalogue.set_state(deleting, EntryState.GONE))
        await shop.world.sleep(5)
        (again,) = await shop.apply(queue_text(), home="dc2")
        assert again.entry is not None
        assert "dc2" == again.entry.place.data_center
        assert made.entry.id != again.entry.id

    simulate(scenario)


def test_no_process_outside_its_home_changes_an_entry_or_generations() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text(), home="dc1")
        assert made.entry is not None
        person = shop.world.process("person", data_centre="dc2")
        store = SimulatedStore(shop.cluster, person)
        catalogue = Catalogue(store, now_us=person.clock.wall_us, owner="cli/test")
        changes = (
            lambda: catalogue.set_state(made.entry, EntryState.DELETING),
            lambda: catalogue.announce(made.entry, 2, 5, skew_us=1),
            lambda: catalogue.make_sure(made.entry, skew_us=1),
            lambda: catalogue.turn(made.entry, skew_us=1),
            lambda: catalogue.retire(made.entry, 1),
        )
        for change in changes:
            with pytest.raises(WrongDataCenter):
                await person.start(change())
        reader = shop.world.process("reader", data_centre="dc1")
        reading = Catalogue(SimulatedStore(shop.cluster, reader), now_us=reader.clock.wall_us)
        known = await reader.start(reading.find(Name("Queue", "shop", "emails")))
        assert known is not None
        assert made.entry == known.entry

    simulate(scenario)


def test_lists_show_entries_of_all_data_centers_and_owned_ones_are_those_at_home_here() -> None:
    async def scenario(shop: Shop) -> None:
        for home in CENTRES:
            await shop.apply(queue_text("{shards: 1}", name=f"only-{home}"), home=home)
        await shop.world.sleep(5)
        cut(shop)
        for home in CENTRES:
            person = shop.world.process(f"reader-{home}", data_centre=home)
            catalogue = Catalogue(SimulatedStore(shop.cluster, person), now_us=person.clock.wall_us)
            listed = await person.start(catalogue.list("shop"))
            assert {"only-dc1", "only-dc2"} == {known.entry.name.name for known in listed}
            assert ["shop"] == await person.start(catalogue.namespaces())
            owned = await person.start(catalogue.owned("cli/"))
            assert [f"only-{home}"] == [known.entry.name.name for known in owned]

    simulate(scenario)

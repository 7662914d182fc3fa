"""The catalogue under lost answers, kills and contention, simulated: one name, one creation, no lost change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from headgate.errors import Conflict, Unavailable
from headgate.store.catalogue import reading
from headgate.store.catalogue.catalogue import AnotherCreation, Catalogue, Change, Declared
from headgate.store.catalogue.decide_generation import ChangeUnderWay, is_over, shards_in_force, written_at
from headgate.store.catalogue.entry import Entry, EntryState, KnownEntry, Name, OwnedByAnother, StoragePlace
from headgate.store.clock.clock import Clock, ClockNotTrusted
from headgate.store.clock.clock_state import Bounds
from headgate.store.model.consistency import Consistency
from tests.kit.simulated_store.cluster import Cluster
from tests.kit.simulated_store.store import SimulatedStore, SimulatedTime
from tests.kit.simulated_world import Process, World

EMAILS = Name("Queue", "shop", "emails")
PLACE = StoragePlace("dc1", "headgate", "dedicated")
SKEW = 500_000


def document(**spec: Any) -> dict[str, Any]:
    """A resource as JSON."""
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "spec": spec}


def catalogue(
    process: Process, cluster: Cluster, owner: str = "cli/us", now_us: Callable[[], int] | None = None
) -> Catalogue:
    """A process's own, on a store of its own."""
    return Catalogue(
        SimulatedStore(cluster, process),
        now_us=now_us or process.clock.wall_us,
        owner=owner,
        new_uuid=process.uuid,
        new_key=lambda: process.rng.randbytes(32),
    )


async def find_id(one: Catalogue, id_: UUID) -> KnownEntry | None:
    """The entry of this creation; None when it is gone, even if its name was taken again."""
    known = await one.find(EMAILS)
    return known if known and known.entry.id == id_ else None


async def declare(one: Catalogue, **spec: Any) -> Declared:
    """Declare again while a server is unavailable or somebody else was first, as a person does."""
    for _ in range(20):
        try:
            return await one.declare(EMAILS, document(**spec), place=PLACE, shards=6)
        except (Unavailable, Conflict):
            await asyncio.sleep(1)
    raise AssertionError("twenty tries were not enough")


async def reshard(one: Catalogue, entry: Entry, shards: int) -> Entry:
    """As `apply` does: bring the number of shards to this one, as far as it can be brought now."""
    known = await one.turn(entry, skew_us=SKEW)
    if shards_in_force(known.generations) != shards:
        await one.announce(known, known.generations.current.number + 1, shards, skew_us=SKEW)
    return await one.make_sure(known, skew_us=SKEW)


async def standing(one: Catalogue) -> Entry:
    """The entry that everybody has to agree on."""
    known = await one.find(EMAILS, consistency=Consistency.SERIAL)
    assert known is not None
    return known.entry


@pytest.mark.parametrize("seed", range(20))
def test_of_five_that_declare_the_same_at_once_one_creates_and_all_get_the_same_creation(seed: int) -> None:
    with World(seed, shuffled=True) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            people = [world.process(f"person{number}") for number in range(5)]
            tasks = [each.start(declare(catalogue(each, cluster), shards=6)) for each in people]
            matches = [await task for task in tasks]
            assert 1 == len({declared.entry.id for declared in matches})
            assert 1 == [declared.change for declared in matches].count(Change.CREATED)
            assert 1 == (await standing(catalogue(people[0], cluster))).revision

        world.run(scenario())


@pytest.mark.parametrize("seed", range(30))
def test_with_answers_lost_on_the_way_there_is_still_one_creation_that_all_agree_on(seed: int) -> None:
    with World(seed, shuffled=True) as world:
        cluster = Cluster(world)
        rng = world.rng("faults")

        async def scenario() -> None:
            people = [world.process(f"person{number}") for number in range(3)]
            for node in cluster.nodes:
                for person in people:
                    if rng.random() < 0.5:
                        world.network.lose(source=node, target=person.name, count=rng.randrange(1, 4))
            tasks = [each.start(declare(catalogue(each, cluster), shards=6)) for each in people]
            matches = [await task for task in tasks]
            entry = await standing(catalogue(people[0], cluster))
            assert {entry.id} == {declared.entry.id for declared in matches}
            assert 1 == entry.revision
            assert [declared.change for declared in matches].count(Change.CREATED) <= 1
            known = await find_id(catalogue(people[1], cluster), entry.id)
            assert known is not None
            assert EMAILS == known.entry.name

        world.run(scenario())


def test_killed_before_any_step_a_declaration_is_finished_by_the_next_that_declares() -> None:
    steps = 0
    for strike in range(1, 400):
        with World(strike) as world:
            cluster = Cluster(world)

            async def scenario(world: World = world, cluster: Cluster = cluster, strike: int = strike) -> int:
                first = world.process("first")
                first.kill_before_step(strike)
                first.start(declare(catalogue(first, cluster), shards=6))
                await world.sleep(30)
                done = first.steps < strike
                second = world.process("second")
                declared = await second.start(declare(catalogue(second, cluster), shards=6))
                entry = await standing(catalogue(second, cluster))
                assert declared.entry.id == entry.id
                known = await find_id(catalogue(second, cluster), entry.id)
                assert known is not None
                return first.steps if done else 0

            steps = world.run(scenario())
        if steps:
            break
    assert 10 < steps < 400, "every step of a declaration was struck"


@pytest.mark.parametrize("seed", range(20))
def test_no_change_is_lost_between_two_that_change_at_once(seed: int) -> None:
    """Each adds its own field to what it has read, as a controller does; both have to be there in the end."""
    with World(seed, shuffled=True) as world:
        cluster = Cluster(world)

        async def add(one: Catalogue, number: int) -> None:
            def added(now: Any, _wanted: Any) -> dict[str, Any]:
                return document(**{**now["spec"], f"field{number}": number})

            for _ in range(20):
                try:
                    await one.declare(EMAILS, document(), place=PLACE, shards=6, check=added)
                    return
                except (Unavailable, Conflict):
                    await asyncio.sleep(1)

        async def scenario() -> None:
            people = [world.process(f"person{number}") for number in range(4)]
            await people[0].start(declare(catalogue(people[0], cluster), shards=6))
            tasks = [each.start(add(catalogue(each, cluster), number)) for number, each in enumerate(people)]
            for task in tasks:
                await task
            entry = await standing(catalogue(people[0], cluster))
            assert {f"field{number}" for number in range(4)} <= set(entry.spec)
            assert 5 == entry.revision

        world.run(scenario())


def test_another_owner_is_refused_in_one_line_and_nothing_is_changed() -> None:
    with World(1) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            ours, theirs = world.process("ours"), world.process("theirs")
            await ours.start(declare(catalogue(ours, cluster), shards=6))
            with pytest.raises(OwnedByAnother, match=r"owner=cli/us, you=operator/7") as refused:
                await theirs.start(declare(catalogue(theirs, cluster, "operator/7"), shards=8))
            assert "\n" not in str(refused.value)
            assert 6 == (await standing(catalogue(ours, cluster))).spec["shards"]

        world.run(scenario())


def test_what_is_recreated_after_it_is_gone_is_another_creation() -> None:
    with World(1) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            one = catalogue(world.process("one"), cluster)
            first = (await declare(one, shards=6)).entry
            await one.set_state(first, EntryState.DELETING)
            with pytest.raises(Conflict, match="being deleted"):
                await one.declare(EMAILS, document(), place=PLACE, shards=6)
            await one.set_state(first, EntryState.GONE)
            assert await one.find(EMAILS) is None
            assert await find_id(one, first.id) is None
            assert [] == await one.list("shop")
            again = await declare(one, shards=3)
            assert Change.CREATED == again.change
            assert first.id != again.entry.id
            assert first.receipt_key != again.entry.receipt_key
            assert await find_id(one, first.id) is None
            with pytest.raises(AnotherCreation):
                await one.set_state(first, EntryState.ACTIVE)

        world.run(scenario())


def test_entries_are_listed_by_namespace_and_kind_without_a_scan() -> None:
    with World(1) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            one = catalogue(world.process("one"), cluster)
            names = [
                Name("Queue", "a", "x"),
                Name("Queue", "b", "x"),
                Name("Counter", "b", "x"),
                Name("Queue", "b", "y"),
            ]
            for name in names:
                await one.declare(name, document(), place=PLACE, shards=1)
            assert ["a", "b"] == sorted(await one.namespaces())
            assert {names[1], names[2], names[3]} == {known.entry.name for known in await one.list("b")}
            assert [names[2]] == [known.entry.name for known in await one.list("b", "Counter")]

        world.run(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_two_operators_with_different_shards_make_one_next_generation(seed: int) -> None:
    """A8 (iii): two operators, their leases overlapping, ask for 12 and for 8."""
    with World(seed, shuffled=True) as world:
        cluster = Cluster(world)
        rng = world.rng("faults")

        async def patiently(one: Catalogue, entry: Entry, shards: int) -> Entry | None:
            for _ in range(20):
                try:
                    return await reshard(one, entry, shards)
                except ChangeUnderWay:
                    return None
                except (Unavailable, Conflict):
                    await asyncio.sleep(1)
            raise AssertionError("twenty tries were not enough")

        async def scenario() -> None:
            operators = [world.process(f"operator{number}") for number in range(2)]
            entry = (await declare(catalogue(operators[0], cluster), shards=6)).entry
            for node in cluster.nodes:
                if rng.random() < 0.7:
                    world.network.lose(source=node, target=f"operator{rng.randrange(2)}", count=rng.randrange(1, 3))
            tasks = [
                each.start(patiently(catalogue(each, cluster), entry, shards))
                for each, shards in zip(operators, (12, 8), strict=True)
            ]
            matches = [await task for task in tasks]
            after = await standing(catalogue(operators[0], cluster))
            assert after.generations.next is not None
            assert 2 == after.generations.next.number
            assert after.generations.next.shards in (12, 8)
            assert after.generations.sure_us is not None
            assert after.generations.sure_us >= after.generations.next.from_us
            winners = [each for each in matches if each is not None]
            assert {after.generations.next} == {each.generations.next for each in winners}

        world.run(scenario())


@pytest.mark.parametrize("step", range(1, 40))
def test_an_operator_that_slept_anywhere_in_a_change_does_not_undo_anothers(step: int) -> None:
    """A8 (iii): what it has read is old when it wakes up; its announcement has to be refused."""
    with World(step) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            slow, quick = world.process("slow"), world.process("quick")
            entry = (await declare(catalogue(quick, cluster), shards=6)).entry
            slow.pause_before_step(step, for_s=5)
            slower = slow.start(reshard(catalogue(slow, cluster), entry, 8))
            await world.sleep(2)
            try:
                after = await quick.start(reshard(catalogue(quick, cluster), entry, 12))
            except ChangeUnderWay:
                after = await standing(catalogue(quick, cluster))
            with contextlib.suppress(ChangeUnderWay):
                await slower
            entry = await standing(catalogue(quick, cluster))
            assert after.generations.next == entry.generations.next
            assert entry.generations.sure_us is not None

        world.run(scenario())


@pytest.mark.parametrize("strike", range(1, 120, 3))
def test_an_operator_killed_at_any_step_of_a_change_leaves_what_the_next_one_finishes(strike: int) -> None:
    with World(strike) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            first, second = world.process("first"), world.process("second")
            entry = (await declare(catalogue(second, cluster), shards=6)).entry
            first.kill_before_step(strike)
            first.start(reshard(catalogue(first, cluster), entry, 12))
            await world.sleep(20)
            after = await second.start(reshard(catalogue(second, cluster), entry, 12))
            assert 12 == (after.generations.next or after.generations.current).shards
            assert 2 == (after.generations.next or after.generations.current).number
            assert after.generations.sure_us is not None

        world.run(scenario())


@pytest.mark.parametrize("seed", range(10))
def test_nobody_writes_to_a_generation_that_somebody_takes_for_over(seed: int) -> None:
    """A8 (i), end to end: clocks apart, the announcement landing late, producers with knowledge of every age."""
    with World(seed, shuffled=True) as world:
        cluster = Cluster(world)
        rng = world.rng("clocks")
        wrote: list[tuple[float, int]] = []
        over: list[float] = []

        async def produce(process: Process, until_s: float) -> None:
            one = catalogue(process, cluster)
            while world.now_s() < until_s:
                known = await one.find(EMAILS)
                assert known is not None
                while known.promise.still_holds(process.clock.wall_us()):
                    wrote.append((world.now_s(), written_at(known.entry.generations, process.clock.wall_us()).number))
                    await asyncio.sleep(rng.uniform(0.1, 5))

        async def watch(process: Process) -> None:
            one = catalogue(process, cluster)
            while not over:
                known = await one.find(EMAILS)
                assert known is not None
                if is_over(known.entry.generations, now_us=process.clock.wall_us(), skew_us=SKEW):
                    over.append(world.now_s())
                await asyncio.sleep(0.05)

        async def scenario() -> None:
            people = [world.process(name) for name in ("operator", "watcher", "p1", "p2", "p3")]
            for person in people:
                person.clock.step(rng.uniform(-0.25, 0.25))
            operator, watcher, *producers = people
            one = catalogue(operator, cluster)
            entry = (await declare(one, shards=6)).entry
            tasks = [each.start(produce(each, 200)) for each in producers]
            watching = watcher.start(watch(watcher))
            await world.sleep(rng.uniform(1, 30))
            if rng.random() < 0.5:
                world.network.delay("request", source="operator", by_s=rng.uniform(1, 8), count=2)
            for _ in range(20):
                try:
                    await operator.start(reshard(one, entry, 12))
                    break
                except (Unavailable, Conflict):
                    await world.sleep(1)
            for task in [*tasks, watching]:
                await task
            assert max(at for at, number in wrote if number == 1) < over[0]
            assert {1, 2} == {number for _, number in wrote}

        world.run(scenario())


def test_the_age_of_knowledge_counts_from_the_start_of_the_read() -> None:
    with World(5) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            process = world.process("p")
            one = catalogue(process, cluster)
            await declare(one, shards=6)
            for node in cluster.nodes:
                world.network.delay(source=node, target="p", by_s=3, count=1)
            began_us = process.clock.wall_us()
            known = await one.find(EMAILS)
            assert known is not None
            assert process.clock.wall_us() - began_us >= 3_000_000
            assert began_us == known.read_started_us

        world.run(scenario())


@pytest.mark.parametrize("skew_s", [0.0, 0.2, 3.0])
def test_a_simulated_process_keeps_its_clock_by_the_same_code(skew_s: float) -> None:
    with World(3) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            process = world.process("p")
            process.clock.step(skew_s)
            store = SimulatedStore(cluster, process)

            async def live() -> bool:
                async with Clock(store, source=SimulatedTime(process), bounds=Bounds()) as clock:
                    await asyncio.sleep(90)
                    try:
                        return abs(clock.require() - process.clock.wall_us()) < 1000
                    except ClockNotTrusted:
                        return False

            assert (skew_s < 0.25) == await process.start(live())

        world.run(scenario())


def test_after_a_pause_of_the_process_nothing_is_owned_before_the_nodes_were_asked() -> None:
    with World(4) as world:
        cluster = Cluster(world)

        async def scenario() -> None:
            process = world.process("p")
            store = SimulatedStore(cluster, process)
            trusted: list[tuple[float, bool]] = []

            async def live() -> None:
                async with Clock(store, source=SimulatedTime(process)) as clock:
                    while world.now_s() < 60:
                        try:
                            clock.require()
                            trusted.append((world.now_s(), True))
                        except ClockNotTrusted:
                            trusted.append((world.now_s(), False))
                        await asyncio.sleep(0.01)

            running = process.start(live())
            await world.sleep(20)
            process.pause(for_s=10)
            await running
            first_after = next(held for at, held in trusted if at >= 30)
            assert not first_after
            assert [True] * 100 == [held for at, held in trusted if at > 35][:100]

        world.run(scenario())


def test_of_that_entries_are_asked_for_those_of_others_are_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    entry_of = reading.entry_of

    def counted(row: Any) -> Entry:
        decoded.append(row.owner)
        return entry_of(row)

    with World(1) as world:
        cluster, process = Cluster(world), world.process("p")
        mine, theirs = catalogue(process, cluster, "operator/c1/u1"), catalogue(process, cluster, "cli/us")

        async def work() -> list[str]:
            await declare(mine)
            for number in range(5):
                name = Name("Queue", "shop", f"theirs-{number}")
                await theirs.declare(name, document(), place=PLACE, shards=1)
            monkeypatch.setattr(reading, "entry_of", counted)
            return [known.entry.name.name for known in await mine.owned("operator/c1/")]

        assert (["emails"], ["operator/c1/u1"]) == (world.run(process.start(work())), decoded)

"""Counters through the SDK in the simulated world: from `headgate apply` to a value, and what happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from headgate.client.counter import Counter, TypesDiffer
from headgate.client.counters import CounterDeleted, CounterNotFound, CounterRecreated
from headgate.counters.types.contract import QuestionInvalid, UpdateInvalid
from headgate.counters.types.minmax import MinMaxValue
from headgate.errors import HeadgateError, InvalidRequest, OperationRefused
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import EntryState, Name
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Program, Shop, counter_text

T = TypeVar("T")
VIEWS = "shop/page-views"


def simulate(scenario: Callable[[Shop], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run a scenario in a world of its own."""
    with World(seed) as world:
        return world.run(scenario(Shop(world, Cluster(world))))


async def opened(program: Program, name: str = VIEWS) -> Counter:
    """The counter as that process has it."""
    await program.process.start(program.connection.open())
    return await program.process.start(program.connection.counter(name))


async def refused(work: Awaitable[object]) -> HeadgateError:
    """The error that the call raises."""
    try:
        await work
    except HeadgateError as error:
        return error
    raise AssertionError("it was not refused")


# ---- counting


def test_what_several_processes_add_is_read_by_any_of_them() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        programs = [shop.program(f"web-{number}") for number in range(3)]
        counters = [await opened(each) for each in programs]

        async def visit(number: int) -> None:
            for _ in range(20):
                await counters[number].add("home", 1)
            await counters[number].add("cart", -number)

        await asyncio.gather(*(programs[number].process.start(visit(number)) for number in range(3)))
        assert [60, 60, 60] == [
            await each.process.start(views.value("home")) for each, views in zip(programs, counters, strict=True)
        ]
        result = await programs[0].process.start(counters[0].values(["home", "cart", "nobody"]))
        assert {"home": 60, "cart": -3, "nobody": 0} == result

    simulate(scenario)


def test_the_same_name_gives_the_same_counter_and_a_wrong_one_names_what_was_meant() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        program = shop.program("web")
        views = await opened(program)
        connection = program.connection
        assert views is await program.process.start(connection.counter(VIEWS))
        assert [VIEWS] == await program.process.start(connection.counters("shop"))
        wrong = await refused(program.process.start(connection.counter("shop/page-view")))
        assert isinstance(wrong, CounterNotFound)
        assert "did you mean shop/page-views?" in str(wrong)
        assert isinstance(await refused(program.process.start(connection.counter("a/b/c"))), InvalidRequest)

    simulate(scenario)


def test_an_update_with_a_token_counts_once_whichever_process_sends_it_again() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        one, other = shop.program("one"), shop.program("other")
        ours, theirs = await opened(one), await opened(other)

        async def take_token() -> str:
            return ours.token("order-17")

        token = await one.process.start(take_token())
        await one.process.start(ours.add("sold", 5, token=token))
        await one.process.start(ours.add("sold", 5, token=token))
        await other.process.start(theirs.add("sold", 5, token=token))
        assert 5 == await other.process.start(theirs.value("sold"))

    simulate(scenario)


def test_an_update_with_a_token_is_repeated_by_itself_while_the_replicas_are_unavailable() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        program = shop.program("web")
        views = await opened(program)

        async def add() -> None:
            await views.add("home", 2, token=views.token())

        nodes = sorted(shop.cluster.nodes)[:2]
        for name in nodes:
            shop.cluster.kill(name)
        adding = program.process.start(add())
        await shop.world.sleep(11)
        assert not adding.done()
        for name in nodes:
            shop.cluster.restart(name)
        await adding
        assert 2 == await program.process.start(views.value("home"))

    simulate(scenario)


def test_every_type_is_used_in_its_own_words() -> None:
    async def scenario(shop: Shop) -> None:
        kinds = ["minmax", "set", "register", "distinct", "topk", "quantiles", "moments", "product"]
        await shop.apply(*(counter_text(f"{{type: {kind}, storage: {{tables: shared}}}}", kind) for kind in kinds))
        program = shop.program("web")

        async def use() -> None:
            counters = {kind: await program.connection.counter(f"shop/{kind}") for kind in kinds}
            await counters["minmax"].add("price", 12.5, "order-2")
            await counters["minmax"].add("price", 3, "order-9")
            assert MinMaxValue(3, "order-9", 12.5, "order-2") == await counters["minmax"].value("price")
            await counters["set"].add("basket", "apple", "pear")
            await counters["set"].remove("basket", "pear")
            assert ["apple"] == await counters["set"].value("basket")
            await counters["set"].add("basket", "pear")
            assert ["apple", "pear"] == await counters["set"].value("basket")
            await asyncio.gather(counters["set"].add("basket", "fig"), counters["set"].remove("basket", "fig"))
            assert ["apple", "pear"] == await counters["set"].value("basket")  # the later, though of one instant
            for colour in ("red", "blue"):
                await counters["register"].set("colour", {"is": colour})
            assert {"is": "blue"} == (await counters["register"].value("colour")).value
            await counters["distinct"].add("visitors", "ann", "bob", "ann", 7)
            assert 3 == round((await counters["distinct"].value("visitors")).estimate)
            await counters["topk"].add("pages", "home", 3)
            await counters["topk"].add("pages", "cart")
            assert ["home"] == [each.item for each in (await counters["topk"].value("pages", limit=1)).items]
            for number in range(101):
                await counters["quantiles"].add("ms", number)
            assert {0.5: 50.0} == (await counters["quantiles"].value("ms", ranks=[0.5])).quantiles
            await counters["moments"].add("ms", 1)
            await counters["moments"].add("ms", 3)
            assert (2.0, 1.0) == ((m := await counters["moments"].value("ms")).mean, m.variance)
            await counters["product"].add("rate", "1.05")
            await counters["product"].add("rate", -2)
            assert "-2.10" == f"{(await counters['product'].value('rate')).number:.2f}"

        await program.process.start(program.connection.open())
        await program.process.start(use())

    simulate(scenario)


def test_audiences_are_combined_across_keys_and_counters() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(
            *(counter_text("{type: audience}", name) for name in ("visitors", "buyers")), counter_text(name="hits")
        )
        program = shop.program("web")

        async def use() -> None:
            visitors = await program.connection.counter("shop/visitors")
            buyers = await program.connection.counter("shop/buyers")
            await visitors.add("mon", *range(100))
            await visitors.add("tue", *range(50, 150))
            await buyers.add("tue", *range(140, 160))
            monday, tuesday, bought = (
                await visitors.state("mon"),
                await visitors.state("tue"),
                await buyers.state("tue"),
            )
            assert 50 == (monday & tuesday).value().estimate
            assert 150 == (monday | tuesday).value().estimate
            assert 90 == (tuesday - bought).value().estimate
            assert 40 == ((tuesday - bought) - monday).value().estimate
            hits = await (await program.connection.counter("shop/hits")).state("x")
            with pytest.raises(TypesDiffer):
                _ = hits | monday
            with pytest.raises(TypesDiffer, match="type audience"):
                _ = hits & hits

        await program.process.start(program.connection.open())
        await program.process.start(use())

    simulate(scenario)


def test_windows_report_what_was_counted_in_a_time() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text("{windows: [1m, 1h]}"))
        program = shop.program("web")
        views = await opened(program)
        begin_us = program.connection.now_us() // 3_600_000_000 * 3_600_000_000 + 3_600_000_000
        begin = datetime.fromtimestamp(begin_us / 1e6, UTC)
        await shop.world.sleep((begin_us - program.connection.now_us()) / 1e6 + 5)
        for count in (1, 10, 100):
            await program.process.start(views.add("home", count))
            await shop.world.sleep(60)
        minute = timedelta(minutes=1)

        async def between(since: datetime | None, until: datetime | None) -> Any:
            return await program.process.start(views.value("home", since=since, until=until))

        assert 1 == await between(begin, begin + minute)
        assert 110 == await between(begin + minute, begin + 3 * minute)
        assert 111 == await between(begin + timedelta(seconds=30), None)
        assert 111 == await between(None, begin + 60 * minute)
        assert 0 == await between(begin - 60 * minute, begin)
        assert 111 == await program.process.start(views.value("home"))
        with pytest.raises(InvalidRequest, match="before `until`"):
            await between(begin + minute, begin)

    simulate(scenario)


def test_a_cached_value_shows_how_old_it_is_and_is_never_older_than_asked() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        one, other = shop.program("one"), shop.program("other")
        ours, theirs = await opened(one), await opened(other)
        await one.process.start(ours.add("home", 1))
        first = await other.process.start(theirs.cached("home"))
        await one.process.start(ours.add("home", 1))
        await shop.world.sleep(0.4)
        second = await other.process.start(theirs.cached("home"))
        assert (1, 1) == (first.value, second.value)
        assert 0.4 <= second.age_s <= 1
        third = await other.process.start(theirs.cached("home", staleness=0.1))
        assert 2 == third.value
        assert third.age_s <= 0.1
        assert isinstance(await refused(other.process.start(theirs.cached("home", staleness=5))), InvalidRequest)

    simulate(scenario)


# ---- mistakes and ends


def test_mistakes_are_one_line_and_count_nothing() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        program = shop.program("web")
        views = await opened(program)

        async def output(work: Awaitable[object]) -> HeadgateError:
            return await program.process.start(refused(work))

        wrong = await output(views.add("home", "many"))
        assert isinstance(wrong, UpdateInvalid)
        assert "type=sum, wanted=one whole number, given=['many']" in str(wrong)
        assert isinstance(await output(views.remove("home", "x")), UpdateInvalid)
        assert isinstance(await output(views.value("home", limit=3)), QuestionInvalid)
        assert isinstance(await output(views.value("home", since=datetime.now(UTC))), InvalidRequest)
        assert isinstance(await output(views.add("home", 1, token="mine")), InvalidRequest)
        assert isinstance(await output(views.add("", 1)), InvalidRequest)
        assert isinstance(await output(views.add(17, 1)), InvalidRequest)  # type: ignore[arg-type]
        assert 0 == await program.process.start(views.value("home"))

    simulate(scenario)


@pytest.mark.parametrize("made_again", [False, True])
def test_a_counter_that_was_deleted_or_recreated_reports_it_and_can_be_opened_again(made_again: bool) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        program = shop.program("web")
        views = await opened(program)
        await program.process.start(views.add("home", 1))

        async def delete() -> None:
            catalogue = Catalogue(program.store, now_us=program.connection.now_us, owner="cli/test")
            known = await catalogue.find(Name("Counter", "shop", "page-views"))
            assert known is not None
            await catalogue.set_state(await catalogue.set_state(known.entry, EntryState.DELETING), EntryState.GONE)

        await program.process.start(delete())
        if made_again:
            await shop.apply(counter_text())
        await program.process.start(program.connection.refresh())
        report = await program.process.start(refused(views.add("home", 1)))
        assert (CounterRecreated if made_again else CounterDeleted) is type(report)
        await shop.apply(counter_text())
        again = await program.process.start(program.connection.counter(VIEWS))
        assert 0 == await program.process.start(again.value("home"))

    simulate(scenario)


def test_a_counter_that_is_being_deleted_is_not_listed_and_its_entry_is_shown() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        program = shop.program("web")
        await opened(program)

        async def delete() -> None:
            catalogue = Catalogue(program.store, now_us=program.connection.now_us, owner="cli/test")
            known = await catalogue.find(Name("Counter", "shop", "page-views"))
            assert known is not None
            await catalogue.set_state(known.entry, EntryState.DELETING)

        assert [VIEWS] == await program.process.start(program.connection.counters())
        await program.process.start(delete())
        assert [] == await program.process.start(program.connection.counters())
        assert 1 == len(await program.process.start(program.connection.counter_entries()))

    simulate(scenario)


def test_closing_writes_what_waits_and_then_refuses() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(counter_text())
        program, reader = shop.program("web"), shop.program("reader")
        views = await opened(program)

        async def use() -> None:
            adding = [asyncio.ensure_future(views.add("home", 1)) for _ in range(100)]
            await asyncio.sleep(0)
            await program.connection.close()
            await asyncio.gather(*adding)

        await program.process.start(use())
        assert isinstance(await program.process.start(refused(views.add("home", 1))), OperationRefused)
        assert 100 == await reader.process.start((await opened(reader)).value("home"))

    simulate(scenario)


def test_collecting_changes_no_value_and_reports_what_it_did() -> None:
    async def scenario(shop: Shop) -> None:
        spec = "{mutator: {lifetime: 2m, refuseWithin: 30s}, gc: {after: 4h}}"
        await shop.apply(counter_text(spec))
        program = shop.program("web")
        views = await opened(program)
        for _ in range(3):
            await program.process.start(views.add("home", 1))
            await shop.world.sleep(120)
        await shop.world.sleep(5 * 3600)
        done = await program.process.start(views.collect())
        assert (1, 3, True) == (done.keys, done.collected, done.full)
        assert 3 == await program.process.start(views.value("home"))
        program.hints.window_us = 5 * 3_600_000_000
        refusal = await program.process.start(views.collect())
        assert "raise spec.gc.after" in str(refusal.refused)

    simulate(scenario)

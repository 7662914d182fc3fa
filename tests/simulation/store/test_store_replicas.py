"""Plain writes and reads while replicas are stopped, slow or cut off: what quorum promises, and what ONE does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select, Update
from headgate.store.store import NotEnoughReplicas, OutcomeUnknown, Overloaded
from tests.kit.simulated_store import Settings
from tests.simulation.store.ring import ALL, LOCAL_QUORUM, ONE, QUORUM, ROWS, Ring, ends_unknown, simulate

PATIENT = Settings(speculative_retry_s=None)


def _others(ring: Ring, name: str) -> list[str]:
    return [other for other in ring.cluster.nodes if other != name]


FAULTS: dict[str, Callable[[Ring, str], object]] = {
    "stopped": lambda ring, name: ring.cluster.stop(name),
    "killed": lambda ring, name: ring.cluster.kill(name),
    "slow": lambda ring, name: ring.world.network.slow(name, 0.5),
    "cut off": lambda ring, name: ring.world.network.cut(name, [*_others(ring, name), "client"]),
    "cut off from its peers": lambda ring, name: ring.world.network.cut(name, _others(ring, name)),
    "unheard": lambda ring, name: ring.world.network.cut(name, _others(ring, name), one_way=True),
    "deaf": lambda ring, name: ring.world.network.cut(_others(ring, name), name, one_way=True),
    "loses writes": lambda ring, name: ring.world.network.lose("write", target=name, count=1000),
    "loses reads": lambda ring, name: ring.world.network.lose("rows", source=name, count=1000),
}


@pytest.mark.parametrize("replica", ["n1", "n2", "n3"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_quorum_acknowledged_a_quorum_sees_whatever_befalls_one_replica(fault: str, replica: str) -> None:
    async def scenario(ring: Ring) -> None:
        await ring.store.write(ring.insert("before"))
        FAULTS[fault](ring, replica)
        for number in range(5):
            await ring.store.write(ring.insert(f"during {number}"), within_s=30)
            assert await ring.get() == [f"during {number}"]
        await asyncio.sleep(60)
        assert await ring.get() == ["during 4"]
        ring.world.network.calm()
        ring.cluster.go_on(replica)
        if fault == "killed":
            ring.cluster.restart(replica)
        assert await ring.get() == ["during 4"]
        await asyncio.sleep(60)
        assert ring.holders() == {"n1", "n2", "n3"}, "hints bring it up to date"
        assert await ring.get(to=ALL) == ["during 4"]

    simulate(scenario)


def test_what_one_acknowledged_another_one_may_not_have() -> None:
    async def scenario(ring: Ring) -> tuple[set[str], list[list[str]]]:
        ring.world.network.lose("write", target="n2")
        ring.world.network.lose("write", target="n3")
        await ring.put("x", to=ONE)
        await asyncio.sleep(0.1)
        return ring.holders(), [await ring.get(to=ONE) for _ in range(6)]

    holders, observation = simulate(scenario, settings=PATIENT)
    assert holders == {"n1"}
    assert ["x"] in observation
    assert [] in observation


def test_a_read_at_quorum_fixes_what_it_finds_before_it_answers() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.hold_hints()
        ring.world.network.lose("write", target="n3")
        await ring.put("x")
        await asyncio.sleep(5)
        assert ring.holders() == {"n1", "n2"}
        for _ in range(6):
            assert await ring.get() == ["x"]
        assert ring.holders() == {"n1", "n2", "n3"}

    simulate(scenario)


def test_a_partial_write_that_one_read_saw_no_later_read_misses() -> None:
    """A write on one replica of three is not acknowledged; once a quorum read returned it, it is there to stay."""

    async def scenario(ring: Ring) -> tuple[bool, list[list[str]]]:
        ring.cluster.hold_hints()
        for name in ("n1", "n2"):
            ring.world.network.lose("write", target=name)
        unknown = await ends_unknown(ring.put("x"))
        return unknown, [await ring.get() for _ in range(30)]

    unknown, observation = simulate(scenario, settings=PATIENT)
    assert unknown
    first = observation.index(["x"])
    assert observation == [[]] * first + [["x"]] * (30 - first)


def test_a_write_that_is_acknowledged_late_is_unknown_and_there() -> None:
    async def scenario(ring: Ring) -> None:
        ring.world.network.delay("write-ack", by_s=30, count=3)
        assert await ends_unknown(ring.put("x"))
        assert ring.holders() == {"n1", "n2", "n3"}
        assert await ring.get() == ["x"]

    simulate(scenario)


def test_a_write_can_land_long_after_its_time_out() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.hold_hints()
        ring.world.network.delay("write", by_s=300, count=3)
        assert await ends_unknown(ring.put("x"))
        await asyncio.sleep(200)
        assert await ring.get() == []
        await asyncio.sleep(200)
        assert await ring.get() == ["x"]

    simulate(scenario)


def test_a_request_that_is_lost_is_unknown_and_never_lands() -> None:
    async def scenario(ring: Ring) -> None:
        ring.world.network.lose("request")
        assert await ends_unknown(ring.put("x"))
        await asyncio.sleep(600)
        assert ring.holders() == set()

    simulate(scenario)


def test_a_write_whose_answer_is_lost_is_tried_again_without_harm() -> None:
    async def scenario(ring: Ring) -> None:
        ring.world.network.lose("answer", count=2)
        await ring.store.write(ring.insert("x"))
        assert await ring.get() == ["x"]

    simulate(scenario)


def test_a_request_that_waits_at_a_stopped_coordinator_is_served_when_it_continues() -> None:
    async def scenario(ring: Ring) -> None:
        write = ring.insert("x", p="a")
        for name in ring.cluster.nodes:
            ring.cluster.stop(name)
        with pytest.raises(OutcomeUnknown):
            await ring.store.attempt(write, 1)
        for name in ring.cluster.nodes:
            ring.cluster.go_on(name)
        await asyncio.sleep(1)
        assert ring.holders() == {"n1", "n2", "n3"}

    simulate(scenario)


def test_too_few_replicas_are_refused_before_anything_is_done() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.kill("n2")
        ring.cluster.kill("n3")
        await asyncio.sleep(30)
        with pytest.raises(NotEnoughReplicas):
            await ring.put("x")
        assert ring.holders() == set()
        await ring.put("y", to=ONE)
        assert await ring.get(to=ONE) == ["y"]
        ring.cluster.kill("n1")
        with pytest.raises(NotEnoughReplicas):
            await ring.put("z", to=ONE)

    simulate(scenario)


def test_the_side_with_the_majority_continues_and_the_other_does_not() -> None:
    async def scenario(ring: Ring) -> None:
        other = ring.client("other")
        ring.world.network.cut(["n1", "client"], ["n2", "n3", "other"])
        await asyncio.sleep(30)
        with pytest.raises(NotEnoughReplicas):
            await ring.store.attempt(ring.insert("x"), 10)
        await other.write(ring.insert("y"), within_s=60)
        ring.world.network.heal()
        assert await ring.get() == ["y"]

    simulate(scenario, seed=3)


def test_an_overloaded_coordinator_rejects_requests_and_another_one_serves_them() -> None:
    async def scenario(ring: Ring) -> None:
        for name in ring.cluster.nodes:
            ring.cluster.overload(name)
        with pytest.raises(Overloaded):
            await ring.put("x")
        ring.cluster.overload("n2", False)
        await ring.store.write(ring.insert("x"))
        assert await ring.get() == ["x"]

    simulate(scenario)


def test_a_limit_counts_rows_that_are_there_though_replicas_disagree_on_which() -> None:
    async def scenario(ring: Ring) -> list[int]:
        ring.cluster.hold_hints()
        for number in range(40):
            await ring.put("x", c=number, to=ALL)
        ring.world.network.lose("write", target="n1", count=30)
        for number in range(30):
            await ring.remove(c=number)
        await asyncio.sleep(5)
        matches = []
        for _ in range(3):
            rows = await ring.store.read(Select(ROWS, {"p": "a"}, ["c"], limit=5, consistency=LOCAL_QUORUM))
            matches.append([row.c for row in rows])
        assert matches[0] == matches[1] == matches[2]
        return matches[0]

    assert simulate(scenario, settings=PATIENT) == [30, 31, 32, 33, 34]


@pytest.mark.parametrize("level", [QUORUM, Consistency.EACH_QUORUM, LOCAL_QUORUM])
def test_two_data_centres_cut_apart(level: Consistency) -> None:
    """Each side still has its own quorum, and nobody has both; what one side wrote the other sees after the cut."""

    async def scenario(ring: Ring) -> None:
        far = ring.client("far", data_centre="dc2")
        await ring.put("before", to=Consistency.EACH_QUORUM)
        ring.world.network.cut(["n1", "n2", "n3", "client"], ["n4", "n5", "n6", "far"])
        await asyncio.sleep(30)
        if level is LOCAL_QUORUM:
            await ring.put("during", to=level)
            assert (await far.read(Select(ROWS, {"p": "a"}, ["v"])))[0].v == "before"
        else:
            with pytest.raises(NotEnoughReplicas):
                await ring.put("during", to=level)
        ring.world.network.heal()
        await asyncio.sleep(60)
        expected = "during" if level is LOCAL_QUORUM else "before"
        assert (await far.read(Select(ROWS, {"p": "a"}, ["v"])))[0].v == expected

    simulate(scenario, data_centres={"dc1": 3, "dc2": 3})


def test_the_expiry_of_a_row_is_judged_by_the_clock_of_whichever_process_coordinates() -> None:
    async def scenario(ring: Ring) -> dict[str, list[str]]:
        ring.cluster.nodes["n2"].process.clock.step(5)
        ring.store.exclude(frozenset({"n2", "n3"}))
        await ring.put("x", ttl_s=10)
        await asyncio.sleep(7)
        observations = {}
        for name in ("n1", "n2", "n3"):
            ring.store.exclude(frozenset(_others(ring, name)))
            observations[name] = await ring.get()
        return observations

    assert simulate(scenario) == {"n1": ["x"], "n2": [], "n3": ["x"]}


def test_a_write_from_a_clock_that_is_behind_loses_to_an_older_one() -> None:
    async def scenario(ring: Ring) -> list[str]:
        await ring.put("first")
        await asyncio.sleep(1)
        ring.store.process.clock.step(-10)
        await ring.put("second")
        return await ring.get()

    assert simulate(scenario) == ["first"]


def test_a_node_reports_its_own_time() -> None:
    async def scenario(ring: Ring) -> list[int]:
        ring.cluster.nodes["n3"].process.clock.step(-2)
        now_us = ring.now_us()
        reports = [await ring.store.ask_time(name, 2) for name in ring.store.coordinators()]
        return [round((each - now_us) / 1e6) for each in reports]

    assert simulate(scenario) == [0, 0, -2]


def test_a_writer_killed_before_any_step_leaves_its_row_whole_or_not_at_all() -> None:
    def run(step: int | None) -> tuple[bool, int]:
        async def scenario(ring: Ring) -> tuple[bool, int]:
            store = ring.client("writer")
            store.process.count_steps()
            if step is not None:
                store.process.kill_before_step(step)

            async def write() -> None:
                await store.write(ring.insert("x"))
                await store.write(Update(ROWS, {"p": "a", "c": 1}, {"v": "y"}, timestamp_us=ring.now_us()))

            store.process.start(write())
            await asyncio.sleep(60)
            result = await ring.get()
            assert result in ([], ["x"], ["y"])
            return result == ["y"], store.process.steps

        return simulate(scenario)

    finished, steps = run(None)
    assert finished
    outcomes = [run(step)[0] for step in range(1, steps + 1)]
    assert outcomes[0] is False
    assert outcomes[-1] is True, "what it had sent lands though it never heard the answer"

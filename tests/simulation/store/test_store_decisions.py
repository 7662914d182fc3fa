"""LWTs under faults: lost answers are resolved and not guessed, and levels are kept apart (A7, A11, D7)."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from headgate.store.model.statements import Select, UpdateIf, is_
from headgate.store.store import NotEnoughReplicas, Outcome, OutcomeUnknown, Verdict
from tests.kit.simulated_store import Settings
from tests.simulation.store.ring import GLOBAL_LOCKS, LOCKS, ONE, SERIAL, Ring, ends_unknown, simulate

STEPS = {
    "prepare": "lost before it began",
    "promise": "nobody hears the promises",
    "propose": "nobody is asked",
    "accept": "accepted, and nobody hears of it",
    "commit": "accepted, and not made visible",
    "commit-ack": "visible, and nobody hears of it",
}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", STEPS)
def test_an_lwt_that_loses_messages_of_one_phase_ends_in_the_truth(kind: str, count: int) -> None:
    async def scenario(ring: Ring) -> None:
        await ring.create_lock()
        mine = ring.uuid()
        ring.world.network.lose(kind, count=count)
        outcome = await ring.store.decide(ring.take(mine), within_s=20)
        assert outcome.verdict in (Verdict.APPLIED, Verdict.OVERWRITTEN)
        assert (await ring.owner() == mine) is outcome.applied
        await asyncio.sleep(600)
        assert (await ring.owner() == mine) is outcome.applied, "and it stays the truth"

    simulate(scenario)


def test_an_lwt_whose_answer_is_lost_is_found_applied() -> None:
    async def scenario(ring: Ring) -> Outcome:
        await ring.create_lock()
        ring.world.network.lose("answer")
        return await ring.store.decide(ring.take(ring.uuid()))

    outcome = simulate(scenario)
    assert outcome.applied
    assert outcome.resolved


def test_an_lwt_that_never_arrived_is_found_not_mine() -> None:
    async def scenario(ring: Ring) -> Outcome:
        await ring.create_lock()
        ring.world.network.lose("request")
        return await ring.store.decide(ring.take(ring.uuid()))

    outcome = simulate(scenario)
    assert outcome.verdict is Verdict.OVERWRITTEN
    assert outcome.resolved


def test_an_lwt_of_which_one_replica_has_accepted_is_finished_by_the_next_that_finds_it() -> None:
    """The attempt is Unknown and in flight; the serial read that resolves it decides it, and for good."""

    def run(seed: int) -> tuple[bool, bool]:
        async def scenario(ring: Ring) -> tuple[bool, bool]:
            await ring.create_lock()
            mine = ring.uuid()
            take = ring.take(mine)
            ring.world.network.lose("propose", target="n2")
            ring.world.network.lose("propose", target="n3")
            assert await ends_unknown(ring.store.attempt(take, 10))
            visible = (await ring.store.read(Select(LOCKS, {"p": "a"}, ["lock"])))[0].lock == mine
            owners = [await ring.owner() for _ in range(10)]
            assert len(set(owners)) == 1
            return visible, owners[0] == mine

        return simulate(scenario, seed, settings=Settings(speculative_retry_s=None))

    outcomes = [run(seed) for seed in range(12)]
    assert not any(visible for visible, _ in outcomes), "a plain read does not see it"
    assert {finished for _, finished in outcomes} == {True, False}, "it depends on which two replicas are asked"


def test_a_paused_coordinator_applies_an_lwt_whose_client_has_given_up_long_ago() -> None:
    async def scenario(ring: Ring) -> tuple[Verdict, bool]:
        await ring.create_lock()
        mine = ring.uuid()
        for name in ring.cluster.nodes:
            ring.cluster.stop(name, for_s=30)
        with pytest.raises(OutcomeUnknown):
            await ring.store.decide(ring.take(mine), within_s=2)
        await asyncio.sleep(60)
        later = await ring.store.decide(ring.take(ring.uuid()))
        return later.verdict, await ring.owner() == mine

    assert simulate(scenario) == (Verdict.REFUSED, True)


@pytest.mark.parametrize(("waits_s", "surfaces"), [(0.2, True), (2.5, False)])
def test_an_lwt_given_up_before_the_servers_contention_time_out_can_surface_after_it_was_resolved(
    waits_s: float, surfaces: bool
) -> None:
    """The resolving read outbids it; a coordinator that still has time bids again, and applies what nobody wants."""

    async def scenario(ring: Ring) -> bool:
        await ring.create_lock()
        mine = ring.uuid()
        ring.store.attempt_s = waits_s
        ring.world.network.delay("promise", by_s=0.5, count=3)
        outcome = await ring.store.decide(ring.take(mine))
        assert (await ring.owner() == mine) is outcome.applied
        await asyncio.sleep(5)
        return await ring.owner() == mine and not outcome.applied

    assert simulate(scenario) is surfaces


@pytest.mark.parametrize("skew_s", [-3600, -5, 5, 3600])
def test_an_lwt_of_a_coordinator_whose_clock_is_wrong_is_decided_as_any_other(skew_s: float) -> None:
    async def scenario(ring: Ring) -> None:
        await ring.create_lock()
        ring.cluster.nodes["n2"].process.clock.step(skew_s)
        epoch = 0
        for _ in range(4):
            for name in ("n1", "n2", "n3"):
                ring.store.exclude(frozenset(ring.cluster.nodes) - {name})
                outcome = await ring.store.decide(_next_epoch(ring, epoch))
                assert outcome.applied
                epoch += 1
                assert await _epoch(ring) == epoch

    simulate(scenario)


def _next_epoch(ring: Ring, epoch: int, uuid: UUID | None = None) -> UpdateIf:
    return UpdateIf(LOCKS, {"p": "a"}, {"epoch": epoch + 1}, is_("epoch", epoch), attempt=uuid or ring.uuid())


async def _epoch(ring: Ring) -> int:
    rows = await ring.store.read(Select(LOCKS, {"p": "a"}, ["epoch"], consistency=SERIAL))
    return int(rows[0].epoch)


def test_contenders_for_one_partition_each_get_the_truth_and_some_no_answer() -> None:
    async def scenario(ring: Ring) -> tuple[int, int]:
        await ring.create_lock()
        stores = [ring.client(f"p{number}") for number in range(12)]
        for number, store in enumerate(stores):
            store.exclude(frozenset(ring.cluster.nodes) - {f"n{number % 3 + 1}"})
        takes = [ring.take(ring.uuid()) for _ in stores]
        attempts = [store.process.start(store.attempt(take, 10)) for store, take in zip(stores, takes, strict=True)]
        done = await asyncio.gather(*attempts, return_exceptions=True)
        applied = [answer for answer in done if not isinstance(answer, BaseException) and answer.applied]
        unknown = [answer for answer in done if isinstance(answer, OutcomeUnknown)]
        assert len(applied) <= 1
        assert len(applied) + len(unknown) >= 1
        owner = await ring.owner()
        by_name = {take.values[0]: answer for take, answer in zip(takes, done, strict=True)}
        assert owner in by_name
        assert isinstance(by_name[owner], OutcomeUnknown) or by_name[owner] in applied, (
            "refused, though it was applied"
        )
        return len(applied), len(unknown)

    outcomes = [simulate(scenario, seed) for seed in range(30)]
    assert any(unknown for _, unknown in outcomes), "contention costs answers, as on the real ring"
    assert any(applied for applied, _ in outcomes)


def test_a_lock_expires_by_its_ttl_and_what_has_none_stays() -> None:
    async def scenario(ring: Ring) -> None:
        await ring.create_lock()
        first = ring.uuid()
        assert (await ring.store.decide(ring.take(first, ttl_s=10))).applied
        refused = await ring.store.decide(ring.take(ring.uuid()))
        assert refused.rows[0].lock == first
        await asyncio.sleep(11)
        assert await ring.owner() is None
        assert await _epoch(ring) == 0
        assert (await ring.store.decide(ring.take(ring.uuid()))).applied

    simulate(scenario)


def test_attack_d7_a_lease_ends_by_the_clock_of_whichever_process_coordinates_the_next_take() -> None:
    async def scenario(ring: Ring) -> list[bool]:
        await ring.create_lock()
        ring.cluster.nodes["n2"].process.clock.step(2)
        ring.store.exclude(frozenset({"n2", "n3"}))
        await ring.store.decide(ring.take(ring.uuid(), ttl_s=10))
        await asyncio.sleep(8.5)
        taken = []
        for name in ("n1", "n2"):
            ring.store.exclude(frozenset(ring.cluster.nodes) - {name})
            taken.append((await ring.store.decide(ring.take(ring.uuid()))).applied)
        return taken

    assert simulate(scenario) == [False, True]


def test_attack_a11_with_local_serial_each_data_centre_grants_an_owner_of_its_own() -> None:
    async def scenario(ring: Ring) -> tuple[bool, bool]:
        far = ring.client("far", data_centre="dc2")
        await ring.create_lock()
        await asyncio.sleep(1)
        ring.world.network.cut(["n1", "n2", "n3", "client"], ["n4", "n5", "n6", "far"])
        await asyncio.sleep(30)
        local = await ring.store.decide(ring.take(ring.uuid()))
        there = await far.decide(ring.take(ring.uuid()))
        return local.applied, there.applied

    assert simulate(scenario, data_centres={"dc1": 3, "dc2": 3}) == (True, True)


def test_with_serial_the_data_centres_agree_or_do_nothing() -> None:
    async def scenario(ring: Ring) -> None:
        far = ring.client("far", data_centre="dc2")
        await ring.create_lock(table=GLOBAL_LOCKS)
        takes = [ring.take(ring.uuid(), table=GLOBAL_LOCKS) for _ in range(2)]
        outcomes = await asyncio.gather(ring.store.decide(takes[0]), far.decide(takes[1]))
        assert sum(outcome.applied for outcome in outcomes) == 1
        ring.world.network.cut(["n1", "n2", "n3", "client"], ["n4", "n5", "n6", "far"])
        await asyncio.sleep(30)
        with pytest.raises(NotEnoughReplicas):
            await ring.store.attempt(takes[0], 10)

    simulate(scenario, data_centres={"dc1": 3, "dc2": 3})


def test_a_plain_read_at_one_may_not_see_what_an_lwt_has_decided_and_a_serial_read_does() -> None:
    async def scenario(ring: Ring) -> None:
        await ring.create_lock()
        mine = ring.uuid()
        ring.cluster.hold_hints()
        ring.world.network.lose("commit", target="n3")
        assert (await ring.store.decide(ring.take(mine))).applied
        observations = {
            (await ring.store.read(Select(LOCKS, {"p": "a"}, ["lock"], consistency=ONE)))[0].lock for _ in range(9)
        }
        assert observations == {mine, None}
        assert await ring.owner() == mine

    simulate(scenario, settings=Settings(speculative_retry_s=None))


def test_a_taker_killed_before_any_step_holds_the_lock_or_not_and_the_next_is_reported_which() -> None:
    def run(step: int | None) -> tuple[bool, int]:
        async def scenario(ring: Ring) -> tuple[bool, int]:
            await ring.create_lock()
            store = ring.client("taker")
            mine = ring.uuid()
            store.process.count_steps()
            if step is not None:
                store.process.kill_before_step(step)
            store.process.start(store.decide(ring.take(mine)))
            await asyncio.sleep(60)
            outcome = await ring.store.decide(ring.take(ring.uuid()))
            assert outcome.verdict is (Verdict.REFUSED if await ring.owner() == mine else Verdict.APPLIED)
            return outcome.applied, store.process.steps

        return simulate(scenario)

    _, steps = run(None)
    assert {run(step)[0] for step in range(1, steps + 1)} == {True, False}

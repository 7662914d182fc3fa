"""A timeline queue on a ring of three nodes: its processes are stopped and killed, nodes are lost, messages are not.

What each process put, was given and settled it writes down itself (timeline_process.py), and the invariants of the
simulation judge it (tests/kit/client_history).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dev.servers.cassandra import HostedRing, Ring
from tests.system.timeline.timeline_fleet import Event, Fleet, Measured, Member
from tests.system.timeline.timeline_process import SECOND, boot_us, prepare

TAKES_OVER_WITHIN_S = 5.0
"""Beyond the lease: other processes try free lanes every second, take them one by one, and the machine is busy."""


@pytest.fixture
def fleet(cassandra_ring: Ring, tmp_path: Path) -> Iterator[Fleet]:
    """Processes on a queue of their own."""
    with Fleet(cassandra_ring, tmp_path) as fleet:
        asyncio.run(prepare(cassandra_ring.environment(), fleet.order("lanes")))
        yield fleet


def takings(member: Member, *, after_us: int = 0) -> dict[tuple[int, int], Event]:
    """The first taking of each lane by a process after a given time."""
    entries: dict[tuple[int, int], Event] = {}
    for event in member.those("taken", after_us=after_us):
        entries.setdefault((event["lane"][0], event["lane"][1]), event)
    return entries


def wait_until_it_owns_all(member: Member, *, after_us: int = 0, within_s: float = 30.0) -> float:
    """Return when a process has taken every lane after a given time; how long after it the last was taken, in s."""
    member.wait_for("taken", more=member.order.shards, after_us=after_us, within_s=within_s)
    taken = takings(member, after_us=after_us)
    assert member.order.shards == len(taken)
    return (max(event.at_us for event in taken.values()) - after_us) / SECOND


def causes_of_repetition(fleet: Fleet) -> Counter[str]:
    """Why messages were delivered again: each time its process was killed with the message in flight, had lost the
    lane, or had it for longer than it is hidden. Whatever has no such cause is needless.
    """
    killed_us = {member.name: member.ended_us for member in fleet.members}
    done = {event["receipt"] for event in fleet.those("settled") if event["answer"] == "done"}
    lost_us = {(event.actor, *event["lane"], event["epoch"]): event.at_us for event in fleet.those("let go")}
    deliveries: dict[str, list[Event]] = {}
    for event in fleet.those("given"):
        deliveries.setdefault(event["id"], []).append(event)
    causes: Counter[str] = Counter()
    for earlier, later in (pair for given in deliveries.values() for pair in pairwise(given)):
        times = {
            "killed": killed_us[earlier.actor],
            "lane lost": lost_us.get((earlier.actor, *earlier["lane"], earlier["epoch"])),
            "visible": earlier.at_us + earlier["visibility_us"],
        }
        matches = [cause for cause, at_us in times.items() if at_us is not None and at_us < later.at_us]
        causes["needless" if earlier["receipt"] in done or not matches else matches[0]] += 1
    return causes


def test_an_owner_stopped_past_its_lease_delivers_and_settles_nothing_when_it_continues(
    fleet: Fleet, measured: Measured
) -> None:
    owner = fleet.consumer("owner", work_s=0.15)
    producer = fleet.producer("producer", plain=3)
    wait_until_it_owns_all(owner)
    other = fleet.consumer("other")
    other.wait_for("ready")
    owner.wait_for("given", after_us=owner.read()[-1].at_us)
    stopped_us = owner.pause()
    took_s = wait_until_it_owns_all(other, after_us=stopped_us)
    other.wait_for("given", more=10)
    goes_on_us = owner.resume()
    answers = owner.wait_for("settled", after_us=goes_on_us)
    (why, *_) = owner.wait_for("error", after_us=goes_on_us)
    let_go = owner.wait_for("let go", more=owner.order.shards, after_us=goes_on_us)
    other.wait_for("given", more=20, after_us=goes_on_us)
    producer.end()
    fleet.wait_until_all_is_settled().check()

    measured(
        f"lanes of a stopped owner were taken over {took_s:.1f} s after the stop, lease {owner.order.lease_ttl_s} s"
    )
    assert took_s < owner.order.lease_ttl_s + TAKES_OVER_WITHIN_S
    tenures = {(*event["lane"], event["epoch"]) for event in owner.those("taken") if event.at_us < stopped_us}
    late = owner.those("given", after_us=goes_on_us)
    assert [] == [event for event in late if (*event["lane"], event["epoch"]) in tenures]
    assert "done" not in {event["answer"] for event in answers}
    assert ("ClockNotTrusted", True) == (why["kind"], "why=this process was paused" in why["line"])
    assert tenures == {(*event["lane"], event["epoch"]) for event in let_go}


def test_owners_killed_in_turn_lose_nothing_and_only_what_was_in_flight_comes_again(
    fleet: Fleet, measured: Measured
) -> None:
    kill_owners_in_turn(fleet, measured, rounds=2, work_s=0.005)


@pytest.mark.slow
def test_owners_killed_at_any_time_of_their_work_lose_nothing(
    cassandra_ring: Ring, tmp_path: Path, measured: Measured
) -> None:
    with Fleet(cassandra_ring, tmp_path, lease_ttl_s=10, lease_touch_s=2, visibility_s=10) as fleet:
        asyncio.run(prepare(cassandra_ring.environment(), fleet.order("lanes")))
        kill_owners_in_turn(fleet, measured, rounds=5, work_s=0.02, with_full_slots=False)


def kill_owners_in_turn(
    fleet: Fleet, measured: Measured, *, rounds: int, work_s: float, with_full_slots: bool = True
) -> None:
    """While producers run; then each repeated delivery is compared with the earlier receiver of the message."""
    owner = fleet.consumer("owner-0", work_s=work_s)
    producer = fleet.producer("producer", plain=2, groups=1)
    wait_until_it_owns_all(owner)
    took_s = []
    for number in range(1, rounds + 1):
        heir = fleet.consumer(f"owner-{number}", work_s=work_s)
        heir.wait_for("ready")
        owner.wait_for("settled", more=30)
        if with_full_slots:
            owner.hold()
        took_s.append(wait_until_it_owns_all(heir, after_us=owner.kill()))
        owner = heir
    producer.end()
    ended_us = boot_us()
    ledger = fleet.wait_until_all_is_settled(within_s=300)
    settled_s = (boot_us() - ended_us) / SECOND
    ledger.check()

    again = causes_of_repetition(fleet)
    suspects = len([event for event in fleet.those("given") if event["suspect"]])
    measured(
        f"{rounds} owners killed, {len(ledger.acknowledged_ids)} messages, {dict(again)} delivered again,"
        f" {suspects} with care, the last of them settled {settled_s:.1f} s after the last put;"
        f" lanes taken over after {', '.join(f'{each:.1f}' for each in took_s)} s, lease {owner.order.lease_ttl_s} s"
    )
    assert max(took_s) < owner.order.lease_ttl_s + TAKES_OVER_WITHIN_S
    assert 0 == again["needless"]
    assert again["killed"] <= rounds * owner.order.limit
    assert again["killed"] > 0 or not with_full_slots


def lose(ring: Ring, how: str) -> None:
    """Remove the last node."""
    if how == "killed":
        ring.nodes[2].kill()
    elif how == "stopped":
        ring.nodes[2].pause()
    else:
        assert isinstance(ring, HostedRing)
        ring.cut("n3", "n1")
        ring.cut("n3", "n2")


def lose_a_node_at_work(ring: Ring, fleet: Fleet, how: str) -> str:
    """Producers and owners work while a node is lost and comes back; what it took, in words."""
    owners = [fleet.consumer(name, lanes_max=2, nack_every=7) for name in ("one", "two")]
    producer = fleet.producer("producer", plain=3, groups=3, scheduled=True)
    for owner in owners:
        owner.wait_for("settled", more=10)
    lost_us = boot_us()
    lose(ring, how)
    producer.wait_for("put", more=100, after_us=lost_us)
    producer.wait_for("cancelled", more=4, after_us=lost_us)
    fleet.wait_until(lambda: len(fleet.those("settled", after_us=lost_us)) >= 100, "settles after the loss")
    ring.restore()
    fixed_us = boot_us()
    producer.wait_for("put", more=50, after_us=fixed_us)
    producer.end()
    ledger = fleet.wait_until_all_is_settled()
    ledger.check()
    puts = [event.at_us for event in fleet.those("put")]
    settles = [event.at_us for event in fleet.those("settled")]
    return (
        f"a node {how}: {len(puts)} messages put, longest gap {longest_gap_s(puts):.1f} s;"
        f" longest gap between settles {longest_gap_s(settles):.1f} s;"
        f" {len(producer.those('error'))} puts failed, {len(producer.those('cancelled'))} cancelled"
    )


def longest_gap_s(times_us: list[int]) -> float:
    """The longest time without one."""
    return max(later - earlier for earlier, later in pairwise(sorted(times_us))) / SECOND


@pytest.mark.parametrize("how", ["stopped", pytest.param("killed", marks=pytest.mark.slow)])
def test_a_node_is_lost_at_work_and_nothing_with_it(
    cassandra_ring: Ring, fleet: Fleet, measured: Measured, how: str
) -> None:
    measured(lose_a_node_at_work(cassandra_ring, fleet, how))


@pytest.mark.slow
def test_a_node_is_cut_off_at_work_and_nothing_lost_with_it(
    cassandra_hosts: HostedRing, tmp_path: Path, measured: Measured
) -> None:
    with Fleet(cassandra_hosts, tmp_path) as fleet:
        host = cassandra_hosts.client(near="n1")
        host.call(lambda: asyncio.run(prepare(cassandra_hosts.environment(), fleet.order("lanes"))))
        measured(lose_a_node_at_work(cassandra_hosts, fleet, "cut off"))

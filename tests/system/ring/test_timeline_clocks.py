"""Producers whose clocks are off, on a real ring: within the bound nothing is lost, beyond it nothing is taken.

The bound is 500 ms between any two processes, so 250 ms between a process and Cassandra's nodes (rule R1). Clocks are
set off in two ways: where our clock reads the machine's, and under the whole process, by libfaketime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dev.servers.cassandra import Ring
from dev.servers.debian import is_debian
from dev.servers.wall_clock import find_installed_libfaketime, shifted
from tests.system.timeline.timeline_fleet import Event, Fleet, Member, wall_us_at
from tests.system.timeline.timeline_process import prepare

WITHIN_MS = (200, -200)
BEYOND_MS = (350, -350)
BOUND_MS = 250
MESSAGES = 60


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    """How clocks are set off."""
    if request.param == "faketime" and find_installed_libfaketime() is None and not is_debian():
        pytest.skip("needs libfaketime, or Debian's packages of it")
    return str(request.param)


@pytest.fixture
def fleet(cassandra_ring: Ring, tmp_path: Path) -> Iterator[Fleet]:
    """Processes on a queue of their own."""
    with Fleet(cassandra_ring, tmp_path) as fleet:
        asyncio.run(prepare(cassandra_ring.environment(), fleet.order("lanes")))
        yield fleet


def start_off(fleet: Fleet, way: str, role: str, off_ms: int, **wishes: Any) -> Member:
    """A process whose wall clock is off by so much."""
    name = f"{role}-{off_ms:+d}"
    if way == "faketime":
        return fleet.start(role, name, shifted(off_ms / 1000), **wishes)
    return fleet.start(role, name, clock_off_ms=off_ms, **wishes)


@pytest.mark.parametrize("way", [pytest.param("injected", marks=pytest.mark.slow), "faketime"], indirect=True)
def test_producers_within_the_bound_lose_nothing_whichever_way_they_are_off(fleet: Fleet, way: str) -> None:
    consumer = fleet.consumer("consumer")
    producers = [start_off(fleet, way, "produce", off_ms, plain=3, groups=1) for off_ms in WITHIN_MS]
    for producer, off_ms in zip(producers, WITHIN_MS, strict=True):
        (ready,) = producer.wait_for("ready")
        assert abs(ready["now_us"] - wall_us_at(ready["boot_us"]) - off_ms * 1000) < 100_000
    for producer in producers:
        producer.wait_for("put", more=MESSAGES)
    for producer in producers:
        producer.end()
    fleet.wait_until_all_is_settled().check()
    consumer.end()


@pytest.mark.parametrize("way", ["injected", "faketime"], indirect=True)
def test_producers_and_owners_beyond_the_bound_are_refused_with_the_reason_in_one_line(
    fleet: Fleet, way: str
) -> None:
    refused = [
        start_off(fleet, way, role, off_ms, begins_out_of_bounds=True, plain=1)
        for role in ("produce", "consume")
        for off_ms in BEYOND_MS
    ]
    for member in refused:
        off_ms = BEYOND_MS[0] if "+" in member.name else BEYOND_MS[1]
        # Where the machine is so busy that a node answers late, that is the reason for a while.
        failed = member.wait_for("error", more=3, where=_is_off)
        for line in (event["line"] for event in (*failed, *member.wait_for("logged", where=_is_off))):
            assert f"bound_ms={BOUND_MS}" in line
            assert "synchronize this host and the nodes with NTP or chrony" in line
            assert BOUND_MS < abs(_reported_by_ms(line)) < 2 * abs(off_ms)
            assert (_reported_by_ms(line) > 0) == (off_ms < 0), "the node is ahead where this clock is behind"
            assert "\n" not in line
        assert {"ClockNotTrusted"} == {event["kind"] for event in failed}
        message = [_why(event) for event in member.those("logged")]
        assert all(earlier != later for earlier, later in pairwise(message)), "the same line was logged twice"
    assert [] == fleet.those("put", "taken", "given", "settled")


def _why(event: Event) -> str:
    return str(event["line"]).partition("why=")[2].partition(",")[0]


def _is_off(event: Event) -> bool:
    return _why(event) == "this host's clock and a node's differ too much"


def _reported_by_ms(line: str) -> int:
    return int(line.partition("by_ms=")[2].partition(",")[0])

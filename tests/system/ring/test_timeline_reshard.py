"""The number of a queue's shards is changed twice while producers and consumers work, on a ring of three nodes.

Nothing is lost, groups keep their order over the changes, what was scheduled comes or stays cancelled, and the lanes
of the old generations are retired. Once with a notice of seconds instead of a minute; and once as a person does it,
by `headgate apply`, with repair at work beside.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dev.servers.cassandra import Ring
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.local.processes import wait_until
from tests.system.timeline.timeline_fleet import ROOT, Fleet, Measured, Member, wall_us_at
from tests.system.timeline.timeline_process import KEYSPACE, SECOND, Order, opened, prepare

SHARDS = {1: 6, 2: 12, 3: 4}
"""By generation."""

OLD_LANES = {(number, shard) for number in (1, 2) for shard in range(SHARDS[number])}
NOTICE_S = 3
SKEW_US = SECOND // 2


def wait_until_each_works(fleet: Fleet, generation: int, *, within_s: float = 60.0) -> None:
    """Return when messages of a generation were given out."""

    def works() -> bool:
        return len([event for event in fleet.those("given") if event["lane"][0] == generation]) > 20

    fleet.wait_until(works, f"messages of generation {generation} are given out", within_s=within_s)


def retired_us(fleet: Fleet) -> dict[tuple[int, int], int]:
    """When each lane was retired by its owner, as owners wrote it down; by the wall clock."""
    return {
        (event["lane"][0], event["lane"][1]): wall_us_at(event.at_us)
        for event in fleet.those("let go")
        if event["why"] == "retired"
    }


async def lanes_retired(order: Order, environment: Mapping[str, str]) -> dict[tuple[int, int], bool]:
    """Every lane of a queue as the store has it, and whether it is left for good."""
    variables = {**os.environ, **environment}
    async with opened(order, variables) as queue:
        settings, host = queue.engine.settings, queue.engine.host
        entries = {}
        for generation in settings.generations:
            for shard in range(generation.shards):
                lanes = await lane_of(host, settings, (generation.number, shard)).read_state()
                assert lanes is not None
                entries[generation.number, shard] = lanes.is_retired
        return entries


def check_the_end(fleet: Fleet, consumers: list[Member]) -> int:
    """All is settled, and the old lanes are retired; how many messages there were."""
    ledger = fleet.wait_until_all_is_settled(within_s=150)
    ledger.check()
    for consumer in consumers:
        consumer.end()
    there = asyncio.run(lanes_retired(fleet.order("look"), fleet.environment))
    assert {lane: lane in OLD_LANES for lane in there} == there
    assert sum(SHARDS.values()) == len(there)
    return len(ledger.acknowledged_ids)


class Report:
    """Generations in a file, as the catalogue holds them, but with a notice of seconds (generations.md)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = [GenerationSettings(1, SHARDS[1])]
        self._write()

    def change(self, shards: int) -> int:
        """Announce, and once that is there to be read, make sure; from when on the old generation is not written."""
        from_us = self._begins_us()
        old = replace(self._known.pop(), until_us=from_us)
        self._known += [old, GenerationSettings(old.number + 1, shards, from_us)]
        self._write()
        sure_us = max(from_us, self._begins_us())
        self._known[-2] = replace(old, sure_us=sure_us)
        self._write()
        return sure_us

    def _begins_us(self) -> int:
        return time.time_ns() // 1000 + NOTICE_S * SECOND + 2 * SKEW_US

    def _write(self) -> None:
        """Whole or not at all."""
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps([asdict(each) for each in self._known]))
        partial.rename(self._file)


def test_six_shards_become_twelve_and_four_under_load_and_the_old_lanes_are_retired(
    cassandra_ring: Ring, tmp_path: Path, measured: Measured
) -> None:
    file = tmp_path / "generations.json"
    wishes: dict[str, Any] = {
        "generations_file": str(file),
        "notice_s": NOTICE_S,
        "lease_ttl_s": 10,
        "lease_touch_s": 2,
    }
    record = Report(file)
    with Fleet(cassandra_ring, tmp_path, scheduled_in_s=12.0, **wishes) as fleet:
        asyncio.run(prepare(fleet.environment, fleet.order("lanes")))
        consumers = [fleet.consumer(name, nack_every=9) for name in ("one", "two")]
        producer = fleet.producer("producer", plain=2, groups=2, scheduled=True)
        wait_until_each_works(fleet, 1)
        sure_us = {}
        for number in (2, 3):
            sure_us[number - 1] = record.change(SHARDS[number])
            wait_until_each_works(fleet, number)
        producer.end()
        fleet.wait_until(lambda: set(retired_us(fleet)) >= OLD_LANES, "owners retire the old lanes", within_s=150)
        count = check_the_end(fleet, consumers)
        took_s = {
            number: (max(at for lane, at in retired_us(fleet).items() if lane[0] == number) - sure) / SECOND
            for number, sure in sure_us.items()
        }
        measured(
            f"{count} messages while 6 shards became 12 and 4; nobody could write to the old lanes any more"
            f" {took_s[1]:.1f} s and {took_s[2]:.1f} s before they were retired"
        )


QUEUE = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name}, namespace: shop}}
spec:
  shards: {shards}
  visibilityTimeout: 10s
  storage: {{tables: shared}}
"""


def apply(ring: Ring, directory: Path, name: str, shards: int) -> subprocess.CompletedProcess[str]:
    """`headgate apply`, as a person runs it."""
    file = directory / f"{name}-{shards}.yaml"
    file.write_text(QUEUE.format(name=name, shards=shards))
    return subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
        env={**os.environ, "PYTHONPATH": "workers:.", **ring.environment(), "KEYSPACE": KEYSPACE},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def wait_until_applied(apply: Callable[[int], subprocess.CompletedProcess[str]], shards: int) -> None:
    """Return when a change is announced; one at a time can be, so the one before has to be in force."""
    message: list[subprocess.CompletedProcess[str]] = []

    def announced() -> bool:
        message[:] = [apply(shards)]
        return " updated" in message[0].stdout

    assert wait_until(announced, timeout_s=120, every_s=3.0), message


@pytest.mark.slow
def test_shards_that_are_applied_under_load_come_into_force_in_a_minute_and_lose_nothing(
    cassandra_ring: Ring, tmp_path: Path, measured: Measured
) -> None:
    name = f"emails-{uuid.uuid4().hex[:8]}"
    made = apply(cassandra_ring, tmp_path, name, SHARDS[1])
    assert " created" in made.stdout, made
    with Fleet(cassandra_ring, tmp_path, queue=f"shop/{name}", scheduled_in_s=90.0) as fleet:
        consumers = [fleet.consumer(each, nack_every=9) for each in ("one", "two")]
        fleet.start("repair", "repair")
        scheduler = fleet.producer("scheduler", scheduled=True)
        producer = fleet.producer("producer", plain=2, groups=2)
        scheduler.wait_for("put", more=80)
        began_s = time.monotonic()
        came_s = {}
        for number in (2, 3):
            wait_until_applied(lambda shards: apply(cassandra_ring, tmp_path, name, shards), SHARDS[number])
            wait_until_each_works(fleet, number, within_s=120)
            came_s[number] = time.monotonic() - began_s
            if number == 2:
                scheduler.end()
        producer.end()
        count = check_the_end(fleet, consumers)
        measured(
            f"{count} messages while 6 shards were made 12 and 4 by apply: in force after {came_s[2]:.0f} s"
            f" and {came_s[3]:.0f} s, all settled and old lanes retired after {time.monotonic() - began_s:.0f} s"
        )

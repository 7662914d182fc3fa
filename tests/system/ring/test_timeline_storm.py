"""Real processes on a ring of three, judged as the simulation is: rights revoked for seconds, and faults in turn.

Each process writes down what it asked and was answered (timeline_process.py); tests/kit/client_history judges it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from dev.servers.cassandra import Ring
from headgate.local.processes import wait_until
from tests.system.timeline.timeline_fleet import Fleet, Measured, Member
from tests.system.timeline.timeline_process import KEYSPACE, SECOND, boot_us, prepare

REVOKED_S = 8.0
HEALS_WITHIN_S = 5.0
PASSWORD = "change-me"


class Role:
    """A role that may use the queue's keyspace, while it is granted."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.name = f"storm_{uuid.uuid4().hex[:8]}"
        ring.cql(f"CREATE ROLE {self.name} WITH LOGIN = true AND PASSWORD = '{PASSWORD}'")
        self.grant()

    @property
    def environment(self) -> dict[str, str]:
        """Of a process with this role."""
        return {"USERNAME": self.name, "PASSWORD": PASSWORD}

    def grant(self) -> int:
        """All rights; a time just before."""
        granted_us = boot_us()
        self._ring.cql(f"GRANT ALL PERMISSIONS ON KEYSPACE {KEYSPACE} TO {self.name}")
        return granted_us

    def revoke(self) -> int:
        """None; a time just after."""
        self._ring.cql(f"REVOKE ALL PERMISSIONS ON KEYSPACE {KEYSPACE} FROM {self.name}")
        return boot_us()


@pytest.fixture
def fleet(cassandra_ring: Ring, tmp_path: Path) -> Iterator[Fleet]:
    """Processes on a queue of their own."""
    with Fleet(cassandra_ring, tmp_path) as fleet:
        asyncio.run(prepare(cassandra_ring.environment(), fleet.order("lanes")))
        yield fleet


@pytest.fixture
def role(cassandra_ring: Ring, fleet: Fleet) -> Iterator[Role]:
    """A role on the queue's keyspace."""
    role = Role(cassandra_ring)
    yield role
    cassandra_ring.cql(f"DROP ROLE {role.name}")


def revoke_for_a_while(role: Role, owners: list[Member]) -> float:
    """Revoke, wait until it is noticed and the time is over, and grant; how long until all owners deliver, in s."""
    revoked_us = role.revoke()
    for owner in owners:
        owner.wait_for("logged", after_us=revoked_us, where=lambda event: "cannot" in event["line"])
    assert wait_until(lambda: boot_us() > revoked_us + REVOKED_S * SECOND, timeout_s=60, every_s=0.05)
    granted_us = role.grant()
    healed_us = max(owner.wait_for("given", after_us=granted_us)[0].at_us for owner in owners)
    return (healed_us - granted_us) / SECOND


def test_rights_that_are_revoked_for_eight_seconds_heal_by_themselves_within_five(
    fleet: Fleet, role: Role, measured: Measured
) -> None:
    owners = [fleet.start("consume", name, role.environment, lanes_max=2) for name in ("one", "two")]
    producer = fleet.producer("producer", plain=6)
    for owner in owners:
        owner.wait_for("settled", more=10)
    healed_s = revoke_for_a_while(role, owners)
    producer.end()
    fleet.wait_until_all_is_settled().check()
    measured(f"rights revoked for {REVOKED_S:g} s: the last of two owners delivers {healed_s:.1f} s after the grant")
    assert healed_s < HEALS_WITHIN_S


@pytest.mark.slow
def test_kills_stops_revoked_rights_and_a_lost_node_in_turn_break_no_promise(
    cassandra_ring: Ring, fleet: Fleet, role: Role, measured: Measured
) -> None:
    numbers = count()

    def begin() -> Member:
        return fleet.start("consume", f"owner-{next(numbers)}", role.environment, nack_every=7)

    owners = [begin(), begin()]
    producer = fleet.producer("producer", plain=3, groups=3, scheduled=True)
    for owner in owners:
        owner.wait_for("ready")
    for _ in range(3):
        fleet.wait_until(lambda: len(fleet.those("settled", after_us=boot_us() - SECOND)) > 5, "settles")
        owners[0].kill()
        owners[0] = begin()
        owners[0].wait_for("ready")
        stopped_us = owners[1].pause()
        over_us = stopped_us + 2 * owners[1].order.lease_ttl_s * SECOND
        assert wait_until(lambda over_us=over_us: boot_us() > over_us, timeout_s=60, every_s=0.05)
        owners[1].resume()
        lost_us = boot_us()
        cassandra_ring.nodes[2].kill()
        producer.wait_for("put", more=50, after_us=lost_us)
        cassandra_ring.restore()
        revoked_us = role.revoke()
        assert wait_until(
            lambda revoked_us=revoked_us: boot_us() > revoked_us + REVOKED_S * SECOND, timeout_s=60, every_s=0.05
        )
        granted_us = role.grant()
        fleet.wait_until(lambda granted_us=granted_us: fleet.those("given", after_us=granted_us) != [], "deliveries")
    producer.end()
    ledger = fleet.wait_until_all_is_settled(within_s=300)
    ledger.check()
    measured(
        f"{len(ledger.acknowledged_ids)} messages through three rounds of kill -9, SIGSTOP, a lost node and REVOKE"
    )

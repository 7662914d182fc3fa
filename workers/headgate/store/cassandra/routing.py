"""Which coordinator a request goes to: one in the home data centre, if possible a replica, never one that is silent.

- Only nodes of the home data center are ever used (rule R5), so LOCAL_QUORUM and LOCAL_SERIAL mean that one.
- A plain request goes to any replica, in turn; an LWT to the first one in ring order, so that contenders for a row
  meet at one coordinator instead of in Paxos.
- A node that let a request time out goes to the end of every plan until it answers or `SUSPECT_S` has passed:
  a stopped or partitioned node seems alive until its heartbeat fails.
- A node that is excluded (its clock is off, rule R1) is used for nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from cassandra.policies import HostDistance, LoadBalancingPolicy

SUSPECT_S = 15.0

Host = Any


class HomePolicy(LoadBalancingPolicy):  # type: ignore[misc]  # the driver has no types
    """Token-aware within one data centre."""

    def __init__(self, data_center: str | None) -> None:
        super().__init__()
        self.data_center = data_center
        self._hosts: tuple[Host, ...] = ()
        self._metadata: Any = None
        self._turn = itertools.count()
        self._suspect_until: dict[Host, float] = {}
        self._excluded: frozenset[str] = frozenset()

    def populate(self, cluster: Any, hosts: Iterable[Host]) -> None:
        """Called by the driver with the contact points, before it knows their data center."""
        self._metadata = cluster.metadata
        self._hosts = tuple(hosts)

    def distance(self, host: Host) -> int:
        """Local or not at all: no request of ours ever goes to another data center."""
        near = host.datacenter is None or self.data_center is None or host.datacenter == self.data_center
        return int(HostDistance.LOCAL if near else HostDistance.IGNORED)

    def make_query_plan(self, working_keyspace: str | None = None, query: Any = None) -> Iterator[Host]:
        """The nodes to try, best first; a request that could not be sent to one goes to the next."""
        hosts = [
            host
            for host in self._hosts
            if self.distance(host) == HostDistance.LOCAL
            and host.is_up is not False
            and host.address not in self._excluded
        ]
        count = len(hosts)
        if count < 2:
            return iter(hosts)
        keyspace = (query.keyspace if query is not None else None) or working_keyspace
        routing_key = query.routing_key if query is not None else None
        start = next(self._turn) % count
        plan = hosts[start:] + hosts[:start]
        if keyspace is not None and routing_key is not None:
            replicas = self._metadata.get_replicas(keyspace, routing_key)
            if query.serial_consistency_level is None:
                plan.sort(key=lambda host: host not in replicas)
            else:
                places = {host: place for place, host in enumerate(replicas)}
                plan.sort(key=lambda host: places.get(host, count))
        if self._suspect_until:
            now_s = time.monotonic()
            plan.sort(key=lambda host: self._suspect_until.get(host, 0.0) > now_s)
        return iter(plan)

    def suspect(self, host: Host) -> None:
        self._suspect_until[host] = time.monotonic() + SUSPECT_S

    def answered(self, host: Host) -> None:
        self._suspect_until.pop(host, None)

    @property
    def suspects(self) -> bool:
        """Whether an answer can clear anybody."""
        return bool(self._suspect_until)

    def exclude(self, addresses: frozenset[str]) -> None:
        """Use these nodes for nothing, and all others again."""
        self._excluded = addresses

    def on_up(self, host: Host) -> None:
        self._suspect_until.pop(host, None)
        self.on_add(host)

    def on_down(self, host: Host) -> None:
        """It stays in the list, marked as down by the driver."""

    def on_add(self, host: Host) -> None:
        self._hosts = (*(known for known in self._hosts if known != host), host)

    def on_remove(self, host: Host) -> None:
        self._hosts = tuple(known for known in self._hosts if known != host)
        self._suspect_until.pop(host, None)

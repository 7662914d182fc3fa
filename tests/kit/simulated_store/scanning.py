"""Scans: a page of keys of a token range, merged from all nodes that hold any of it.

Every required node sends its next partitions in token order. The answers are merged up to the earliest end, and the
page stops there. Differences are not repaired on the way, as they would be in Cassandra: a scan decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.store.memory.partition import EVERYTHING, Cut
from headgate.store.memory.selections import scanned_rows
from headgate.store.model.statements import Scan
from headgate.store.model.types import Value
from tests.kit.simulated_store.answers import Answers
from tests.kit.simulated_store.coordinator import require
from tests.kit.simulated_store.images import EMPTY, ReplicaImage, merge_images
from tests.kit.simulated_store.topology import ReplicaGroup

if TYPE_CHECKING:
    from tests.kit.simulated_store.node import SimulatedNode

Place = tuple[int, bytes]
"""The place of a partition in token order; its key decides between equal tokens."""


@dataclass(frozen=True, slots=True)
class RangeCommand:
    """The next page of a scan."""

    scan: Scan
    after: Place | None


class Page(NamedTuple):
    """Rows of keys, and the start of the next page; None if this was the last."""

    rows: list[Any]
    after: Place | None


class ScannedPartitions(NamedTuple):
    """The answer of one node: partitions by place, and whether there are more."""

    partitions: dict[Place, tuple[tuple[Value, ...], ReplicaImage]]
    end: Place | None


class Scanning:
    """A node's handling of a scan."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._cluster = node.cluster
        self._loop = node.cluster.world.loop

    async def page(self, command: RangeCommand) -> Page:
        """One page."""
        node = self._node
        topology = self._cluster.topology
        wanted = topology.all_groups(command.scan.consistency, node.data_centre)
        names = tuple(name for name in topology.data_centre_of if any(name in g.names for gs in wanted for g in gs))
        up, _ = node.coordinator.split(names)
        for groups in wanted:
            require(groups, up)
        answers = Answers(self._loop, (ReplicaGroup(frozenset(up), len(up)),))
        cut = Cut(EVERYTHING, False, None, node.now_s)
        for name in up:
            target = self._cluster.nodes[name]
            node.send("range", target, target.scanning.on_range, node, answers, command, cut)
        timer = self._loop.call_later(self._cluster.settings.range_timeout_s, answers.finish)
        await answers.future
        timer.cancel()
        for groups in wanted:
            require(groups, tuple(answers.replies))
        return self._merged(command, cut, answers.replies)

    def on_range(self, sender: SimulatedNode, answers: Answers, command: RangeCommand, cut: Cut) -> None:
        """As a replica: return the next partitions of this node."""
        scan = command.scan
        gc_before_s = cut.now_s - self._cluster.gc_grace_s(scan.shape.table)
        above = scan.from_token if command.after is None else command.after[0] - 1
        partitions: dict[Place, tuple[tuple[Value, ...], ReplicaImage]] = {}
        end = None
        rows = 0
        for key, held in self._node.replica.held_between(scan.shape.table.name, above, scan.to_token):
            place = (held.token, key)
            if command.after is not None and place <= command.after:
                continue
            image = held.partition.replica_image(cut, gc_before_s)
            partitions[place] = (held.values, image)
            rows += max(1, len(image.rows))
            if rows >= scan.page_rows:
                end = place
                break
        self._node.send("keys", sender, answers.take, self._node.name, ScannedPartitions(partitions, end))

    def _merged(self, command: RangeCommand, cut: Cut, replies: dict[str, ScannedPartitions]) -> Page:
        shape = command.scan.shape
        ends = [scanned.end for scanned in replies.values() if scanned.end is not None]
        end = min(ends) if ends else None
        values = {
            place: partitions[0] for scanned in replies.values() for place, partitions in scanned.partitions.items()
        }
        rows: list[Any] = []
        for place in sorted(values):
            if end is not None and place > end:
                break
            replicas = self._cluster.topology.replicas(place[0])
            partitions = [replies[name].partitions.get(place) for name in replicas if name in replies]
            image = merge_images([entry[1] if entry is not None else EMPTY for entry in partitions], False)
            rows += scanned_rows(shape, values[place], image, cut.now_s)
        return Page(rows, end)

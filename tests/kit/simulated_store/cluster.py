"""A simulated ring of nodes, and the faults that can befall it, by name.

    cluster = Cluster(world)                                             three nodes, n1 to n3, in dc1
    cluster = Cluster(world, data_centres={"dc1": 3, "dc2": 3})          n1 to n6, each partition on all of them

Faults of links and messages are the network's (`world.network`): the kinds of messages are request, answer (between a
client and its coordinator), write, write-ack, read, rows, repair, prepare, promise, propose, accept, commit,
commit-ack, hint, hint-ack, batchlog, batchlog-ack, batchlog-done, range, keys. Faults of clocks are those of
`cluster.nodes[name].process.clock`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.errors import Bug, HeadgateError
from headgate.store.model.table import Table
from tests.kit.simulated_store.node import SimulatedNode
from tests.kit.simulated_store.refusals import NOT_ALLOWED, Refusal
from tests.kit.simulated_store.settings import Settings
from tests.kit.simulated_store.topology import Topology
from tests.kit.simulated_world.process import ProcessState
from tests.kit.simulated_world.world import World


class Cluster:
    """All nodes, their view of each other's liveness, and every fault of theirs."""

    def __init__(
        self,
        world: World,
        *,
        data_centres: Mapping[str, int] | None = None,
        replication: Mapping[str, int] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.world = world
        self.settings = settings or Settings()
        sizes = dict(data_centres or {"dc1": 3})
        numbers = iter(range(1, sum(sizes.values()) + 1))
        names = {dc: [f"n{next(numbers)}" for _ in range(size)] for dc, size in sizes.items()}
        self.topology = Topology(names, replication or {dc: min(3, size) for dc, size in sizes.items()})
        self.refusals: list[Refusal] = []
        self.hints_held: set[str] = set()
        self.batchlog_held: set[str] = set()
        self._gc_grace_s: dict[str, int] = {}
        self._out_since: dict[tuple[str, str], float] = {}
        self._left: set[str] = set()
        self._watchers: dict[str, list[Callable[[], None]]] = {}
        self.all_links_are_fine = True
        world.network.when_links_change(self.update_links)
        self.nodes: dict[str, SimulatedNode] = {}
        for name, data_centre in self.topology.data_centre_of.items():
            self.nodes[name] = SimulatedNode(self, name, data_centre)

    # ---- liveness

    def update_links(self) -> None:
        """Called after each fault that changes reachability."""
        now_s = self.world.now_s()
        passes = self.world.network.passes
        running = {name for name, node in self.nodes.items() if node.process.state is ProcessState.RUNNING}
        for source in self.nodes:
            for target in self.nodes:
                if source == target:
                    continue
                both = source in running and target in running
                if both and passes(source, target) and passes(target, source):
                    self._out_since.pop((source, target), None)
                else:
                    self._out_since.setdefault((source, target), now_s)
        self.all_links_are_fine = not self._out_since

    def believes_up(self, observer: str, name: str) -> bool:
        """Whether one node takes another for alive: only after a while of silence it does not."""
        since_s = self._out_since.get((observer, name))
        if since_s is None:
            return True
        return name not in self._left and self.world.now_s() - since_s < self.settings.detection_s

    def out_of_reach_s(self, observer: str, name: str) -> float:
        """How long one node has not received anything from another."""
        since_s = self._out_since.get((observer, name))
        return 0.0 if since_s is None else self.world.now_s() - since_s

    def watch(self, name: str, callback: Callable[[], None]) -> None:
        """Have a function called whenever the state of a node's process changes, whichever process it then has."""
        self._watchers.setdefault(name, []).append(callback)

    def state_changed(self, name: str) -> None:
        """Called by the process of a node."""
        self.update_links()
        for callback in self._watchers.get(name, ()):
            callback()

    # ---- faults

    def stop(self, name: str, *, for_s: float | None = None, machine: bool = False) -> None:
        """SIGSTOP a node: it serves the messages of the pause late, if it resumes."""
        self._node(name).process.pause(for_s=for_s, machine=machine)

    def go_on(self, name: str) -> None:
        """SIGCONT a node."""
        self._node(name).process.resume()

    def kill(self, name: str) -> None:
        """Kill -9 a node. Its disk stays, with everything it had acknowledged."""
        self._node(name).process.kill()

    def refuse(
        self, *, table: str | None = None, client: str | None = None, error: HeadgateError = NOT_ALLOWED
    ) -> Refusal:
        """Refuse the statements of a table (any) by a client (any), until it is taken back by `allow`."""
        refusal = Refusal(table, client, error)
        self.refusals.append(refusal)
        self.world.history.note("ring", "refuses", ("table", table), ("client", client))
        return refusal

    def allow(self, refusal: Refusal | None = None) -> None:
        """Take back a refusal, or all of them."""
        self.refusals = [] if refusal is None else [each for each in self.refusals if each is not refusal]
        self.world.history.note("ring", "refuses no more", ("left", len(self.refusals)))

    def shut_down(self, name: str) -> None:
        """End a node cleanly: the others are notified, and consider it dead at once."""
        self._left.add(name)
        self._node(name).process.kill()

    def restart(self, name: str) -> None:
        """Start a node that was killed or shut down again, from its disk."""
        node = self._node(name)
        if node.process.state is not ProcessState.DEAD:
            raise Bug("Only a stopped node can be restarted", node=name)
        process = self.world.process(name, data_centre=node.data_centre)
        process.clock = node.process.clock  # the machine was not touched
        node.process = process
        node.start()
        self._left.discard(name)
        self.world.history.note(name, "restarted")
        self.update_links()

    def overload(self, name: str, overloaded: bool = True) -> None:
        """Let a node reject every client request, unread."""
        self._node(name).overloaded = overloaded
        self.world.history.note(name, "overloaded" if overloaded else "has room again")

    def hold_hints(self, *names: str) -> None:
        """Keep nodes (all of them) from sending their hints."""
        self.hints_held |= set(names or self.nodes)
        self.world.history.note("cluster", "holds hints", *sorted(self.hints_held))

    def release_hints(self) -> None:
        """Let all nodes send their hints again, at their next turn."""
        self.hints_held.clear()
        for node in self.nodes.values():
            if node.replica.hints:
                node.hints.wake()

    def hold_batchlog(self, *names: str) -> None:
        """Keep nodes (all of them) from replaying logged batches."""
        self.batchlog_held |= set(names or self.nodes)
        self.world.history.note("cluster", "holds logged batches", *sorted(self.batchlog_held))

    def release_batchlog(self) -> None:
        """Let all nodes replay again, at their next turn."""
        self.batchlog_held.clear()
        for node in self.nodes.values():
            if node.replica.batches:
                node.batchlog.wake()

    def alter_gc_grace(self, table: Table | str, seconds: int) -> None:
        """The effect of an ALTER TABLE by another client."""
        name = table if isinstance(table, str) else table.name
        self._gc_grace_s[name] = seconds
        self.world.history.note("cluster", "gc_grace", name, ("seconds", seconds))

    def gc_grace_s(self, table: Table) -> int:
        """The gc_grace in force."""
        return self._gc_grace_s.get(table.name, table.gc_grace_s)

    def purge(self, name: str, *tables: Table) -> None:
        """Compact tables (all that it has) on one node: tombstones beyond gc_grace are forgotten."""
        node = self._node(name)
        for table in sorted(node.replica.tables):
            if not tables or any(each.name == table for each in tables):
                gc_grace_s = self._gc_grace_s.get(table, node.replica.gc_grace_s.get(table, 0))
                node.replica.purge(table, node.now_s, node.now_s - gc_grace_s)
        self.world.history.note(name, "purged", *(table.name for table in tables))

    def _node(self, name: str) -> SimulatedNode:
        node = self.nodes.get(name)
        if node is None:
            raise Bug("Unknown node", node=name, nodes=", ".join(self.nodes))
        return node

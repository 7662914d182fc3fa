"""Logged batches: two other nodes store them before anything is written, and replay them unless they learn that the
batch is done.

A batch whose coordinator did not finish it, or did not report so, is replayed once it is older than twice the write
timeout. Any node that stores it replays it when it gets to it: minutes or hours later if it was down. A replay writes
to the live replicas and leaves hints for the others. A batch older than the smallest gc_grace of all its tables is
dropped silently, no matter which part of it was written by then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.store.memory.mutations import Mutation, mutations_of
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Batch
from tests.kit.simulated_store.answers import Answers
from tests.kit.simulated_store.coordinator import require, wait_for_all
from tests.kit.simulated_store.replica import LoggedBatch
from tests.kit.simulated_store.topology import ReplicaGroup

if TYPE_CHECKING:
    from tests.kit.simulated_store.node import SimulatedNode

KEEPERS = 2


class Batchlog:
    """Both sides of it: writing a logged batch, and keeping those of others."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._cluster = node.cluster
        self._loop = node.cluster.world.loop
        self._timer: asyncio.TimerHandle | None = None
        self._replaying: set[int] = set()
        if node.replica.batches:
            self.wake()

    async def write(self, batch: Batch) -> None:
        """Log it, write all of it, report its end."""
        mutations = mutations_of(batch, self._node.now_s)
        if len(mutations) == 1:
            await self._node.coordinator.replicate(mutations[0], batch.consistency)
            return
        for mutation in mutations:
            self._require(mutation, batch.consistency)
        number = self._node.process.rng.getrandbits(64)
        keepers = await self._log(number, mutations)
        started = [self._node.coordinator.begin(mutation, batch.consistency) for mutation in mutations]
        self._report_done_when_safe(started, mutations, batch, (number, keepers))
        await wait_for_all(started)

    def _report_done_when_safe(
        self, started: list[Answers], mutations: list[Mutation], batch: Batch, logged: tuple[int, tuple[str, ...]]
    ) -> None:
        """Once each partition is on a quorum of all its replicas (or on more, if more was wanted) it is done."""
        stricter = (Consistency.ALL, Consistency.EACH_QUORUM)
        consistency = batch.consistency if batch.consistency in stricter else Consistency.QUORUM
        left = len(started)

        def one_is_safe(_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                for name in logged[1]:
                    target = self._cluster.nodes[name]
                    self._node.send("batchlog-done", target, target.on_batch_done, logged[0])

        for answers, mutation in zip(started, mutations, strict=True):
            groups = self._cluster.topology.groups(mutation.token, consistency, self._node.data_centre)
            answers.also = Answers(self._loop, groups)
            answers.also.future.add_done_callback(one_is_safe)

    def _require(self, mutation: Mutation, consistency: Consistency) -> None:
        groups = self._cluster.topology.groups(mutation.token, consistency, self._node.data_centre)
        require(groups, self._node.coordinator.split(self._cluster.topology.replicas(mutation.token))[0])

    async def _log(self, number: int, mutations: list[Mutation]) -> tuple[str, ...]:
        """Kept by two nodes of this data centre other than this one, if there are."""
        node = self._node
        nodes = self._cluster.topology.nodes[node.data_centre]
        others = [name for name in nodes if name != node.name and node.sees(name)]
        keepers = tuple(node.process.rng.sample(others, min(KEEPERS, len(others)))) or (node.name,)
        gc_grace_s = min(self._cluster.gc_grace_s(part.table) for each in mutations for part in each.parts)
        batch = LoggedBatch(self.now_s(), gc_grace_s, tuple(mutations))
        answers = Answers(self._loop, (ReplicaGroup(frozenset(keepers), len(keepers)),))
        for name in keepers:
            target = self._cluster.nodes[name]
            node.send("batchlog", target, target.on_batch, node, answers, number, batch)
        timer = self._loop.call_later(
            self._cluster.settings.write_timeout_s, answers.fail, "a batch could not be logged in time"
        )
        try:
            await answers.future
        finally:
            timer.cancel()
        return keepers

    def keep(self, number: int, batch: LoggedBatch) -> None:
        """Keep a batch of another coordinator."""
        self._node.replica.batches[number] = batch
        self.wake()

    def wake(self) -> None:
        """Schedule the check of stored batches."""
        if self._timer is None and self._node.name not in self._cluster.batchlog_held:
            self._timer = self._loop.call_later(
                self._cluster.settings.batchlog_every_s, self._check, context=self._node.process.context
            )

    def _check(self) -> None:
        self._timer = None
        if self._node.name in self._cluster.batchlog_held:
            return
        batches = self._node.replica.batches
        for number, batch in list(batches.items()):
            age_s = self.now_s() - batch.written_s
            if number in self._replaying or age_s <= 2 * self._cluster.settings.write_timeout_s:
                continue
            if age_s >= batch.gc_grace_s:
                self._cluster.world.history.note(self._node.name, "drops a logged batch", ("age_s", round(age_s)))
                del batches[number]
            else:
                self._replay(number, batch)
        if batches:
            self.wake()

    def _replay(self, number: int, batch: LoggedBatch) -> None:
        """It stays in the log until every replica has it or a hint for it is kept."""
        node = self._node
        self._replaying.add(number)
        for mutation in batch.mutations:
            node.cluster.world.history.note(node.name, "replays of a logged batch", mutation)
            up, down = node.coordinator.split(self._cluster.topology.replicas(mutation.token))
            for name in down:
                node.hints.keep(name, mutation)
            answers = Answers(self._loop, (ReplicaGroup(frozenset(up), len(up)),))
            for name in up:
                target = self._cluster.nodes[name]
                node.send("write", target, target.on_write, node, answers, mutation)
            self._loop.call_later(
                self._cluster.settings.write_timeout_s, node.coordinator.hint_the_silent, answers, up, mutation
            )

        self._loop.call_later(self._cluster.settings.write_timeout_s, self._replayed, number)

    def _replayed(self, number: int) -> None:
        self._replaying.discard(number)
        self._node.replica.batches.pop(number, None)

    def now_s(self) -> float:
        """The clock by which a batch ages."""
        return self._node.process.clock.wall_us() / 1_000_000

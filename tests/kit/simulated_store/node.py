"""One node of the simulated Cassandra: a process, its disk, and its handling of messages.

As a replica it applies, reads, promises, accepts and commits. As a coordinator it serves client requests by
coordinator.py, lwt.py and scanning.py. When its process is killed the disk stays, and a restart loads it. While it is
paused, messages wait, and are all served when it resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.errors import HeadgateError
from headgate.process.background_tasks import start_task
from headgate.store.memory.mutations import Mutation
from headgate.store.memory.selections import StoredCommand
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Batch, BatchIf, InsertIfAbsent, Select, Statement, UpdateIf
from headgate.store.store import AttemptAnswer, Overloaded
from tests.kit.simulated_store.answers import Answers
from tests.kit.simulated_store.batchlog import Batchlog
from tests.kit.simulated_store.coordinator import SimulatedCoordinator
from tests.kit.simulated_store.hints import Hints
from tests.kit.simulated_store.lwt import Deciding
from tests.kit.simulated_store.paxos import Ballot, Proposal
from tests.kit.simulated_store.replica import LoggedBatch, Replica
from tests.kit.simulated_store.scanning import RangeCommand, Scanning
from tests.kit.simulated_world.process import Process

if TYPE_CHECKING:
    from tests.kit.simulated_store.cluster import Cluster

DECISIONS = (InsertIfAbsent, UpdateIf, BatchIf)


class SimulatedNode:
    """A member of the ring."""

    def __init__(self, cluster: Cluster, name: str, data_centre: str) -> None:
        self.cluster = cluster
        self.name = name
        self.data_centre = data_centre
        self.replica = Replica()
        self.overloaded = False
        self.process: Process = cluster.world.process(name, data_centre=data_centre)
        self._send = cluster.world.network.send
        self._last_ballot_us = 0
        self.start()

    def start(self) -> None:
        """Start from the state on disk."""
        self.process.when_state_changes(lambda: self.cluster.state_changed(self.name))
        self.hints = Hints(self)
        self.batchlog = Batchlog(self)
        self.coordinator = SimulatedCoordinator(self)
        self.deciding = Deciding(self)
        self.scanning = Scanning(self)

    @property
    def now_s(self) -> int:
        """The second by which this node judges expiry."""
        return self.process.clock.wall_us() // 1_000_000

    def next_ballot(self, above: Ballot) -> Ballot:
        """A ballot of this node's clock, but above every known one, so that a slow clock can win too."""
        self._last_ballot_us = max(self.process.clock.wall_us(), self._last_ballot_us + 1, above[0] + 1)
        return self._last_ballot_us, self.process.rng.getrandbits(62)

    def sees(self, name: str) -> bool:
        """Whether this node takes another one for alive."""
        return self.cluster.believes_up(self.name, name)

    def send(self, kind: str, target: SimulatedNode, receive: Callable[..., object], *args: Any) -> None:
        """Send a message to another node, or to itself."""
        self._send(kind, self.process, target.process, receive, *args)

    # ---- as a coordinator

    def serve(self, client: Process, statement: Statement | RangeCommand, answer: Callable[[Any], None]) -> None:
        """A client's request arrived."""
        if self.overloaded:
            self._send("answer", self.process, client, answer, Overloaded("The coordinator is overloaded"))
            return
        for refusal in self.cluster.refusals:
            if refusal.concerns(client.name, statement):
                self._send("answer", self.process, client, answer, refusal.error)
                return
        start_task("simulated node", self._serve(client, statement, answer))

    async def _serve(
        self, client: Process, statement: Statement | RangeCommand, answer: Callable[[Any], None]
    ) -> None:
        result: Any
        try:
            result = await self._execute(statement)
        except HeadgateError as error:
            result = error
        self._send("answer", self.process, client, answer, result)

    async def _execute(self, statement: Any) -> Any:
        if isinstance(statement, Select):
            if statement.consistency is Consistency.SERIAL:
                await self.deciding.finish_in_flight(statement)
            return AttemptAnswer(await self.coordinator.select(statement))
        if isinstance(statement, DECISIONS):
            return await self.deciding.decide(statement)
        if isinstance(statement, RangeCommand):
            return await self.scanning.page(statement)
        if isinstance(statement, Batch) and statement.logged:
            await self.batchlog.write(statement)
        else:
            await self.coordinator.write(statement)
        return AttemptAnswer()

    def answer_time(self, client: Process, answer: Callable[[Any], None]) -> None:
        """A client's query of this node's time; Cassandra counts in milliseconds."""
        self._send("answer", self.process, client, answer, self.process.clock.wall_us() // 1000 * 1000)

    # ---- as a replica

    def on_write(self, sender: SimulatedNode, answers: Answers, mutation: Mutation) -> None:
        """Apply, and acknowledge."""
        self.replica.apply(mutation)
        self.send("write-ack", sender, answers.take, self.name, True)

    def on_read(self, sender: SimulatedNode, answers: Answers, command: StoredCommand) -> None:
        """Answer with an image of the requested part."""
        gc_before_s = command.cut.now_s - self.cluster.gc_grace_s(command.table)
        self.send("rows", sender, answers.take, self.name, self.replica.read(command, gc_before_s))

    def on_prepare(self, sender: SimulatedNode, answers: Answers, table: str, key: bytes, ballot: Ballot) -> None:
        """First phase of Paxos."""
        promise = self.replica.acceptor(table, key).prepare(ballot)
        self.send("promise", sender, self.deciding.take_promise, answers, self.name, promise)

    def on_propose(self, sender: SimulatedNode, answers: Answers, table: str, key: bytes, proposal: Proposal) -> None:
        """Second phase of Paxos."""
        accepted = self.replica.acceptor(table, key).propose(proposal)
        self.send("accept", sender, answers.take, self.name, accepted)

    def on_commit(self, sender: SimulatedNode, answers: Answers, table: str, key: bytes, proposal: Proposal) -> None:
        """Third phase: make it visible to plain reads."""
        self.replica.acceptor(table, key).commit(proposal)
        if proposal.mutation is not None:
            self.replica.apply(proposal.mutation)
        self.send("commit-ack", sender, answers.take, self.name, True)

    def on_hint(self, sender: SimulatedNode, mutation: Mutation, delivered: Callable[[], None]) -> None:
        """A write that another node kept for this node while it was down."""
        self.replica.apply(mutation)
        self.cluster.world.history.note(self.name, "applied a hint", mutation, ("from", sender.name))
        self.send("hint-ack", sender, delivered)

    def on_batch(self, sender: SimulatedNode, answers: Answers, number: int, batch: LoggedBatch) -> None:
        """Keep a logged batch for its coordinator."""
        self.batchlog.keep(number, batch)
        self.send("batchlog-ack", sender, answers.take, self.name, True)

    def on_batch_done(self, number: int) -> None:
        """Its coordinator has finished it."""
        self.replica.batches.pop(number, None)

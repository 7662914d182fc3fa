"""Lightweight transactions as a coordinator of Cassandra 5.0 runs them (paxos_variant v1).

    prepare -> finish proposals in flight -> update replicas that are behind -> read -> decide -> propose -> commit

After a rejection by a higher ballot it waits a random time and starts again, until the contention timeout. The answer
can be lost in three ways although the update is, or will be, applied. Some replicas accepted and too few answered; it
was accepted and the commit was not acknowledged in time; or the answer itself never came. A later LWT or serial read
of the partition finds every proposal that a majority may have accepted, and finishes it. A rejected LWT and a serial
read also propose an update that does nothing, so that nothing below their ballot appears after they have answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.store.memory.conditions import Question, holds, question_of, refusal_rows
from headgate.store.memory.mutations import Mutation, Part, decided_update
from headgate.store.memory.selections import command_of
from headgate.store.model.consistency import SerialLevel
from headgate.store.model.statements import Decision, Select
from headgate.store.model.table import Table
from headgate.store.store import AttemptAnswer, NotEnoughReplicas, OutcomeUnknown
from tests.kit.simulated_store.answers import Answers, Votes
from tests.kit.simulated_store.coordinator import plain_consistency, require
from tests.kit.simulated_store.paxos import NO_BALLOT, Ballot, PaxosPromise, Proposal, highest, restamped, summary_of
from tests.kit.simulated_store.topology import ReplicaGroup, majority

if TYPE_CHECKING:
    from tests.kit.simulated_store.node import SimulatedNode


@dataclass(frozen=True, slots=True)
class Round:
    """One LWT or serial read: its partition, its participants, and its time limit."""

    table: Table
    key: bytes
    token: int
    participants: tuple[str, ...]
    group: ReplicaGroup
    deadline_s: float


class Deciding:
    """A node's handling of an LWT."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._cluster = node.cluster
        self._loop = node.cluster.world.loop

    async def decide(self, statement: Decision) -> AttemptAnswer:
        """Run an LWT to its end, or raise Unknown."""
        now_s = self._node.now_s
        table = (statement.statements[0] if hasattr(statement, "statements") else statement).shape.table
        question = question_of(statement, now_s)
        round_ = self._round(table, question.command.key, question.command.token)
        began = False
        try:
            while True:
                ballot = await self._prepared(round_)
                began = True
                done = await self._decided(round_, ballot, question, statement, now_s)
                if done is not None:
                    return done
                await self._back_off(round_)
        except NotEnoughReplicas as error:
            if began:
                raise OutcomeUnknown(error.message, **error.facts) from error  # type: ignore[arg-type]
            raise

    async def _decided(
        self, round_: Round, ballot: Ballot, question: Question, statement: Decision, now_s: int
    ) -> AttemptAnswer | None:
        """Its end; None if a higher ballot came in between and nobody accepted this one."""
        image = await self._node.coordinator.read(question.command, plain_consistency(round_.table.serial))
        if not holds(question, image):
            rows = refusal_rows(question, image)
            if await self._proposed(round_, Proposal(ballot, None), unknown_if_partial=True):
                return AttemptAnswer(rows, applied=False)
            return None
        update = decided_update(statement, ballot[0], now_s)
        mutation = Mutation(round_.key, round_.token, [Part(round_.table, question.command.values, update)])
        proposal = Proposal(ballot, mutation)
        if not await self._proposed(round_, proposal, unknown_if_partial=True):
            return None
        await self._commit(round_, proposal)
        return AttemptAnswer()

    async def finish_in_flight(self, select: Select) -> None:
        """Before a serial read: every proposal that may have been accepted is committed, and no older one can be any
        more."""
        command = command_of(select, self._node.now_s)
        round_ = self._round(command.table, command.key, command.token)
        while True:
            ballot = await self._prepared(round_)
            if await self._proposed(round_, Proposal(ballot, None), unknown_if_partial=False):
                return
            await self._back_off(round_)

    # ---- the phases

    async def _prepared(self, round_: Round) -> Ballot:
        """A ballot that a majority has promised, with nothing in flight below it and no replica behind."""
        above = NO_BALLOT
        while True:
            self._check_time(round_)
            ballot = self._node.next_ballot(above)
            promises = await self._prepare(round_, ballot)
            above = highest(promises.values())
            if not all(promise.promised for promise in promises.values()):
                await self._back_off(round_)
                continue
            past = summary_of(promises)
            if past.in_progress.mutation is not None:
                again = Proposal(ballot, restamped(past.in_progress.mutation, ballot[0]))
                if await self._proposed(round_, again, unknown_if_partial=False):
                    self._cluster.world.history.note(
                        self._node.name, "finished an LWT of another coordinator", again.mutation
                    )
                    await self._commit(round_, again)
                else:
                    await self._back_off(round_)
                continue
            if past.behind:
                await self._announce(round_, past.behind, past.committed)
                continue
            return ballot

    async def _prepare(self, round_: Round, ballot: Ballot) -> dict[str, PaxosPromise]:
        answers = Answers(self._loop, (round_.group,))
        node = self._node
        for name in round_.participants:
            target = self._cluster.nodes[name]
            node.send("prepare", target, target.on_prepare, node, answers, round_.table.name, round_.key, ballot)
        await self._answered(answers, "too few replicas answered a prepare in time")
        return dict(answers.replies)

    def take_promise(self, answers: Answers, name: str, promise: PaxosPromise) -> None:
        """A replica answered a prepare; a single rejection proves that this ballot is lost."""
        answers.take(name, promise)
        if not promise.promised:
            answers.finish()

    async def _proposed(self, round_: Round, proposal: Proposal, *, unknown_if_partial: bool) -> bool:
        """Whether a majority accepted. If only some did it may still come to be, and so it is unknown."""
        votes = Votes(self._loop, len(round_.participants), round_.group.needed, patient=unknown_if_partial)
        node = self._node
        for name in round_.participants:
            target = self._cluster.nodes[name]
            node.send("propose", target, target.on_propose, node, votes, round_.table.name, round_.key, proposal)
        await self._answered(votes, "too few replicas answered a proposal in time")
        if votes.won:
            return True
        if unknown_if_partial and votes.accepted:
            raise OutcomeUnknown("A proposal was accepted by some replicas and refused by others")
        return False

    async def _commit(self, round_: Round, proposal: Proposal) -> None:
        """Make it visible at the plain consistency; replicas that do not acknowledge it get a hint."""
        node = self._node
        topology = self._cluster.topology
        consistency = plain_consistency(round_.table.serial)
        groups = topology.groups(round_.token, consistency, node.data_centre)
        up, down = node.coordinator.split(topology.replicas(round_.token))
        answers = Answers(self._loop, groups)
        mutation = proposal.mutation
        for name in up:
            target = self._cluster.nodes[name]
            node.send("commit", target, target.on_commit, node, answers, round_.table.name, round_.key, proposal)
        if mutation is not None:
            for name in down:
                node.hints.keep(name, mutation)
            self._loop.call_later(
                self._cluster.settings.write_timeout_s, node.coordinator.see_to_hints, answers, up, mutation
            )
        await answers.future

    async def _announce(self, round_: Round, behind: tuple[str, ...], committed: Proposal) -> None:
        """Commit to replicas of this majority the updates that they lack, and start again."""
        answers = Answers(self._loop, (ReplicaGroup(frozenset(behind), len(behind)),))
        node = self._node
        for name in behind:
            target = self._cluster.nodes[name]
            node.send("commit", target, target.on_commit, node, answers, round_.table.name, round_.key, committed)
        await self._answered(answers, "a replica that was behind did not answer in time")

    # ---- within

    def _round(self, table: Table, key: bytes, token: int) -> Round:
        topology = self._cluster.topology
        replicas = topology.replicas(token)
        if table.serial is SerialLevel.LOCAL_SERIAL:
            replicas = tuple(name for name in replicas if topology.data_centre_of[name] == self._node.data_centre)
        up, _ = self._node.coordinator.split(replicas)
        group = ReplicaGroup(frozenset(replicas), majority(len(replicas)))
        require((group,), up)
        deadline_s = self._loop.time() + self._cluster.settings.cas_contention_timeout_s
        return Round(table, key, token, up, group, deadline_s)

    def _check_time(self, round_: Round) -> None:
        if self._loop.time() >= round_.deadline_s:
            raise OutcomeUnknown("Too much contention for a partition", table=round_.table.name)

    async def _back_off(self, round_: Round) -> None:
        self._check_time(round_)
        await asyncio.sleep(self._node.process.rng.uniform(0, self._cluster.settings.cas_backoff_s_max))

    async def _answered(self, answers: Answers, otherwise: str) -> None:
        timer = self._loop.call_later(self._cluster.settings.write_timeout_s, answers.fail, otherwise)
        try:
            await answers.future
        finally:
            timer.cancel()

"""The promises, acceptances and commits of one replica for one partition: the acceptor of Paxos, as in Cassandra 5.0.
Pure.

    prepare(b)   promised if b is above every promise; returns the accepted proposal and the last commit
    propose(b)   accepted unless something above b was promised
    commit(b)    applied; an acceptance up to b is finished

A proposal without an update comes from a rejected LWT or a serial read: it ends every proposal in flight below it. A
ballot is (microseconds of the coordinator's clock, random number), so a proposal's cells are stamped with its ballot.
Invariant: at most one update is ever chosen for a ballot, and a later ballot finds it or a majority that cannot know
of it. tests/simulation checks the consequences over many seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headgate.store.memory.mutations import Mutation
from headgate.store.memory.partition import PartitionUpdate
from headgate.store.memory.rows import Row

Ballot = tuple[int, int]
NO_BALLOT: Ballot = (0, 0)


class Proposal(NamedTuple):
    """A ballot and the update it proposes; None does nothing."""

    ballot: Ballot
    mutation: Mutation | None


NOTHING = Proposal(NO_BALLOT, None)


class PaxosPromise(NamedTuple):
    """The answer to a prepare. If it is rejected, `witnessed` is the ballot above it."""

    promised: bool
    witnessed: Ballot
    accepted: Proposal
    committed: Proposal


class Acceptor:
    """The Paxos state of one partition on one replica; it outlives the process."""

    __slots__ = ("accepted", "committed", "promised")

    def __init__(self) -> None:
        self.promised = NO_BALLOT
        self.accepted = NOTHING
        self.committed = NOTHING

    def prepare(self, ballot: Ballot) -> PaxosPromise:
        """Promise to accept nothing below the ballot, unless that was promised of a higher one."""
        if ballot <= self.promised:
            return PaxosPromise(False, self.promised, self.accepted, self.committed)
        self.promised = ballot
        return PaxosPromise(True, ballot, self.accepted, self.committed)

    def propose(self, proposal: Proposal) -> bool:
        """Accept, unless a higher ballot was promised."""
        if proposal.ballot < self.promised:
            return False
        self.promised = proposal.ballot
        self.accepted = proposal
        return True

    def commit(self, proposal: Proposal) -> None:
        """Note it as committed. The caller applies the mutation."""
        if proposal.ballot > self.committed.ballot:
            self.committed = proposal
        if self.accepted.ballot <= proposal.ballot:
            self.accepted = NOTHING


class Summary(NamedTuple):
    """The partition's past, from a majority of promises."""

    in_progress: Proposal
    """Accepted by a replica, perhaps by a majority, and not known to be committed: it has to be finished first."""
    committed: Proposal
    behind: tuple[str, ...]
    """Replicas that lack the last commit."""


def summary_of(promises: Mapping[str, PaxosPromise]) -> Summary:
    """The latest accepted and the latest committed proposal among the promises."""
    in_progress = max((promise.accepted for promise in promises.values()), key=_ballot)
    committed = max((promise.committed for promise in promises.values()), key=_ballot)
    if in_progress.ballot <= committed.ballot or in_progress.mutation is None:
        in_progress = NOTHING
    behind = tuple(name for name, promise in promises.items() if promise.committed.ballot < committed.ballot)
    return Summary(in_progress, committed, behind)


def highest(promises: Iterable[PaxosPromise]) -> Ballot:
    """The highest ballot that any replica knows, so that the next one can be above it."""
    return max(
        (max(promise.witnessed, promise.accepted.ballot, promise.committed.ballot) for promise in promises),
        default=NO_BALLOT,
    )


def _ballot(proposal: Proposal) -> Ballot:
    return proposal.ballot


def restamped(mutation: Mutation, timestamp_us: int) -> Mutation:
    """The same update under a later ballot, as a coordinator proposes it that finishes the LWT of another."""
    return Mutation(
        mutation.key,
        mutation.token,
        [part._replace(update=_restamped_update(part.update, timestamp_us)) for part in mutation.parts],
    )


def _restamped_update(update: PartitionUpdate, timestamp_us: int) -> PartitionUpdate:
    static = update.static and _restamped_row(update.static, timestamp_us)
    rows = {key: _restamped_row(row, timestamp_us) for key, row in update.rows.items()}
    return PartitionUpdate(update.deletion, update.ranges, static, rows)


def _restamped_row(row: Row, timestamp_us: int) -> Row:
    marker = row.marker and row.marker._replace(timestamp_us=timestamp_us)
    cells = {name: cell._replace(timestamp_us=timestamp_us) for name, cell in row.cells.items()}
    return Row(row.clustering, marker, row.deletion, cells)

"""The store: runs statements, and decides when an answer does not come. Two classes implement `attempt`:
`CassandraStore` on the driver and `SimulatedStore` on virtual replicas. Everything in this file is common to both.

- A plain write or a read is sent again until it is answered or its time is up: both are idempotent (rule R4).
  A write whose time is up is `OutcomeUnknown`: it may be stored, or may still land.
- An LWT is sent once (rule R3); again only while it is certain that no server has received it. When its answer is
  lost, the partition is read at the table's serial level for the uuid of the attempt. That read also ends every
  proposal in flight at the replicas, so an attempt that it does not return was not applied, or was overwritten. Both
  are "not mine". One case remains: a request that a stopped coordinator has not read yet runs when it resumes, if its
  conditions hold then. Its result belongs to nobody, so everything that an LWT acquires has to expire or be fenced.
- One attempt never takes the whole time limit: a stopped or partitioned coordinator answers nothing, and another one
  would. The first attempt gets `attempt_s`, each further one twice the time of the one before.
- A read for a decision is one request; a scan pages, and only finds keys (rule R8).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from headgate.errors import Bug, EnvironmentProblem, OperationRefused, Unavailable
from headgate.store.model.consistency import Consistency
from headgate.store.model.rows import Row, WiredRows, wire_rows
from headgate.store.model.statements import BatchIf, Decision, Scan, Select, Write, lifetime_s

T = TypeVar("T")


class OutcomeUnknown(Unavailable):
    """It may have been applied, or may still be; the outcome is not known yet."""


class NotSent(Unavailable):
    """It was not sent, and will not be."""


class NotEnoughReplicas(Unavailable):
    """Too few replicas are alive to try; nothing was done.

    Where a part may have been done before the lack was detected it is `OutcomeUnknown` instead: of an LWT, whose
    earlier rounds may have been accepted, and of an unlogged batch of several partitions.
    """


class Overloaded(Unavailable):
    """It was rejected unread; nothing was done."""


class StatementFailed(Bug):
    """The driver or the server failed on a statement in a way that is not understood."""


REFUSALS = (OperationRefused, EnvironmentProblem)
"""The coordinator understood the statement and did nothing: a right is missing, it is too large, a table differs."""
STORE_ERRORS = (Unavailable, *REFUSALS, StatementFailed)
"""How a statement may end although this process is sound: a right that was revoked, a table that is being altered, a
node that is down. A background loop tries again; it ends neither itself nor the work of others."""


class Verdict(Enum):
    APPLIED = "applied"
    REFUSED = "refused"
    OVERWRITTEN = "overwritten"
    """Its answer was lost, and its attempt does not exist: not applied, or overwritten since. Not mine."""


@dataclass(frozen=True)
class Outcome:
    """The end of an LWT, and the rows that it read when it was rejected or had to be resolved.

    `resolved` means that the answer was lost and a serial read resolved it; `rows` are then whole rows.

    A refusal returns one row for each row that exists among those its conditions are about, in clustering order, and
    none for those that do not exist. It is a named tuple of

    - UpdateIf: the columns of its conditions, and no key;
    - InsertIfAbsent: every column of the table;
    - BatchIf: the key and the columns of all its conditions; every column once it holds an InsertIfAbsent.

    Fields are read by name; their order is the server's.
    """

    verdict: Verdict
    rows: tuple[Row, ...] = ()
    resolved: bool = False

    @property
    def applied(self) -> bool:
        return self.verdict is Verdict.APPLIED


class Store(ABC):
    """Runs statements. Every method takes the time it may take: nothing waits without end."""

    within_s: float = 10.0
    attempt_s: float = 2.5
    retry_pause_s: float = 0.05
    retry_pause_s_max: float = 1.0

    @property
    @abstractmethod
    def data_center(self) -> str:
        """The data center of its coordinators: LOCAL_QUORUM and LOCAL_SERIAL are of its replicas (rule R5)."""

    @abstractmethod
    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        """Send it once, and wait this long. Raises Unknown, NotEnoughReplicas or Overloaded; never retries.

        The last two promise that nothing was done.
        """

    @abstractmethod
    def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Keys by token range, page by page; each page is tried again as a read is."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """A clock for time limits: real, or the simulation's."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait, in real or virtual time."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections; requests in flight end as Unknown."""

    async def write(self, statement: Write, *, within_s: float | None = None) -> None:
        """Make a plain write durable at its consistency, or raise Unknown when the time is up."""
        await self._until_answered(statement, within_s)

    async def read(self, select: Select, *, within_s: float | None = None) -> Sequence[Row]:
        """The rows of one partition, whole."""
        return (await self._until_answered(select, within_s)).rows

    async def read_together(self, selects: Sequence[Select], *, within_s: float | None = None) -> Sequence[Row]:
        """The rows of several partitions, all or none: one request, where a store supports it. For callers that read
        them repeatedly: a small partition costs them hardly more than its request does."""
        answers = await asyncio.gather(*(self.read(each, within_s=within_s) for each in selects))
        return [row for rows in answers for row in rows]

    async def read_wired(self, select: Select, *, within_s: float | None = None) -> WiredRows:
        """The same rows, not decoded to values: for callers that read millions and need little of each."""
        columns = [select.shape.table.by_name[name] for name in select.shape.result_names]
        return wire_rows(columns, await self.read(select, within_s=within_s))

    async def decide(self, statement: Decision, *, within_s: float | None = None) -> Outcome:
        """Run an LWT once, and find out how it ended even when its answer is lost. Unknown if even that fails."""
        limit = self.within_s if within_s is None else within_s
        deadline = self.monotonic_s() + limit
        try:
            answer = await self._tried_again(
                lambda left_s: self.attempt(statement, left_s), limit, again=(NotEnoughReplicas, Overloaded)
            )
        except OutcomeUnknown:
            return await self._resolve(statement, max(deadline - self.monotonic_s(), limit))
        if answer.applied:
            return Outcome(Verdict.APPLIED)
        return Outcome(Verdict.REFUSED, tuple(answer.rows))

    async def _resolve(self, statement: Decision, within_s: float) -> Outcome:
        select, attempt_name = _read_of_attempt(statement)
        try:
            rows = await self.read(select, within_s=within_s)
        except Unavailable as error:
            raise OutcomeUnknown(
                "An LWT was not answered, and its attempt cannot be read", last=error.message
            ) from error
        mine = any(getattr(row, attempt_name) == statement.attempt for row in rows)
        return Outcome(Verdict.APPLIED if mine else Verdict.OVERWRITTEN, tuple(rows), resolved=True)

    async def _until_answered(self, statement: Write | Select, within_s: float | None) -> AttemptAnswer:
        return await self._tried_again(
            lambda left_s: self.attempt(statement, left_s), within_s, is_write=not isinstance(statement, Select)
        )

    async def _tried_again(
        self,
        send: Callable[[float], Awaitable[T]],
        within_s: float | None,
        *,
        is_write: bool = False,
        again: tuple[type[Unavailable], ...] = (Unavailable,),
    ) -> T:
        """A statement, sent until it is answered or the time is up: one that is idempotent, or as long as `again`
        shows that no server has received it."""
        limit = self.within_s if within_s is None else within_s
        deadline = self.monotonic_s() + limit
        pause_s, attempt_s = self.retry_pause_s, self.attempt_s
        sent_in_doubt = False
        while True:
            left_s = deadline - self.monotonic_s()
            try:
                return await send(min(left_s, attempt_s))
            except again as error:
                sent_in_doubt = sent_in_doubt or isinstance(error, OutcomeUnknown)
                if deadline - self.monotonic_s() <= pause_s:
                    if is_write and sent_in_doubt and not isinstance(error, OutcomeUnknown):
                        raise OutcomeUnknown("A write was not answered in time", last=error.message) from error
                    raise
            except REFUSALS as error:
                if is_write and sent_in_doubt:
                    raise OutcomeUnknown("A write was refused when it was sent again", last=error.message) from error
                raise
            await self.pause(pause_s)
            pause_s = min(pause_s * 2, self.retry_pause_s_max)
            attempt_s *= 2


@dataclass(frozen=True)
class AttemptAnswer:
    rows: Sequence[Row] = ()
    applied: bool = True


def _read_of_attempt(statement: Decision) -> tuple[Select, str]:
    """A serial read of a row (or of the partition's static cells) that holds the attempt, the longest lived."""
    parts = statement.statements if isinstance(statement, BatchIf) else (statement,)
    lasting = max(parts, key=lifetime_s)
    table = lasting.shape.table
    attempt_name = table.attempt
    if attempt_name is None:
        raise Bug("An LWT on a table without a column for attempts", table=table.name)
    wanted = table.partition_names if attempt_name in table.static_names else table.key_names
    key = dict(zip(wanted, lasting.shape.attempt_row_of(lasting.values), strict=True))
    return Select(table, key, limit=1, consistency=Consistency.SERIAL), attempt_name

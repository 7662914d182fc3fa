"""The store: runs statements, and decides what to do when an answer does not come. Two things implement `attempt`:
`CassandraStore` on the driver and `SimulatedStore` on virtual replicas; everything in this file is common to both.

- A plain write or a read is sent again until it is answered or its time is up: both are idempotent (rule R4).
  A write whose time is up is `Unknown`: it may be there, or may still land.
- An LWT is sent once (rule R3). When its answer is lost, the partition is read at the table's serial level for the
  uuid of the attempt: that read also ends whatever was in flight, so an attempt that it does not find was not applied
  and never will be, or was overwritten since. Both are treated as "not mine".
- A read that decides is one request; a scan pages, and only finds keys (rule R8).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.errors import Unavailable
from penstock.store.consistency import Consistency
from penstock.store.statements import (
    BatchIf,
    Conditional,
    Decision,
    InsertIfAbsent,
    Scan,
    Select,
    UpdateIf,
    Write,
)

Row = Any
"""A row is a named tuple with a field for each column that was asked for, in that order."""


class Unknown(Unavailable):
    """It may have been applied, or may still be; nobody can tell yet."""


class NotEnoughReplicas(Unavailable):
    """Too few replicas are alive to try; nothing was done."""


class Overloaded(Unavailable):
    """The server turned it away unread; nothing was done."""


class Verdict(Enum):
    """How an LWT ended."""

    APPLIED = "applied"
    REFUSED = "refused"
    OVERWRITTEN = "overwritten"
    """Its answer was lost, and its attempt is not to be found: not applied, or overwritten since. Not mine."""


@dataclass(frozen=True)
class Outcome:
    """The end of an LWT, and the rows as it met them when it was refused or had to be looked for.

    `resolved` tells that the answer was lost and was found by a serial read.
    """

    verdict: Verdict
    rows: tuple[Row, ...] = ()
    resolved: bool = False

    @property
    def applied(self) -> bool:
        """Whether it is known to have been applied, and by this very attempt."""
        return self.verdict is Verdict.APPLIED


class Store(ABC):
    """Runs statements. Every method takes the time it may take: nothing waits without end."""

    within_s: float = 10.0
    retry_pause_s: float = 0.05
    retry_pause_s_max: float = 1.0

    @abstractmethod
    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        """Send it once. Raises Unknown, NotEnoughReplicas or Overloaded; never tries again by itself."""

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
        """Let go of connections; what is in flight ends as Unknown."""

    async def write(self, statement: Write, *, within_s: float | None = None) -> None:
        """Make a plain write durable at its consistency, or raise Unknown when the time is up."""
        await self._until_answered(statement, within_s)

    async def read(self, select: Select, *, within_s: float | None = None) -> Sequence[Row]:
        """The rows of one partition, whole."""
        return (await self._until_answered(select, within_s)).rows

    async def decide(self, statement: Decision, *, within_s: float | None = None) -> Outcome:
        """Run an LWT once, and find out how it ended even when its answer is lost. Unknown if even that fails."""
        limit = self.within_s if within_s is None else within_s
        deadline = self.monotonic_s() + limit
        try:
            answer = await self.attempt(statement, limit)
        except Unknown:
            return await self._resolve(statement, max(deadline - self.monotonic_s(), limit))
        if answer.applied:
            return Outcome(Verdict.APPLIED)
        return Outcome(Verdict.REFUSED, tuple(answer.rows))

    async def _resolve(self, statement: Decision, within_s: float) -> Outcome:
        found = await self.read(_read_of_attempt(statement), within_s=within_s)
        mine = any(
            getattr(row, _first(statement).shape.table.attempt or "") == _first(statement).attempt for row in found
        )
        return Outcome(Verdict.APPLIED if mine else Verdict.OVERWRITTEN, tuple(found), resolved=True)

    async def _until_answered(self, statement: Write | Select, within_s: float | None) -> AttemptAnswer:
        limit = self.within_s if within_s is None else within_s
        deadline = self.monotonic_s() + limit
        pause_s = self.retry_pause_s
        sent_in_doubt = False
        while True:
            left_s = deadline - self.monotonic_s()
            try:
                return await self.attempt(statement, left_s)
            except Unavailable as error:
                sent_in_doubt = sent_in_doubt or isinstance(error, Unknown)
                if deadline - self.monotonic_s() <= pause_s:
                    raise self._given_up(statement, error, sent_in_doubt) from error
            await self.pause(pause_s)
            pause_s = min(pause_s * 2, self.retry_pause_s_max)

    def _given_up(self, statement: Write | Select, last: Unavailable, sent_in_doubt: bool) -> Unavailable:
        if sent_in_doubt and not isinstance(statement, Select) and not isinstance(last, Unknown):
            return Unknown("no answer to a write in time", last=last.message)
        return last


@dataclass(frozen=True)
class AttemptAnswer:
    """What came back: rows of a read, or whether an LWT was applied and what it met."""

    rows: Sequence[Row] = ()
    applied: bool = True


def _first(statement: Decision) -> Conditional:
    return statement.statements[0] if isinstance(statement, BatchIf) else statement


def _read_of_attempt(statement: Decision) -> Select:
    """A serial read of the row (or the partition's static cells) where the attempt left its uuid."""
    first = _first(statement)
    table = first.shape.table
    names = first.shape.value_names
    values = dict(zip(names, first.values, strict=True)) if isinstance(first, InsertIfAbsent) else _key_values(first)
    wanted = table.partition_names if table.attempt in table.static_names else table.key_names
    key = {name: values[name] for name in wanted}
    return Select(table, key, limit=1, consistency=Consistency.SERIAL)


def _key_values(update: UpdateIf) -> dict[str, Any]:
    start = len(update.shape.to)
    return dict(zip(update.shape.key, update.values[start : start + len(update.shape.key)], strict=True))

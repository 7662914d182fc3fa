"""Statements as values. A statement that breaks a rule of the design cannot be built, so nobody has to remember the
rules.

Two kinds of write, and they never touch the same cell (rule R3):

- plain ones (`Insert`, `Update`, `Delete`, in a `Batch`) carry their own timestamp, so that sending one again
  changes nothing (rule R4); they may name plain columns only;
- conditional ones (`InsertIfAbsent`, `UpdateIf`, in a `BatchIf`) are lightweight transactions; they may name LWT
  columns only, and each writes the fresh uuid of its attempt with its change, by which a lost answer is resolved.

Reads that decide are whole: `Select` names one partition and is never paged; `Scan` walks over all partitions and
can return nothing but keys (rule R8).

A statement is `shape` and `values`: the shape is checked once, and kept, so a statement in a hot loop costs little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias
from uuid import UUID

from headgate.errors import Bug
from headgate.store.model.consistency import Consistency
from headgate.store.model.shapes import (
    ComparisonOperator,
    DeleteShape,
    InsertShape,
    ScanShape,
    SelectShape,
    SliceForm,
    UpdateShape,
    delete_shape,
    insert_shape,
    scan_shape,
    select_shape,
    update_shape,
)
from headgate.store.model.table import Table
from headgate.store.model.types import Value

TTL_S_MAX = 630_720_000
"""Twenty years: the longest time to live that Cassandra takes."""

BATCH_STATEMENTS_MAX = 10_000


class StatementBroken(Bug):
    """A statement that breaks a rule of the design was about to be built."""


@dataclass(frozen=True)
class SliceBound:
    value: Value
    inclusive: bool


@dataclass(frozen=True)
class Slice:
    """A run of rows in clustering order: columns held equal, then one column between two bounds."""

    column: str
    lower: SliceBound | None = None
    upper: SliceBound | None = None
    equal: Mapping[str, Value] = field(default_factory=dict)

    @property
    def form(self) -> SliceForm:
        lower, upper = (bound.inclusive if bound is not None else None for bound in (self.lower, self.upper))
        return SliceForm(tuple(self.equal), self.column, lower, upper)

    @property
    def values(self) -> tuple[Value, ...]:
        bounds = (bound.value for bound in (self.lower, self.upper) if bound is not None)
        return (*self.equal.values(), *bounds)


def _check_stamp(ttl_s: int | None, timestamp_us: int = 1) -> None:
    if timestamp_us <= 0:
        raise StatementBroken("A plain write must carry its own timestamp (rule R4)", timestamp_us=timestamp_us)
    if ttl_s is not None and not 0 < ttl_s <= TTL_S_MAX:
        raise StatementBroken("A time to live must be from one second to twenty years", ttl_s=ttl_s)


class _Statement:
    """The common part of all statements: equality by value, and a readable form for histories."""

    __slots__ = ()
    _shown: ClassVar[tuple[str, ...]]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self._shown)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._shown)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__name__}({shown})"


class _PlainWrite(_Statement):
    __slots__ = ("consistency", "shape", "timestamp_us", "ttl_s", "values")
    _shown = ("shape", "values", "timestamp_us", "ttl_s", "consistency")

    def _fill(
        self,
        shape: InsertShape | UpdateShape | DeleteShape,
        values: tuple[Value, ...],
        timestamp_us: int,
        ttl_s: int | None,
        consistency: Consistency,
    ) -> None:
        self.shape = shape
        self.values = values
        self.timestamp_us = timestamp_us
        self.ttl_s = ttl_s
        self.consistency = consistency
        if ttl_s is not None or timestamp_us <= 0:
            _check_stamp(ttl_s, timestamp_us)
        shape.check_values(values)


class Insert(_PlainWrite):
    """Write a row, marker and all. Only where rows are written plainly; only plain columns."""

    __slots__ = ()
    shape: InsertShape

    def __init__(
        self,
        table: Table,
        values: Mapping[str, Value],
        *,
        timestamp_us: int,
        ttl_s: int | None = None,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
    ) -> None:
        shape = insert_shape(table, tuple(values), False)
        self._fill(shape, tuple(values.values()), timestamp_us, ttl_s, consistency)

    @classmethod
    def of(
        cls, shape: InsertShape, values: tuple[Value, ...], *, timestamp_us: int, ttl_s: int | None = None
    ) -> Insert:
        """The same of a known shape, its values in order: for callers that write many rows of one kind."""
        if shape.conditional:
            raise StatementBroken("An LWT shape cannot be a plain insert (rule R3)", table=shape.table.name)
        self = cls.__new__(cls)
        self._fill(shape, values, timestamp_us, ttl_s, Consistency.LOCAL_QUORUM)
        return self


class Update(_PlainWrite):
    """Write some cells of a row, without a marker; null removes a cell. Only plain columns."""

    __slots__ = ()
    shape: UpdateShape

    def __init__(
        self,
        table: Table,
        key: Mapping[str, Value],
        to: Mapping[str, Value],
        *,
        timestamp_us: int,
        ttl_s: int | None = None,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
    ) -> None:
        shape = update_shape(table, tuple(key), tuple(to), None, ())
        self._fill(shape, (*to.values(), *key.values()), timestamp_us, ttl_s, consistency)


class Delete(_PlainWrite):
    """Remove a row, a range of rows, or a partition.

    For cells written by LWT, the newest of their write times has to be passed, and the delete is stamped above it: a
    delete from a slower clock would leave them as ghosts (rule R3).
    """

    __slots__ = ()
    shape: DeleteShape

    def __init__(
        self,
        table: Table,
        key: Mapping[str, Value],
        *,
        timestamp_us: int,
        within: Slice | None = None,
        above_lwt_us: int | None = None,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
    ) -> None:
        shape = delete_shape(table, tuple(key), within.form if within else None)
        values = (*key.values(), *(within.values if within else ()))
        self._fill(shape, values, timestamp_us, None, consistency)
        if table.has_lwt and (above_lwt_us is None or timestamp_us <= above_lwt_us):
            raise StatementBroken(
                "A plain delete of an LWT's row must be stamped above its write time (rule R3)",
                table=table.name,
                timestamp_us=timestamp_us,
                above_lwt_us=above_lwt_us,
            )


Plain: TypeAlias = Insert | Update | Delete


class Batch(_Statement):
    """Plain writes sent together: one mutation if on one partition, else all or nothing when `logged`.

    Its consistency is its own; that of its parts does not count.
    """

    __slots__ = ("consistency", "logged", "statements")
    _shown = ("statements", "logged", "consistency")

    def __init__(
        self,
        statements: Iterable[Plain],
        *,
        logged: bool = False,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
    ) -> None:
        self.statements = tuple(statements)
        self.logged = logged
        self.consistency = consistency
        if not 0 < len(self.statements) <= BATCH_STATEMENTS_MAX:
            raise StatementBroken("A batch must hold 1 to 10,000 statements", held=len(self.statements))


class RowsOf(Batch):
    """A batch of plain inserts into one partition, given by their common part and the differences of each: the same
    as the `Batch` of its `statements`, for callers that write many rows.

    `lead` holds the values of the partition key, which come first in the shape. Each of `tails` is the rest of a
    row's values. Each of `stamps` is its timestamp and its time to live, which all have or none. No value is null.
    """

    __slots__ = ("lead", "shape", "stamps", "tails")
    _shown = ("shape", "lead", "tails", "stamps", "consistency")  # type: ignore[assignment]  # more than a batch has

    def __init__(
        self,
        shape: InsertShape,
        lead: tuple[Value, ...],
        tails: Sequence[tuple[Value, ...]],
        stamps: Sequence[tuple[int, int | None]],
    ) -> None:
        self.shape = shape
        self.lead = lead
        self.tails = tails
        self.stamps = stamps
        self.logged = False
        self.consistency = Consistency.LOCAL_QUORUM
        if shape.conditional or shape.value_names[: len(lead)] != shape.table.partition_names:
            raise StatementBroken(
                "Rows written together must be in one partition, with its key first", table=shape.table.name
            )
        if not 0 < len(tails) == len(stamps) <= BATCH_STATEMENTS_MAX:
            raise StatementBroken("A batch must hold 1 to 10,000 statements", held=len(tails))
        for timestamp_us, ttl_s in set(stamps):
            _check_stamp(ttl_s, timestamp_us)
        if len({ttl_s is None for _, ttl_s in stamps}) > 1:
            raise StatementBroken("Rows written together must all expire, or none", table=shape.table.name)
        if {tuple(map(type, tail)) for tail in tails} != {shape.exact_types[len(lead) :]}:
            raise StatementBroken("Rows written together must have all their values", table=shape.table.name)
        shape.check_values((*lead, *tails[0]))

    @property
    def statements(self) -> tuple[Plain, ...]:  # type: ignore[override]  # created on first use
        return tuple(
            Insert.of(self.shape, (*self.lead, *tail), timestamp_us=timestamp_us, ttl_s=ttl_s)
            for tail, (timestamp_us, ttl_s) in zip(self.tails, self.stamps, strict=True)
        )


@dataclass(frozen=True)
class CellCondition:
    """A condition on an LWT column. Null is compared by = and != alone: every other comparison is false in
    Cassandra."""

    column: str
    operator: ComparisonOperator
    value: Value

    def __post_init__(self) -> None:
        if self.value is None and self.operator not in (ComparisonOperator.IS, ComparisonOperator.IS_NOT):
            raise StatementBroken("Null cannot be compared by order", column=self.column)


def is_(column: str, value: Value) -> CellCondition:
    """The column holds this value; with None, it holds nothing."""
    return CellCondition(column, ComparisonOperator.IS, value)


def is_not(column: str, value: Value) -> CellCondition:
    return CellCondition(column, ComparisonOperator.IS_NOT, value)


def below(column: str, value: Value) -> CellCondition:
    """The column holds something smaller; nothing is not smaller."""
    return CellCondition(column, ComparisonOperator.BELOW, value)


class _LwtWrite(_Statement):
    __slots__ = ("attempt", "shape", "ttl_s", "values")
    _shown = ("shape", "values", "attempt", "ttl_s")

    def _fill(
        self, shape: InsertShape | UpdateShape, values: tuple[Value, ...], attempt: UUID, ttl_s: int | None
    ) -> None:
        self.shape = shape
        self.values = values
        self.attempt = attempt
        self.ttl_s = ttl_s
        _check_stamp(ttl_s)
        shape.check_values(values)


class InsertIfAbsent(_LwtWrite):
    """Make a row by LWT, if there is none."""

    __slots__ = ()
    shape: InsertShape

    def __init__(self, table: Table, values: Mapping[str, Value], *, attempt: UUID, ttl_s: int | None = None) -> None:
        self._fill(insert_shape(table, tuple(values), True), tuple(values.values()), attempt, ttl_s)


class UpdateIf(_LwtWrite):
    """Write cells by LWT, if the conditions hold. Without conditions it can only ride in a `BatchIf`."""

    __slots__ = ()
    shape: UpdateShape

    def __init__(
        self,
        table: Table,
        key: Mapping[str, Value],
        to: Mapping[str, Value],
        *conditions: CellCondition,
        attempt: UUID,
        ttl_s: int | None = None,
    ) -> None:
        forms = tuple((condition.column, condition.operator) for condition in conditions)
        values = (*to.values(), *key.values(), *(condition.value for condition in conditions))
        self._fill(update_shape(table, tuple(key), tuple(to), True, forms), values, attempt, ttl_s)


Conditional: TypeAlias = InsertIfAbsent | UpdateIf


class BatchIf(_Statement):
    """LWTs on one partition, applied wholly or not at all, under one attempt."""

    __slots__ = ("statements",)
    _shown = ("statements",)

    def __init__(self, statements: Iterable[Conditional]) -> None:
        self.statements = tuple(statements)
        if not 0 < len(self.statements) <= BATCH_STATEMENTS_MAX:
            raise StatementBroken("A batch must hold 1 to 10,000 statements", held=len(self.statements))
        first = self.statements[0]
        if not any(statement.shape.conditional for statement in self.statements):
            raise StatementBroken("A conditional batch has no condition", table=first.shape.table.name)
        if len({partition_of(statement) for statement in self.statements}) > 1:
            raise StatementBroken("A conditional batch must be of one partition", table=first.shape.table.name)
        if any(statement.shape.table is not first.shape.table for statement in self.statements):
            raise StatementBroken("A conditional batch must be of one table", table=first.shape.table.name)
        if len({statement.attempt for statement in self.statements}) > 1:
            raise StatementBroken("A conditional batch must be one attempt (rule R3)", table=first.shape.table.name)

    @property
    def attempt(self) -> UUID:
        return self.statements[0].attempt


class Select(_Statement):
    """Read one partition, or a slice of it: whole, in one request, never paged (rule R8)."""

    __slots__ = ("consistency", "limit", "shape", "values")
    _shown = ("shape", "values", "limit", "consistency")

    def __init__(
        self,
        table: Table,
        key: Mapping[str, Value],
        columns: Iterable[str] = (),
        *,
        within: Slice | None = None,
        limit: int | None = None,
        backwards: bool = False,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
        write_times_of: Iterable[str] = (),
    ) -> None:
        wanted = tuple(columns) or tuple(table.by_name)
        form = within.form if within else None
        self.shape: SelectShape = select_shape(
            table, tuple(key), wanted, form, backwards, limit is not None, tuple(write_times_of)
        )
        self.values = (*key.values(), *(within.values if within else ()))
        self.limit = limit
        self.consistency = consistency
        if limit is not None and limit < 1:
            raise StatementBroken("A limit must be at least one", limit=limit)
        self.shape.check_values(self.values)


class Scan(_Statement):
    """Find keys by walking over token ranges, page by page. It decides nothing (rule R8)."""

    __slots__ = ("consistency", "from_token", "page_rows", "shape", "to_token")
    _shown = ("shape", "from_token", "to_token", "page_rows", "consistency")

    def __init__(
        self,
        table: Table,
        columns: Iterable[str],
        *,
        from_token: int = -(2**63),
        to_token: int = 2**63 - 1,
        page_rows: int = 1000,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
    ) -> None:
        self.shape: ScanShape = scan_shape(table, tuple(columns))
        self.from_token = from_token
        self.to_token = to_token
        self.page_rows = page_rows
        self.consistency = consistency


Write: TypeAlias = Plain | Batch
Decision: TypeAlias = Conditional | BatchIf
Statement: TypeAlias = Write | Decision | Select | Scan


def attempt_bearers(statement: Decision) -> tuple[bool, ...]:
    """Which of the statements of an LWT write its attempt: one for each row that it touches.

    Of several on one row it is the first of those that live longest, so the attempt exists as long as any of its
    changes.
    """
    if not isinstance(statement, BatchIf):
        return (True,)
    chosen: dict[tuple[Value, ...], int] = {}
    for place, part in enumerate(statement.statements):
        row = part.shape.attempt_row_of(part.values)
        if row not in chosen or lifetime_s(part) > lifetime_s(statement.statements[chosen[row]]):
            chosen[row] = place
    bearers = set(chosen.values())
    return tuple(place in bearers for place in range(len(statement.statements)))


def lifetime_s(statement: Conditional) -> float:
    return statement.ttl_s or statement.shape.table.default_ttl_s or math.inf


def partition_of(statement: Plain | Conditional | Select) -> tuple[Value, ...]:
    """The partition key of a statement, in the order of the table."""
    return statement.shape.partition_of(statement.values)

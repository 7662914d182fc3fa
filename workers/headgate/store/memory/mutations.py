"""The effects of statements on partitions. Pure: timestamps and the second of the request are passed in.

All that a batch does to one partition key, in all tables, is one mutation, which a replica applies wholly or not at
all; so a logged batch on one partition needs no log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from headgate.store.memory.cells import (
    EXPIRING,
    LIVE,
    Cell,
    Deletion,
    expiring_cell,
    live_cell,
    tombstone_cell,
)
from headgate.store.memory.keys import clustering_orders, order_key, partition_key, token_of
from headgate.store.memory.partition import EVERYTHING, PartitionUpdate, Span
from headgate.store.memory.rows import Row, merge_rows
from headgate.store.model import statements
from headgate.store.model.shapes import DeleteShape, InsertShape, SliceForm, UpdateShape
from headgate.store.model.statements import (
    Batch,
    BatchIf,
    Decision,
    Delete,
    Insert,
    InsertIfAbsent,
    Plain,
    UpdateIf,
    attempt_bearers,
)
from headgate.store.model.table import Table
from headgate.store.model.types import Value

SHAPES_REMEMBERED = 4096


class Part(NamedTuple):
    """The effect of a mutation on one partition of one table."""

    table: Table
    values: tuple[Value, ...]
    update: PartitionUpdate


@dataclass(slots=True)
class Mutation:
    """The unit that a replica applies atomically: parts of one partition key."""

    key: bytes
    token: int
    parts: list[Part]

    def __repr__(self) -> str:
        return f"mutation of {', '.join(f'{part.table.name}{part.values!r}' for part in self.parts)}"


class _Setting(NamedTuple):
    place: int
    name: str
    encode: Callable[[Any], bytes]


class _Plan(NamedTuple):
    """The indexes of the key and the cells in the values of a shape."""

    partition: tuple[int, ...]
    clustering: tuple[int, ...]
    cells: tuple[_Setting, ...]
    statics: tuple[_Setting, ...]
    attempt_is_static: bool
    orders: tuple[Callable[[Any], Any], ...]


@lru_cache(SHAPES_REMEMBERED)
def _plan(shape: InsertShape | UpdateShape) -> _Plan:
    table = shape.table
    names = shape.value_names[: len(shape.to) + len(shape.key)] if isinstance(shape, UpdateShape) else shape.names
    places = {name: place for place, name in enumerate(names)}
    to = shape.to if isinstance(shape, UpdateShape) else [name for name in names if name not in table.key_names]
    settings = [_Setting(places[name], name, table.by_name[name].type.value.encode) for name in to]
    clustered = table.clustering_names if all(name in places for name in table.clustering_names) else ()
    return _Plan(
        tuple(places[name] for name in table.partition_names),
        tuple(places[name] for name in clustered),
        tuple(setting for setting in settings if setting.name not in table.static_names),
        tuple(setting for setting in settings if setting.name in table.static_names),
        table.attempt in table.static_names,
        clustering_orders(table),
    )


def has_row(shape: InsertShape | UpdateShape) -> bool:
    """Whether it is about a row, and not about static cells alone."""
    plan = _plan(shape)
    return bool(plan.clustering) or not shape.table.clustering


def row_key(statement: Insert | statements.Update | InsertIfAbsent | UpdateIf) -> tuple[Value, ...]:
    """The clustering key of the row that it writes; empty for a table without one."""
    return tuple([statement.values[place] for place in _plan(statement.shape).clustering])


def mutations_of(statement: Plain | Batch, now_s: int) -> list[Mutation]:
    """The effect of a plain write, by partition key."""
    if isinstance(statement, Batch):
        return _gathered(_plain_part(each, now_s) for each in statement.statements)
    part = _plain_part(statement, now_s)
    key = partition_key(part.table, part.values)
    return [Mutation(key, token_of(key), [part])]


def decided_update(statement: Decision, timestamp_us: int, now_s: int) -> PartitionUpdate:
    """The effect of an LWT whose conditions hold: cells stamped with its ballot, and the uuid of its attempt."""
    parts = statement.statements if isinstance(statement, BatchIf) else (statement,)
    whole = PartitionUpdate()
    for part, bears in zip(parts, attempt_bearers(statement), strict=True):
        attempt = part.attempt if bears else None
        marks = isinstance(part, InsertIfAbsent)
        merge_into(whole, _written(part.shape, part.values, timestamp_us, part.ttl_s, now_s, marks, attempt))
    return whole


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


def _gathered(parts: Iterable[Part]) -> list[Mutation]:
    mutations: dict[bytes, Mutation] = {}
    same: Part | None = None
    for part in parts:
        if same is not None and part.table is same.table and part.values == same.values:
            merge_into(same.update, part.update)
            continue
        same = part
        key = partition_key(part.table, part.values)
        mutation = mutations.get(key)
        if mutation is None:
            mutations[key] = Mutation(key, token_of(key), [part])
            continue
        for known in mutation.parts:
            if known.table is part.table or known.table.name == part.table.name:
                merge_into(known.update, part.update)
                same = known
                break
        else:
            mutation.parts.append(part)
    return list(mutations.values())


def merge_into(whole: PartitionUpdate, update: PartitionUpdate) -> None:
    """Add one statement's effect to that of others on the same partition."""
    if update.deletion is not None and (whole.deletion is None or whole.deletion < update.deletion):
        whole.deletion = update.deletion
    for span, deletion in update.ranges.items():
        known = whole.ranges.get(span)
        whole.ranges[span] = deletion if known is None else max(known, deletion)
    if update.static is not None:
        whole.static = update.static if whole.static is None else merge_rows(whole.static, update.static)
    for key, row in update.rows.items():
        held = whole.rows.get(key)
        whole.rows[key] = row if held is None else merge_rows(held, row)


def _plain_part(statement: Plain, now_s: int) -> Part:
    shape, values = statement.shape, statement.values
    if isinstance(statement, Delete):
        update = _deleted(statement.shape, values, Deletion(statement.timestamp_us, now_s))
    else:
        marks = isinstance(statement, Insert)
        update = _written(statement.shape, values, statement.timestamp_us, statement.ttl_s, now_s, marks, None)
    return Part(shape.table, shape.partition_of(values), update)


def _written(
    shape: InsertShape | UpdateShape,
    values: tuple[Value, ...],
    timestamp_us: int,
    ttl_s: int | None,
    now_s: int,
    marks: bool,
    attempt: Value,
) -> PartitionUpdate:
    plan = _plan(shape)
    table = shape.table
    lasts_s = ttl_s or table.default_ttl_s
    cells = _cells(plan.cells, values, timestamp_us, now_s, lasts_s)
    statics = _cells(plan.statics, values, timestamp_us, now_s, lasts_s)
    if attempt is not None and table.attempt is not None:
        cell = _cell(table.by_name[table.attempt].type.encode(attempt), attempt, timestamp_us, now_s, lasts_s)
        (statics if plan.attempt_is_static else cells)[table.attempt] = cell
    update = PartitionUpdate()
    if statics:
        update.static = Row((), None, None, statics)
    if plan.clustering or not table.clustering:
        marker = _cell(b"", None, timestamp_us, now_s, lasts_s) if marks else None
        if marker is not None or cells:
            clustering = tuple([values[place] for place in plan.clustering])
            key = tuple([order(value) for order, value in zip(plan.orders, clustering, strict=True)])
            update.rows[key] = Row(clustering, marker, None, cells)
    return update


def _cells(
    settings: Sequence[_Setting], values: tuple[Value, ...], timestamp_us: int, now_s: int, ttl_s: int
) -> dict[str, Cell]:
    cells = {}
    for place, name, encode in settings:
        value = values[place]
        if value is None:
            cells[name] = tombstone_cell(timestamp_us, now_s)
        elif ttl_s:
            cells[name] = Cell(timestamp_us, EXPIRING, now_s + ttl_s, encode(value), value, ttl_s)
        else:
            cells[name] = Cell(timestamp_us, LIVE, 0, encode(value), value, 0)
    return cells


def _cell(encoded: bytes, value: Value, timestamp_us: int, now_s: int, ttl_s: int) -> Cell:
    if ttl_s:
        return expiring_cell(timestamp_us, encoded, value, now_s, ttl_s)
    return live_cell(timestamp_us, encoded, value)


def _deleted(shape: DeleteShape, values: tuple[Value, ...], deletion: Deletion) -> PartitionUpdate:
    table = shape.table
    by_name = dict(zip(shape.key, values, strict=False))
    prefix = tuple(by_name[name] for name in table.clustering_names if name in by_name)
    if shape.within is not None:
        span = span_of(table, prefix, shape.within, values[len(shape.key) :])
        return PartitionUpdate(ranges={span: deletion})
    if len(prefix) == len(table.clustering):
        if table.clustering:
            return PartitionUpdate(rows={order_key(table, prefix): Row(prefix, None, deletion, {})})
        return PartitionUpdate(deletion=deletion)
    if prefix:
        return PartitionUpdate(ranges={span_of(table, prefix, None, ()): deletion})
    return PartitionUpdate(deletion=deletion)


class _Ends(NamedTuple):
    lower: Value
    lower_inclusive: bool | None
    upper: Value
    upper_inclusive: bool | None


def _ends(form: SliceForm, values: Sequence[Value]) -> _Ends:
    rest = list(values[len(form.equal) :])
    lower = rest.pop(0) if form.lower is not None else None
    upper = rest.pop(0) if form.upper is not None else None
    return _Ends(lower, form.lower, upper, form.upper)


def span_of(table: Table, prefix: Sequence[Value], within: SliceForm | None, values: Sequence[Value]) -> Span:
    """A prefix of the clustering key, and a slice of the next column, in the order of the rows."""
    if within is None:
        held = order_key(table, prefix)
        return Span(held, True, held, True) if held else EVERYTHING
    equal = (*prefix, *values[: len(within.equal)])
    held = order_key(table, equal)
    ends = _ends(within, values)
    low, high = (ends.lower, ends.lower_inclusive), (ends.upper, ends.upper_inclusive)
    if within.column in table.descending:
        low, high = high, low
    first, last = (
        (order_key(table, (*equal, value)), inclusive) if inclusive is not None else (held or None, True)
        for value, inclusive in (low, high)
    )
    return Span(first[0], first[1], last[0], last[1])

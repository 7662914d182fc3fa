"""The effects of statements on partitions. Pure: timestamps and the second of the request are passed in.

All that a batch does to one partition key, in all tables, is one mutation, which a replica applies wholly or not at
all; so a logged batch on one partition needs no log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from headgate.store.memory.keys import clustering_orders, order_key, partition_key, token_of
from headgate.store.memory.partition import EVERYTHING, PartitionUpdate, Span
from headgate.store.memory.rows import (
    EXPIRING,
    LIVE,
    Cell,
    Deletion,
    Row,
    expiring_cell,
    later,
    live_cell,
    merge_rows,
    tombstone_cell,
)
from headgate.store.model.shapes import DeleteShape, InsertShape, SliceForm, UpdateShape
from headgate.store.model.statements import (
    Batch,
    BatchIf,
    Conditional,
    Decision,
    Delete,
    Insert,
    InsertIfAbsent,
    Plain,
    Update,
    UpdateIf,
    attempt_bearers,
)
from headgate.store.model.table import Table
from headgate.store.model.types import Value

SHAPES_REMEMBERED = 4096


class Part(NamedTuple):
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

    clustering: tuple[int, ...]
    cells: tuple[_Setting, ...]
    statics: tuple[_Setting, ...]
    attempt_is_static: bool
    orders: tuple[Callable[[Any], Any], ...]


@lru_cache(SHAPES_REMEMBERED)
def _plan(shape: InsertShape | UpdateShape) -> _Plan:
    table = shape.table
    names = shape.value_names
    places = {name: names.index(name) for name in names}
    settings = [_Setting(places[name], name, table.by_name[name].type.encode) for name in shape.to]
    clustered = table.clustering_names if all(name in places for name in table.clustering_names) else ()
    return _Plan(
        tuple(places[name] for name in clustered),
        tuple(setting for setting in settings if setting.name not in table.static_names),
        tuple(setting for setting in settings if setting.name in table.static_names),
        table.attempt in table.static_names,
        clustering_orders(table),
    )


def has_row(shape: InsertShape | UpdateShape) -> bool:
    plan = _plan(shape)
    return bool(plan.clustering) or not shape.table.clustering


def row_key(statement: Insert | Update | InsertIfAbsent | UpdateIf) -> tuple[Value, ...]:
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
        _merge_into(whole, _written(part, timestamp_us, now_s, marks=marks, attempt=attempt))
    return whole


def _gathered(parts: Iterable[Part]) -> list[Mutation]:
    mutations: dict[bytes, Mutation] = {}
    gathered: dict[tuple[bytes, str], Part] = {}
    for part in parts:
        key = partition_key(part.table, part.values)
        known = gathered.setdefault((key, part.table.name), part)
        if known is not part:
            _merge_into(known.update, part.update)
        elif key in mutations:
            mutations[key].parts.append(part)
        else:
            mutations[key] = Mutation(key, token_of(key), [part])
    return list(mutations.values())


def _merge_into(whole: PartitionUpdate, update: PartitionUpdate) -> None:
    whole.deletion = later(whole.deletion, update.deletion)
    for span, deletion in update.ranges.items():
        whole.ranges[span] = later(whole.ranges.get(span), deletion) or deletion
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
        update = _written(statement, statement.timestamp_us, now_s, marks=marks)
    return Part(shape.table, shape.partition_of(values), update)


def _written(
    statement: Insert | Update | Conditional, timestamp_us: int, now_s: int, *, marks: bool, attempt: Value = None
) -> PartitionUpdate:
    values, plan, table = statement.values, _plan(statement.shape), statement.shape.table
    lasts_s = statement.ttl_s or table.default_ttl_s
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
    if prefix and len(prefix) == len(table.clustering):
        return PartitionUpdate(rows={order_key(table, prefix): Row(prefix, None, deletion, {})})
    if shape.within is not None or prefix:
        return PartitionUpdate(ranges={span_of(table, prefix, shape.within, values[len(shape.key) :]): deletion})
    return PartitionUpdate(deletion=deletion)


def span_of(table: Table, prefix: Sequence[Value], within: SliceForm | None, values: Sequence[Value]) -> Span:
    """A prefix of the clustering key, and a slice of the next column, in the order of the rows."""
    if within is None:
        held = order_key(table, prefix)
        return Span(held, True, held, True) if held else EVERYTHING
    equal = (*prefix, *values[: len(within.equal)])
    held = order_key(table, equal)
    rest = iter(values[len(within.equal) :])
    lower, upper = (
        (order_key(table, (*equal, next(rest))), inclusive) if inclusive is not None else (held or None, True)
        for inclusive in (within.lower, within.upper)
    )
    first, last = (upper, lower) if within.column in table.descending else (lower, upper)
    return Span(*first, *last)

"""A shape, prepared: how its values become what the driver sends.

Values are encoded here, by the types of the table, and handed to the driver as bytes: its own binding looks up each
column by name for each row, and costs more than all the rest of a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement

from penstock.store.consistency import Consistency, SerialLevel
from penstock.store.cql import Markers, delete_cql, insert_cql, scan_cql, select_cql, update_cql
from penstock.store.metrics import ShapeMetrics
from penstock.store.shapes import (
    DeleteShape,
    InsertShape,
    ScanShape,
    SelectShape,
    Shape,
    ShapeBroken,
    UpdateShape,
)
from penstock.store.statements import Conditional, Delete, InsertIfAbsent, Plain, Scan, Select
from penstock.store.table import Table
from penstock.store.types import Value

LEVELS = {
    Consistency.ONE: ConsistencyLevel.ONE,
    Consistency.LOCAL_QUORUM: ConsistencyLevel.LOCAL_QUORUM,
    Consistency.QUORUM: ConsistencyLevel.QUORUM,
    Consistency.EACH_QUORUM: ConsistencyLevel.EACH_QUORUM,
    Consistency.ALL: ConsistencyLevel.ALL,
}
SERIAL_LEVELS = {
    SerialLevel.LOCAL_SERIAL: ConsistencyLevel.LOCAL_SERIAL,
    SerialLevel.SERIAL: ConsistencyLevel.SERIAL,
}
COMMIT_LEVELS = {
    SerialLevel.LOCAL_SERIAL: ConsistencyLevel.LOCAL_QUORUM,
    SerialLevel.SERIAL: ConsistencyLevel.QUORUM,
}
"""At which an applied LWT is learnt, so that a plain quorum read sees it."""

_BIGINT = struct.Struct(">q").pack
_INT = struct.Struct(">i").pack

Encoded = list[bytes | None]


class _Bound(BoundStatement):  # type: ignore[misc]  # the driver has no types
    """Values encoded here: the driver's own binding never sees them, nor do its messages show them."""

    raw_values = "(encoded)"


@dataclass(frozen=True, slots=True)
class Plan:
    """A prepared shape."""

    prepared: PreparedStatement
    query_id: bytes
    encoders: tuple[Callable[[Any], bytes], ...]
    head: int
    """How many of the values stand before the attempt."""
    metrics: ShapeMetrics


def cql_of(keyspace: str, shape: Shape, markers: Markers) -> str:
    """The text to be prepared."""
    if isinstance(shape, InsertShape):
        return insert_cql(keyspace, shape, markers)
    if isinstance(shape, UpdateShape):
        return update_cql(keyspace, shape, markers)
    if isinstance(shape, DeleteShape):
        return delete_cql(keyspace, shape, markers)
    if isinstance(shape, SelectShape):
        return select_cql(keyspace, shape)
    if isinstance(shape, ScanShape):
        return scan_cql(keyspace, shape)
    raise ShapeBroken("no such kind of shape", kind=type(shape).__name__)


def plan_of(shape: Shape, prepared: PreparedStatement, metrics: ShapeMetrics) -> Plan:
    """The plan of a shape, once the server knows it."""
    head = len(shape.to) if isinstance(shape, UpdateShape) else len(shape.value_names)
    encoders = tuple(column.type.value.encode for column in shape.value_columns)
    return Plan(prepared, prepared.query_id, encoders, head, metrics)


_PLAIN = Markers(timestamp=True)
_PLAIN_TTL = Markers(timestamp=True, ttl=True)
_NOTHING = Markers()
_LWT = {(ttl, attempt): Markers(ttl=ttl, attempt=attempt) for ttl in (False, True) for attempt in (False, True)}


def plain_markers(statement: Plain) -> Markers:
    """The extra values of a plain write."""
    return _PLAIN if isinstance(statement, Delete) or statement.ttl_s is None else _PLAIN_TTL


def lwt_markers(statement: Conditional, bears_attempt: bool) -> Markers:
    """The extra values of an LWT."""
    return _LWT[statement.ttl_s is not None, bears_attempt]


def _encode(plan: Plan, values: Sequence[Value], shape: Shape) -> Encoded:
    try:
        return [None if value is None else encode(value) for encode, value in zip(plan.encoders, values, strict=True)]
    except (struct.error, UnicodeEncodeError) as error:
        raise ShapeBroken("a value that its column can not hold", table=shape.table.name, said=error) from None


def encode_insert(plan: Plan, statement: Any) -> Encoded:
    """Values, timestamp, time to live."""
    encoded = _encode(plan, statement.values, statement.shape)
    encoded.append(_BIGINT(statement.timestamp_us))
    if statement.ttl_s is not None:
        encoded.append(_INT(statement.ttl_s))
    return encoded


def encode_update(plan: Plan, statement: Any) -> Encoded:
    """Timestamp, time to live, values."""
    using: Encoded = [_BIGINT(statement.timestamp_us)]
    if statement.ttl_s is not None:
        using.append(_INT(statement.ttl_s))
    return using + _encode(plan, statement.values, statement.shape)


def encode_delete(plan: Plan, statement: Any) -> Encoded:
    """Timestamp, values."""
    return [_BIGINT(statement.timestamp_us), *_encode(plan, statement.values, statement.shape)]


def encode_lwt(plan: Plan, statement: Conditional, bears_attempt: bool) -> Encoded:
    """An INSERT: values, attempt, time to live. An UPDATE: time to live, what is set, attempt, the rest."""
    encoded = _encode(plan, statement.values, statement.shape)
    if bears_attempt:
        encoded.insert(plan.head, statement.attempt.bytes)
    if statement.ttl_s is not None:
        ttl = _INT(statement.ttl_s)
        if isinstance(statement, InsertIfAbsent):
            encoded.append(ttl)
        else:
            encoded.insert(0, ttl)
    return encoded


def encode_select(plan: Plan, statement: Select) -> Encoded:
    """Values, limit."""
    encoded = _encode(plan, statement.values, statement.shape)
    if statement.limit is not None:
        encoded.append(_INT(statement.limit))
    return encoded


def encode_scan(scan: Scan) -> Encoded:
    """From token, to token."""
    return [_BIGINT(scan.from_token), _BIGINT(scan.to_token)]


def read_level(table: Table, consistency: Consistency) -> int:
    """The level of a read; SERIAL is the table's own (rule R3)."""
    return int(SERIAL_LEVELS[table.serial] if consistency is Consistency.SERIAL else LEVELS[consistency])


def bound(plan: Plan, encoded: Encoded, level: int, *, serial: int | None = None, page: int | None = None) -> Any:
    """One statement for the driver; without a page size it is answered whole."""
    statement = _Bound(plan.prepared, consistency_level=level, serial_consistency_level=serial, fetch_size=page)
    statement.values = encoded
    return statement


def batch(kind: Any, parts: list[tuple[Plan, Encoded]], level: int, *, serial: int | None = None) -> Any:
    """A batch for the driver, routed by its first statement."""
    statement = BatchStatement(kind, consistency_level=level, serial_consistency_level=serial)
    statement._statements_and_parameters = [(True, plan.query_id, encoded) for plan, encoded in parts]
    plan, encoded = parts[0]
    first = _Bound(plan.prepared)
    first.values = encoded
    statement.keyspace = first.keyspace
    statement.routing_key = first.routing_key
    return statement


ENCODERS: dict[str, Callable[[Plan, Any], Encoded]] = {
    "Insert": encode_insert,
    "Update": encode_update,
    "Delete": encode_delete,
}

LOGGED = BatchType.LOGGED
UNLOGGED = BatchType.UNLOGGED

__all__ = [
    "COMMIT_LEVELS",
    "ENCODERS",
    "LEVELS",
    "LOGGED",
    "SERIAL_LEVELS",
    "UNLOGGED",
    "Encoded",
    "Plan",
    "batch",
    "bound",
    "cql_of",
    "encode_lwt",
    "encode_scan",
    "encode_select",
    "lwt_markers",
    "plain_markers",
    "plan_of",
    "read_level",
]

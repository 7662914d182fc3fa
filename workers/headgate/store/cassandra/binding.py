"""A prepared shape: how its values become the driver's requests.

Values are encoded in this module, by the types of the table, and passed to the driver as bytes. The driver's own
binding looks up each column by name for each row, and costs more than all the rest of a batch. The statements of a
batch are even passed in their wire form (`HeadgateProtocol`), where the common part of rows in one partition is
encoded once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cassandra import ConsistencyLevel
from cassandra.protocol import BatchMessage, ProtocolHandler, ResultMessage
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement

from headgate.store.model.consistency import Consistency, SerialLevel
from headgate.store.model.cql import Markers, delete_cql, insert_cql, scan_cql, select_cql, update_cql
from headgate.store.model.rows import WiredRows
from headgate.store.model.shapes import (
    DeleteShape,
    InsertShape,
    ScanShape,
    SelectShape,
    ShapeBroken,
    StatementShape,
    UpdateShape,
)
from headgate.store.model.statements import Conditional, Insert, InsertIfAbsent, Plain, RowsOf, Scan, Select
from headgate.store.model.table import Table
from headgate.store.model.types import Value

LEVELS: dict[Consistency, int] = {
    each: getattr(ConsistencyLevel, each.value) for each in Consistency if each is not Consistency.SERIAL
}
SERIAL_LEVELS: dict[SerialLevel, int] = {each: getattr(ConsistencyLevel, each.value) for each in SerialLevel}
COMMIT_LEVELS = {SerialLevel.LOCAL_SERIAL: ConsistencyLevel.LOCAL_QUORUM, SerialLevel.SERIAL: ConsistencyLevel.QUORUM}
"""At which an applied LWT is learnt, so that a plain quorum read sees it."""

_BIGINT = struct.Struct(">q").pack
_INT = struct.Struct(">i").pack
_SHORT = struct.Struct(">H").pack
_BATCH_HEAD = struct.Struct(">BH").pack
_BATCH_END = struct.Struct(">Hi").pack
_FRAME = struct.Struct(">BBhBi").pack
_COUNT = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">iq").pack
_TIMESTAMP_TTL = struct.Struct(">iqii").pack
_PREPARED = b"\x01"
_NULL = b"\xff\xff\xff\xff"
_SERIAL_FLAG, _KEYSPACE_FLAG, _TRACING_FLAG = 0x10, 0x80, 0x02

Encoded = list[bytes | None]


class _Undecoded(list[Any]):
    """The column metadata of an answer whose rows stay undecoded."""


class _UndecodedStatement(PreparedStatement):  # type: ignore[misc]  # the driver has no types
    """A prepared statement whose rows are not decoded. The driver reads from its metadata how to decode them, and
    replaces it when it prepares the text again on a node that no longer knows it."""

    @property
    def result_metadata(self) -> _Undecoded:
        return self._result_metadata

    @result_metadata.setter
    def result_metadata(self, columns: Sequence[Any] | None) -> None:
        self._result_metadata = _Undecoded(columns or ())


def _undecoded(prepared: PreparedStatement) -> _UndecodedStatement:
    return _UndecodedStatement(
        prepared.column_metadata,
        prepared.query_id,
        prepared.routing_key_indexes,
        prepared.query_string,
        prepared.keyspace,
        prepared.protocol_version,
        prepared.result_metadata,
        prepared.result_metadata_id,
    )


_DecodedResult: Any = ProtocolHandler.message_types_by_opcode[ResultMessage.opcode]


class _Result(_DecodedResult):  # type: ignore[misc]  # the driver has no types
    def recv_results_rows(
        self, f: Any, protocol_version: int, user_type_map: Any, result_metadata: Any, column_encryption_policy: Any
    ) -> None:
        """Its rows: decoded by the driver, unless they are wanted as they came."""
        if type(result_metadata) is not _Undecoded:
            super().recv_results_rows(f, protocol_version, user_type_map, result_metadata, column_encryption_policy)
            return
        self.recv_results_metadata(f, user_type_map)
        self.column_names = [column[2] for column in self.column_metadata or result_metadata]
        (count,) = _COUNT.unpack(f.read(_COUNT.size))
        self.parsed_rows = WiredRows(count, f.read())


class Wired(list[bytes]):
    """The statements of a batch in their wire form; the driver calls them the queries of a batch."""


class HeadgateProtocol(ProtocolHandler):  # type: ignore[misc]  # the driver has no types
    """The driver's protocol, except for batches whose statements are encoded already, and rows that stay encoded."""

    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: _Result,
    }

    @classmethod
    def encode_message(
        cls, msg: Any, stream_id: int, protocol_version: int, compressor: Any, allow_beta_protocol_version: bool
    ) -> bytes:
        """The frame of a request. Protocol 5 has its compression and checksums around frames, not in them."""
        if type(msg) is not BatchMessage or type(msg.queries) is not Wired:
            return bytes(
                super().encode_message(msg, stream_id, protocol_version, compressor, allow_beta_protocol_version)
            )
        flags = 0
        options = b""
        if msg.serial_consistency_level:
            flags |= _SERIAL_FLAG
            options += _SHORT(msg.serial_consistency_level)
        if msg.keyspace is not None:
            flags |= _KEYSPACE_FLAG
            options += _SHORT(len(msg.keyspace)) + msg.keyspace.encode()
        head = _BATCH_HEAD(msg.batch_type.value, len(msg.queries))
        body = b"".join((head, *msg.queries, _BATCH_END(msg.consistency_level, flags), options))
        frame_flags = _TRACING_FLAG if msg.tracing else 0
        return _FRAME(protocol_version, frame_flags, stream_id, msg.opcode, len(body)) + body


@dataclass(frozen=True, slots=True)
class Request:
    """Ready to be sent, and its size in bytes."""

    query: Any
    size: int


class _Bound(BoundStatement):  # type: ignore[misc]  # the driver has no types
    """Encoded values: the driver's own binding never reads them, and its messages do not show them."""

    raw_values = "(encoded)"


@dataclass(frozen=True, slots=True)
class Plan:
    prepared: PreparedStatement
    undecoded: PreparedStatement
    """The same, for rows that stay undecoded."""
    query_id: bytes
    encoders: tuple[Callable[[Any], bytes], ...]
    head: int
    """The number of values before the attempt."""
    lead: int
    """The number of values that are the partition key, if they come first; else 0."""
    table: str


_CQL: dict[type[StatementShape], Callable[[str, Any, Markers], str]] = {
    InsertShape: insert_cql,
    UpdateShape: update_cql,
    DeleteShape: delete_cql,
    SelectShape: lambda keyspace, shape, markers: select_cql(keyspace, shape, markers.partitions),
    ScanShape: lambda keyspace, shape, _: scan_cql(keyspace, shape),
}


def cql_of(keyspace: str, shape: StatementShape, markers: Markers) -> str:
    return _CQL[type(shape)](keyspace, shape, markers)


def plan_of(shape: StatementShape, prepared: PreparedStatement) -> Plan:
    head = len(shape.to) if isinstance(shape, UpdateShape) else len(shape.value_names)
    encoders = tuple(column.type.encode for column in shape.value_columns)
    partition = shape.table.partition_names
    lead = len(partition) if shape.value_names[: len(partition)] == partition else 0
    return Plan(prepared, _undecoded(prepared), prepared.query_id, encoders, head, lead, shape.table.name)


PLAIN = Markers(timestamp=True)
PLAIN_TTL = Markers(timestamp=True, ttl=True)
_LWT = {(ttl, attempt): Markers(ttl=ttl, attempt=attempt) for ttl in (False, True) for attempt in (False, True)}


def plain_markers(ttl_s: int | None) -> Markers:
    return PLAIN if ttl_s is None else PLAIN_TTL


def lwt_markers(statement: Conditional, bears_attempt: bool) -> Markers:
    return _LWT[statement.ttl_s is not None, bears_attempt]


def _encode(plan: Plan, values: Sequence[Value]) -> Encoded:
    try:
        return [None if value is None else encode(value) for encode, value in zip(plan.encoders, values, strict=True)]
    except (struct.error, UnicodeEncodeError) as error:
        raise ShapeBroken("A value does not fit its column", table=plan.table, cause=error) from None


def encode_plain(plan: Plan, statement: Plain) -> Encoded:
    """An INSERT: values, timestamp, time to live. Others: timestamp, time to live, values."""
    using: Encoded = [_BIGINT(statement.timestamp_us)]
    if statement.ttl_s is not None:
        using.append(_INT(statement.ttl_s))
    encoded = _encode(plan, statement.values)
    return encoded + using if type(statement) is Insert else using + encoded


def encode_lwt(plan: Plan, statement: Conditional, bears_attempt: bool) -> Encoded:
    """An INSERT: values, attempt, time to live. An UPDATE: time to live, the set columns, attempt, the rest."""
    encoded = _encode(plan, statement.values)
    if bears_attempt:
        encoded.insert(plan.head, statement.attempt.bytes)
    if statement.ttl_s is not None:
        encoded.insert(len(encoded) if isinstance(statement, InsertIfAbsent) else 0, _INT(statement.ttl_s))
    return encoded


def encode_select(plan: Plan, statement: Select) -> Encoded:
    encoded = _encode(plan, statement.values)
    if statement.limit is not None:
        encoded.append(_INT(statement.limit))
    return encoded


def encode_scan(scan: Scan) -> Encoded:
    return [_BIGINT(scan.from_token), _BIGINT(scan.to_token)]


def read_level(table: Table, consistency: Consistency) -> int:
    """The level of a read; SERIAL is the table's own (rule R3)."""
    return int(SERIAL_LEVELS[table.serial] if consistency is Consistency.SERIAL else LEVELS[consistency])


def lwt_levels(table: Table) -> tuple[int, int]:
    """At which an LWT is committed, and decided."""
    return COMMIT_LEVELS[table.serial], SERIAL_LEVELS[table.serial]


def bound(
    plan: Plan,
    encoded: Encoded,
    level: int,
    *,
    serial: int | None = None,
    page: int | None = None,
    decoded: bool = True,
) -> Request:
    """One statement for the driver; without a page size it is answered whole."""
    prepared = plan.prepared if decoded else plan.undecoded
    statement = _Bound(prepared, consistency_level=level, serial_consistency_level=serial, fetch_size=page)
    statement.values = encoded
    return Request(statement, sum([len(value) + 4 for value in encoded if value is not None]))


class Wiring:
    """The statements of one batch, one after the other."""

    def __init__(self) -> None:
        self.wired = Wired()
        self.first: tuple[Plan, Encoded] | None = None
        self._plan: Plan | None = None
        self._lead: tuple[Value, ...] = ()
        self._start = b""

    def add(self, plan: Plan, encoded: Encoded) -> None:
        if self.first is None:
            self.first = plan, encoded
        values = [_NULL if value is None else _INT(len(value)) + value for value in encoded]
        self.wired.append(_start_of(plan, len(encoded)) + b"".join(values))

    def add_insert(self, plan: Plan, statement: Insert) -> None:
        """A plain insert. If it goes to the partition of the one before, only the differences are encoded."""
        values, lead, ttl_s = statement.values, plan.lead, statement.ttl_s
        if self.first is None or not lead:
            self.add(plan, encode_plain(plan, statement))
            return
        if plan is not self._plan or values[:lead] != self._lead:
            self._plan, self._lead = plan, values[:lead]
            count = len(values) + (1 if ttl_s is None else 2)
            self._start = _start_of(plan, count) + _wire(plan.encoders[:lead], self._lead, plan)
        stamp = statement.timestamp_us
        end = _TIMESTAMP(8, stamp) if ttl_s is None else _TIMESTAMP_TTL(8, stamp, 4, ttl_s)
        self.wired.append(self._start + _wire(plan.encoders[lead:], values[lead:], plan) + end)

    def add_rows(self, plan: Plan, rows: RowsOf) -> None:
        lead = len(rows.lead)
        extra = 1 if rows.stamps[0][1] is None else 2
        start = _start_of(plan, len(plan.encoders) + extra) + _wire(plan.encoders[:lead], rows.lead, plan)
        encoders = plan.encoders[lead:]
        wired, int_ = self.wired, _INT
        stamp: tuple[int, int | None] = (0, 0)
        end = b""
        if self.first is None:
            key: Encoded = [encode(value) for encode, value in zip(plan.encoders[:lead], rows.lead, strict=True)]
            self.first = plan, key + [b""] * (len(encoders) + extra)
        if len(encoders) == 2:  # a clustering column and a cell: the rows of messages
            first, second = encoders
            for (one, two), each in zip(rows.tails, rows.stamps, strict=True):
                if each != stamp:
                    stamp, end = each, _end_of(each)
                one_stored, two_stored = first(one), second(two)
                wired.append(
                    b"".join((start, int_(len(one_stored)), one_stored, int_(len(two_stored)), two_stored, end))
                )
            return
        for tail, each in zip(rows.tails, rows.stamps, strict=True):
            if each != stamp:
                stamp, end = each, _end_of(each)
            wired.append(start + _wire(encoders, tail, plan) + end)


def _end_of(stamp: tuple[int, int | None]) -> bytes:
    timestamp_us, ttl_s = stamp
    return _TIMESTAMP(8, timestamp_us) if ttl_s is None else _TIMESTAMP_TTL(8, timestamp_us, 4, ttl_s)


def _start_of(plan: Plan, values: int) -> bytes:
    return _PREPARED + _SHORT(len(plan.query_id)) + plan.query_id + _SHORT(values)


def _wire(encoders: Sequence[Callable[[Any], bytes]], values: Sequence[Value], plan: Plan) -> bytes:
    try:
        return b"".join(
            [
                _NULL if value is None else _INT(len(stored := encode(value))) + stored
                for encode, value in zip(encoders, values, strict=True)
            ]
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise ShapeBroken("A value does not fit its column", table=plan.table, cause=error) from None


def batch(wiring: Wiring, level: int, *, logged: bool = False, serial: int | None = None) -> Request:
    """A batch for the driver, routed by its first statement."""
    if wiring.first is None:
        raise ShapeBroken("An empty batch")
    kind = BatchType.LOGGED if logged else BatchType.UNLOGGED
    statement = BatchStatement(kind, consistency_level=level, serial_consistency_level=serial)
    statement._statements_and_parameters = wiring.wired
    plan, encoded = wiring.first
    first = _Bound(plan.prepared)
    first.values = encoded
    statement.keyspace = first.keyspace
    statement.routing_key = first.routing_key
    return Request(statement, sum(map(len, wiring.wired)))

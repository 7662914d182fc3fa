"""Shapes and tables to CQL text. Pure: it knows no driver and no server, and the same shape gives the same text.

The order of the markers is part of the contract; the code that binds values follows it:

- an INSERT: its values, then the attempt (if it leaves one), then timestamp, then time to live;
- an UPDATE: timestamp, time to live, the set columns, the attempt, then key and conditions as the shape lists them;
- a DELETE: timestamp, then the key and the slice; a SELECT: key, slice, limit; a scan: from token, to token.

Names are written without quotes unless CQL reserves them, so that the printed text is readable.
"""

# ruff: noqa: S608 - names come from a Table, which checks them; values are markers
from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.errors import Bug
from headgate.store.model.shapes import DeleteShape, InsertShape, ScanShape, SelectShape, SliceForm, UpdateShape
from headgate.store.model.statements import Insert
from headgate.store.model.table import Column, Keyspace, Table
from headgate.store.model.types import Value

RESERVED = frozenset((
    "add", "allow", "alter", "and", "any", "apply", "asc", "authorize", "batch", "begin", "by", "columnfamily",
    "create", "default", "delete", "desc", "describe", "drop", "entries", "execute", "from", "full", "grant",
    "if", "in", "index", "infinity", "insert", "into", "is", "keyspace", "limit", "materialized", "modify",
    "nan", "norecursive", "not", "null", "of", "on", "or", "order", "primary", "rename", "replace", "revoke",
    "schema", "select", "set", "table", "to", "token", "truncate", "unlogged", "unset", "update", "use",
    "using", "view", "where", "with",
))  # fmt: skip
"""Words that cannot be a name in CQL without quotes."""

TABLE_IDS = uuid.UUID("8e7a3a0e-5b1f-5e0c-9a68-3c1f0d2b7c11")
"""The name space in which the ids of our tables are derived, so that two creators make one table."""


@dataclass(frozen=True)
class Markers:
    """The extra values that a statement binds, besides those of its shape."""

    timestamp: bool = False
    ttl: bool = False
    attempt: bool = False
    partitions: int = 1
    """A read of this many partitions of one column each, in one request."""


def name_cql(name: str) -> str:
    return f'"{name}"' if name in RESERVED else name


def text_cql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def qualified_cql(keyspace: str, table: Table) -> str:
    """A table's full name: nothing depends on the keyspace of a session."""
    return f"{name_cql(keyspace)}.{name_cql(table.name)}"


def insert_cql(keyspace: str, shape: InsertShape, markers: Markers) -> str:
    names = list(shape.names)
    if markers.attempt:
        names.append(_attempt(shape.table))
    values = ", ".join("?" * len(names))
    unless = " IF NOT EXISTS" if shape.conditional else ""
    into = f"INSERT INTO {qualified_cql(keyspace, shape.table)} ({_names(names)})"
    return f"{into} VALUES ({values}){unless}{_using(markers)}"


def insert_text(keyspace: str, statement: Insert) -> tuple[str, tuple[Value, ...]]:
    """A plain INSERT for a caller that sends it itself: CQL with %s in place of values, and the values."""
    text = insert_cql(keyspace, statement.shape, Markers(timestamp=True, ttl=statement.ttl_s is not None))
    values = (*statement.values, statement.timestamp_us)
    return text.replace("?", "%s"), values if statement.ttl_s is None else (*values, statement.ttl_s)


def update_cql(keyspace: str, shape: UpdateShape, markers: Markers) -> str:
    to = [*shape.to, *([_attempt(shape.table)] if markers.attempt else [])]
    settings = ", ".join(f"{name_cql(name)} = ?" for name in to)
    conditions = " AND ".join(f"{name_cql(name)} {operator.value} ?" for name, operator in shape.conditions)
    return (
        f"UPDATE {qualified_cql(keyspace, shape.table)}{_using(markers)} SET {settings}"
        f" WHERE {_where(shape.key)}" + (f" IF {conditions}" if conditions else "")
    )


def delete_cql(keyspace: str, shape: DeleteShape, markers: Markers) -> str:
    where = _where(shape.key, shape.within)
    return f"DELETE FROM {qualified_cql(keyspace, shape.table)}{_using(markers)} WHERE {where}"


def select_cql(keyspace: str, shape: SelectShape, partitions: int = 1) -> str:
    """SELECT of one partition, or of a slice of it; or of several whole partitions, of one column each."""
    wanted = [*map(name_cql, shape.columns), *(f"writetime({name_cql(name)})" for name in shape.write_times_of)]
    text = f"SELECT {', '.join(wanted)} FROM {qualified_cql(keyspace, shape.table)}"
    if partitions > 1:
        return f"{text} WHERE {_names(shape.key)} IN ({', '.join('?' * partitions)})"
    text += f" WHERE {_where(shape.key, shape.within)}"
    if shape.backwards:
        text += f" ORDER BY {_order(shape.table, backwards=True)}"
    return text + (" LIMIT ?" if shape.limited else "")


def scan_cql(keyspace: str, shape: ScanShape) -> str:
    """SELECT of keys between two tokens: above the first, up to the second."""
    token = f"token({_names(shape.table.partition_names)})"
    distinct = "DISTINCT " if set(shape.columns) == set(shape.table.partition_names) else ""
    return (
        f"SELECT {distinct}{_names(shape.columns)} FROM {qualified_cql(keyspace, shape.table)}"
        f" WHERE {token} > ? AND {token} <= ?"
    )


def table_id(keyspace: str, table: str) -> uuid.UUID:
    """The id of a table: the same for every process that creates it, so that racing creators create one."""
    return uuid.uuid5(TABLE_IDS, f"{keyspace}.{table}")


def create_table_cql(keyspace: str, table: Table) -> str:
    """CREATE TABLE IF NOT EXISTS, with its id, its purpose and every option that matters to correctness."""
    columns = [f"    {_column(column)}," for column in table.by_name.values()]
    options = " AND".join(f"\n    {name} = {value}" for name, value in table_options(table).items())
    order = f"CLUSTERING ORDER BY ({_order(table)}) AND " if table.descending else ""
    partition = f"({_names(table.partition_names)})"
    key = ", ".join([partition, *map(name_cql, table.clustering_names)])
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified_cql(keyspace, table)} (\n"
        + "\n".join(columns)
        + f"\n    PRIMARY KEY ({key})\n) WITH {order}ID = {table_id(keyspace, table.name)} AND"
        + options
    )


def drop_table_cql(keyspace: str, name: str) -> str:
    return f"DROP TABLE IF EXISTS {name_cql(keyspace)}.{name_cql(name)}"


def table_options(table: Table) -> dict[str, str]:
    """The options of a table by name, as CQL literals, in the order in which they are written."""
    return {
        "comment": text_cql(table.purpose),
        "gc_grace_seconds": str(table.gc_grace_s),
        "default_time_to_live": str(table.default_ttl_s),
        "compaction": _map_cql(table.compaction),
        "compression": _map_cql(table.compression),
    }


def alter_table_cql(keyspace: str, table: Table, names: Iterable[str]) -> str:
    options = table_options(table)
    return f"ALTER TABLE {qualified_cql(keyspace, table)} WITH " + " AND ".join(
        f"{name} = {options[name]}" for name in names
    )


def add_column_cql(keyspace: str, table: Table, name: str) -> str:
    """ALTER TABLE that adds one column; the second one does nothing."""
    return f"ALTER TABLE {qualified_cql(keyspace, table)} ADD IF NOT EXISTS {_column(table.by_name[name])}"


def create_keyspace_cql(keyspace: Keyspace) -> str:
    replication = _map_cql((("class", "NetworkTopologyStrategy"), *keyspace.replication))
    return f"CREATE KEYSPACE IF NOT EXISTS {name_cql(keyspace.name)} WITH replication = {replication}"


def _attempt(table: Table) -> str:
    if table.attempt is None:
        raise Bug("The table has no column for an attempt", table=table.name)
    return table.attempt


def _column(column: Column) -> str:
    return f"{name_cql(column.name)} {column.type.cql}{' STATIC' if column.static else ''}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(name_cql, names))


def _where(key: tuple[str, ...], within: SliceForm | None = None) -> str:
    terms = [f"{name_cql(name)} = ?" for name in key]
    if within is not None:
        terms += [f"{name_cql(name)} = ?" for name in within.equal]
        ends = ((">", within.lower), ("<", within.upper))
        terms += [
            f"{name_cql(within.column)} {sign}{'=' if inclusive else ''} ?"
            for sign, inclusive in ends
            if inclusive is not None
        ]
    return " AND ".join(terms)


def _order(table: Table, *, backwards: bool = False) -> str:
    """The clustering order, or that of a read from its end: each column the other way round."""
    ways = {name: "ASC" if (name in table.descending) == backwards else "DESC" for name in table.clustering_names}
    return ", ".join(f"{name_cql(name)} {way}" for name, way in ways.items())


def _using(markers: Markers) -> str:
    parts = [text for wanted, text in ((markers.timestamp, "TIMESTAMP ?"), (markers.ttl, "TTL ?")) if wanted]
    return f" USING {' AND '.join(parts)}" if parts else ""


def _map_cql(pairs: Iterable[tuple[str, object]]) -> str:
    return "{" + ", ".join(f"{text_cql(str(key))}: {text_cql(str(value))}" for key, value in pairs) + "}"

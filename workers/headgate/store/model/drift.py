"""The differences between an existing table and its declaration, and the permitted repairs.

Pure: the existing state is passed in. It only ever adds: a missing column is added, a wrong option is set; nothing is
dropped, renamed or retyped. Other differences are reported, for a person to decide. An undeclared column is not
drift: a newer release, or its owner, added it.

gc_grace is raised where it is below ours. It is lowered where ours is the least, 24 hours (rule R4): a table in which
nothing is deleted would keep expired rows for longer, and replay batches after the last check of repair. Elsewhere
more than ours is a deliberate choice that harms nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import UUID

from headgate.store.model.cql import add_column_cql, alter_table_cql
from headgate.store.model.table import GC_GRACE_S_MIN, Table


class Kind(Enum):
    """The kind of a column in a table; the values are Cassandra's words."""

    PARTITION = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


@dataclass(frozen=True)
class ActualColumn:
    name: str
    cql_type: str
    kind: Kind
    position: int = -1
    """Within its part of the key; the server reports -1 for all others."""
    descending: bool = False

    def __str__(self) -> str:
        order = " descending" if self.descending else ""
        return f"{self.cql_type} {self.kind.value}{order}{f' {self.position}' if self.position >= 0 else ''}"


@dataclass(frozen=True)
class ActualTable:
    name: str
    id: UUID
    columns: tuple[ActualColumn, ...]
    gc_grace_s: int
    default_ttl_s: int = 0
    comment: str = ""
    compaction: Mapping[str, str] = field(default_factory=dict)
    compression: Mapping[str, str] = field(default_factory=dict)


class DriftStatus(Enum):
    MENDABLE = "repairable"
    FIXED = "repaired"
    BY_HAND = "needs manual repair"


@dataclass(frozen=True)
class Drift:
    table: str
    what: str
    wanted: str
    actual: str
    standing: DriftStatus
    cql: str | None = None
    """The repair."""

    def fixed(self) -> Drift:
        return replace(self, standing=DriftStatus.FIXED)

    def __str__(self) -> str:
        return f"{self.table}: {self.what} is {self.actual}, should be {self.wanted} ({self.standing.value})"


def columns_of(table: Table) -> dict[str, ActualColumn]:
    """The columns of a declared table, as the server would describe them."""
    places = {name: (Kind.PARTITION, place) for place, name in enumerate(table.partition_names)}
    places |= {name: (Kind.CLUSTERING, place) for place, name in enumerate(table.clustering_names)}
    columns = {}
    for name, column in table.by_name.items():
        kind, position = places.get(name, (Kind.STATIC if column.static else Kind.REGULAR, -1))
        columns[name] = ActualColumn(name, column.type.cql, kind, position, name in table.descending)
    return columns


def compare(keyspace: str, wanted: Table, actual: ActualTable) -> tuple[Drift, ...]:
    """Every difference, columns first."""
    return (*_columns(keyspace, wanted, actual), *_options(keyspace, wanted, actual))


def missing(table: Table) -> Drift:
    """A table that existed once. Its name is never used again: writes to the old one could still land."""
    return Drift(table.name, "the table", "there", "dropped", DriftStatus.BY_HAND)


def _columns(keyspace: str, wanted: Table, actual: ActualTable) -> Iterator[Drift]:
    there = {column.name: column for column in actual.columns}
    for name, column in columns_of(wanted).items():
        if name not in there:
            in_key = column.kind in (Kind.PARTITION, Kind.CLUSTERING)
            cql = None if in_key else add_column_cql(keyspace, wanted, name)
            yield _drift(wanted, f"column {name}", str(column), "missing", cql)
        elif there[name] != column:
            yield _drift(wanted, f"column {name}", str(column), str(there[name]), None)
    for column in actual.columns:
        if column.kind in (Kind.PARTITION, Kind.CLUSTERING) and column.name not in wanted.by_name:
            yield _drift(wanted, f"column {column.name}", "not in the key", str(column), None)


def _options(keyspace: str, wanted: Table, actual: ActualTable) -> Iterator[Drift]:
    is_exact = wanted.gc_grace_s == GC_GRACE_S_MIN
    gc_grace_s = actual.gc_grace_s if is_exact else min(actual.gc_grace_s, wanted.gc_grace_s)
    compaction, compression = dict(wanted.compaction), dict(wanted.compression)
    options: tuple[tuple[str, object, object], ...] = (
        ("gc_grace_seconds", wanted.gc_grace_s, gc_grace_s),
        ("default_time_to_live", wanted.default_ttl_s, actual.default_ttl_s),
        ("comment", repr(wanted.purpose), repr(actual.comment)),
        ("compaction", _plain(compaction, compaction), _plain(actual.compaction, compaction)),
        ("compression", _plain(compression, compression), _plain(actual.compression, compression)),
    )
    for option, should, is_ in options:
        if should != is_:
            yield _drift(wanted, option, str(should), str(is_), alter_table_cql(keyspace, wanted, [option]))


def _plain(options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Class names come back with their package."""
    texts = {name: str(options.get(name, "")) for name in names}
    return {name: text.rpartition(".")[2] if name == "class" else text for name, text in texts.items()}


def _drift(table: Table, what: str, wanted: str, actual: str, cql: str | None) -> Drift:
    return Drift(table.name, what, wanted, actual, DriftStatus.MENDABLE if cql else DriftStatus.BY_HAND, cql)


def unmended(drifts: Iterable[Drift]) -> tuple[Drift, ...]:
    """Those that still exist."""
    return tuple(drift for drift in drifts if drift.standing is not DriftStatus.FIXED)

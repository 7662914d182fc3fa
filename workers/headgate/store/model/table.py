"""Tables as values: creation, checks, simulation and writes use these and nothing else.

Rule R3 starts with this module: each column is written plainly or by LWT, never both, and so are the rows themselves
(the marker that an INSERT leaves). A table with LWT columns names the column where each LWT writes the uuid of its
attempt. Rule R4: no table has a gc_grace below 24 hours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from headgate.errors import Bug
from headgate.store.model.consistency import SerialLevel
from headgate.store.model.types import Type

DAY_S = 24 * 3600
GC_GRACE_S_MIN = DAY_S
CASSANDRA_4_LAST_EXPIRY_S = 2**31 - 2
"""The last second that a cell can expire at while the server's storage_compatibility_mode is CASSANDRA_4: in 2038."""
LAST_EXPIRY_S = 2**32 - 2
"""And after that mode: in 2106."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


class WrittenBy(Enum):
    """The writers of a cell: statements with their own timestamp, or lightweight transactions."""

    PLAIN = "plain"
    LWT = "lwt"


@dataclass(frozen=True)
class Column:
    """One column. Key columns are neither plain nor LWT: the row is (`Table.rows`)."""

    name: str
    type: Type
    written: WrittenBy = WrittenBy.PLAIN
    static: bool = False


class TableBroken(Bug):
    """A table is declared in a way that breaks a rule of the design."""


@dataclass(frozen=True)
class Table:
    """One table: its key, its columns, and the options that matter to correctness."""

    name: str
    purpose: str
    partition: tuple[Column, ...]
    clustering: tuple[Column, ...] = ()
    columns: tuple[Column, ...] = ()
    descending: frozenset[str] = frozenset()
    rows: WrittenBy = WrittenBy.PLAIN
    attempt: str | None = None
    serial: SerialLevel = SerialLevel.LOCAL_SERIAL
    gc_grace_s: int = 10 * DAY_S
    default_ttl_s: int = 0
    compaction: tuple[tuple[str, str], ...] = (("class", "UnifiedCompactionStrategy"),)
    compression: tuple[tuple[str, str], ...] = (("class", "LZ4Compressor"),)

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise TableBroken(problem, table=self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """Every column, key columns first, in the order in which they are declared."""
        return {column.name: column for column in (*self.partition, *self.clustering, *self.columns)}

    @cached_property
    def partition_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.partition)

    @cached_property
    def clustering_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.clustering)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return self.partition_names + self.clustering_names

    @cached_property
    def static_names(self) -> frozenset[str]:
        """The columns that a partition has once."""
        return frozenset(column.name for column in self.columns if column.static)

    @cached_property
    def has_lwt(self) -> bool:
        """Whether anything in it is written by LWT, so that a plain delete could miss it."""
        return self.rows is WrittenBy.LWT or any(column.written is WrittenBy.LWT for column in self.columns)

    def named(self, name: str) -> Table:
        """The same table under another name: dedicated tables differ from the shared ones in nothing else."""
        return Table(**{**{key: getattr(self, key) for key in self.__dataclass_fields__}, "name": name})

    def _problems(self) -> list[str]:
        names = [column.name for column in (*self.partition, *self.clustering, *self.columns)]
        checks = [
            (not self.partition, "a table needs a partition key"),
            (len(set(names)) < len(names), "two columns have the same name"),
            (not all(_NAME.fullmatch(name) for name in [self.name, *names]), "a name must be lower case letters"),
            (any(column.static for column in (*self.partition, *self.clustering)), "a key column cannot be static"),
            (bool(self.static_names) and not self.clustering, "a static column needs a clustering key"),
            (not self.descending <= set(self.clustering_names), "only a clustering column can be descending"),
            (self.gc_grace_s < GC_GRACE_S_MIN, "gc_grace is below 24 hours (rule R4)"),
            (self.has_lwt and not self._attempt_is_sound(), "LWTs need a uuid column for their attempt (rule R3)"),
            (not self.has_lwt and self.attempt is not None, "an attempt column in a table that no LWT writes"),
        ]
        return [problem for broken, problem in checks if broken]

    def _attempt_is_sound(self) -> bool:
        column = next((column for column in self.columns if column.name == self.attempt), None)
        return column is not None and column.type is Type.UUID and column.written is WrittenBy.LWT


@dataclass(frozen=True)
class Keyspace:
    """Where tables live: replication by data centre, never altered once it exists."""

    name: str
    replication: tuple[tuple[str, int], ...] = field(default=())

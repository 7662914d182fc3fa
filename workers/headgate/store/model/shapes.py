"""The shape of a statement: everything about it but its values, checked against the rules once and then kept.

A shape knows the table, the columns in the order of their values, and nothing of CQL or of the driver. The functions
at the end are cached: a hot loop that builds the same kind of statement finds its shape again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import ClassVar

from headgate.errors import Bug
from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Value

SHAPES_MAX = 4096


class ShapeBroken(Bug):
    """A kind of statement that breaks a rule of the design."""


class ComparisonOperator(Enum):
    IS = "="
    IS_NOT = "!="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


@dataclass(frozen=True)
class SliceForm:
    """A slice without its values; a bound is None (open), False (exclusive) or True (inclusive)."""

    equal: tuple[str, ...]
    column: str
    lower: bool | None
    upper: bool | None

    @property
    def names(self) -> tuple[str, ...]:
        ends = sum(bound is not None for bound in (self.lower, self.upper))
        return (*self.equal, *([self.column] * ends))


@dataclass(frozen=True, eq=False)
class StatementShape:
    """The common part of all shapes. Two shapes are the same when they are the same object: they are created once."""

    table: Table

    @property
    def value_names(self) -> tuple[str, ...]:
        """The name of the column of each value, in order."""
        return ()

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        return tuple(self.table.by_name[name] for name in self.value_names)

    @cached_property
    def _key_places(self) -> frozenset[int]:
        keys = set(self.table.key_names)
        return frozenset(place for place, name in enumerate(self.value_names) if name in keys)

    @cached_property
    def _partition_places(self) -> tuple[int, ...]:
        return tuple(self.value_names.index(name) for name in self.table.partition_names)

    def partition_of(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(values[place] for place in self._partition_places)

    @cached_property
    def _attempt_places(self) -> tuple[int, ...]:
        table = self.table
        names = table.partition_names if table.attempt in table.static_names else table.key_names
        return tuple(self.value_names.index(name) for name in names)

    def attempt_row_of(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The key of the row (of the partition, where the column is static) that holds an LWT's attempt."""
        return tuple(values[place] for place in self._attempt_places)

    @cached_property
    def exact_types(self) -> tuple[type, ...]:
        """The types of its values, where none is null and none is of a subclass."""
        return tuple(column.type.python for column in self.value_columns)

    def check_values(self, values: tuple[Value, ...]) -> None:
        """Reject a value that the column cannot hold: the server would, later and less clearly."""
        if tuple(map(type, values)) != self.exact_types:
            self._check_each(values)

    def _check_each(self, values: tuple[Value, ...]) -> None:
        for place, (column, value) in enumerate(zip(self.value_columns, values, strict=True)):
            if value is None:
                if place in self._key_places:
                    raise ShapeBroken("A key column cannot be null", table=self.table.name, column=column.name)
            elif not column.type.accepts(value):
                raise ShapeBroken(
                    "A value of the wrong type",
                    table=self.table.name,
                    column=column.name,
                    wants=column.type.cql,
                    got=type(value).__name__,
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table.name}: {', '.join(self.value_names)})"


@dataclass(frozen=True, eq=False, repr=False)
class InsertShape(StatementShape):
    names: tuple[str, ...] = ()
    conditional: bool = False
    conditions: ClassVar[tuple[tuple[str, ComparisonOperator], ...]] = ()

    @property
    def value_names(self) -> tuple[str, ...]:
        return self.names

    @cached_property
    def to(self) -> tuple[str, ...]:
        """The columns that are not of the key."""
        return tuple(name for name in self.names if name not in self.table.key_names)


@dataclass(frozen=True, eq=False, repr=False)
class UpdateShape(StatementShape):
    """Cells to be set, the key, then the conditions."""

    to: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    lwt: bool = False
    conditions: tuple[tuple[str, ComparisonOperator], ...] = ()

    @property
    def conditional(self) -> bool:
        """Whether it decides by itself; an LWT update without conditions rides in a batch."""
        return bool(self.conditions)

    @property
    def value_names(self) -> tuple[str, ...]:
        return (*self.to, *self.key, *(column for column, _ in self.conditions))


@dataclass(frozen=True, eq=False, repr=False)
class DeleteShape(StatementShape):
    key: tuple[str, ...] = ()
    within: SliceForm | None = None

    @property
    def value_names(self) -> tuple[str, ...]:
        return (*self.key, *(self.within.names if self.within else ()))


@dataclass(frozen=True, eq=False, repr=False)
class SelectShape(DeleteShape):
    """Columns of a partition, or of a slice of it; its values are those of a delete of the same rows."""

    columns: tuple[str, ...] = ()
    backwards: bool = False
    limited: bool = False
    write_times_of: tuple[str, ...] = ()

    @cached_property
    def is_of_plain_partitions(self) -> bool:
        """Whether it reads a whole partition that one column distinguishes from the others, in its own order."""
        is_cut = self.within is not None or self.limited or self.backwards
        return self.key == self.table.partition_names and len(self.key) == 1 and not is_cut

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        """The fields of a row of the answer: the columns, then write times as `<column>_written_us`."""
        return (*self.columns, *(f"{name}_written_us" for name in self.write_times_of))


@dataclass(frozen=True, eq=False, repr=False)
class ScanShape(StatementShape):
    """Key columns (and nothing else) of all partitions."""

    columns: tuple[str, ...] = ()


def _require(holds: bool, problem: str, table: Table, *, column: str = "", columns: Iterable[str] = ()) -> None:
    if not holds:
        named = ", ".join([column] if column else columns)
        raise ShapeBroken(problem, table=table.name, columns=named or "-")


def _require_known(table: Table, names: Iterable[str]) -> None:
    for name in names:
        _require(name in table.by_name, "No such column", table, column=name)


def _require_written(table: Table, names: Iterable[str], by: WrittenBy) -> None:
    for name in names:
        _require(
            table.by_name[name].written is by,
            f"a column written by {'a plain write' if by is WrittenBy.LWT else 'LWT'} alone (rule R3)",
            table,
            column=name,
        )


def _require_attempt(table: Table, named: Iterable[str], lwt: bool) -> None:
    """An LWT of static columns alone has no row; it can leave its attempt only in a static column."""
    if lwt and table.attempt not in table.static_names:
        _require(set(table.key_names) <= set(named), "An LWT of static columns needs a static attempt column", table)


@lru_cache(SHAPES_MAX)
def insert_shape(table: Table, names: tuple[str, ...], lwt: bool) -> InsertShape:
    """Checked: the whole key, and no cell or marker of the other kind."""
    _require_known(table, names)
    key = set(table.key_names)
    only_static = {name for name in names if name not in key} <= table.static_names
    wanted = set(table.partition_names) if only_static and not key <= set(names) else key
    _require(wanted <= set(names), "An insert must name the whole key", table, columns=sorted(wanted - set(names)))
    by = WrittenBy.LWT if lwt else WrittenBy.PLAIN
    _require(
        table.rows is by, f"rows of this table are not written {'by LWT' if lwt else 'plainly'} (rule R3)", table
    )
    _require(table.attempt not in names, "The store writes the attempt column itself", table)
    _require_written(table, [name for name in names if name not in key], by)
    _require_attempt(table, names, lwt)
    return InsertShape(table, names, lwt)


@lru_cache(SHAPES_MAX)
def update_shape(
    table: Table,
    key: tuple[str, ...],
    to: tuple[str, ...],
    lwt: bool | None,
    conditions: tuple[tuple[str, ComparisonOperator], ...],
) -> UpdateShape:
    """Checked: the whole key (of the partition, for static columns), and cells of one kind alone."""
    _require_known(table, (*key, *to, *(column for column, _ in conditions)))
    _require(bool(to), "An update sets no column", table)
    touched = {*to, *(column for column, _ in conditions)}
    of_partition = touched <= table.static_names
    wanted = table.partition_names if of_partition and set(key) == set(table.partition_names) else table.key_names
    _require(set(key) == set(wanted), "An update must name the whole key and nothing else", table, columns=key)
    _require(not set(to) & set(table.key_names), "A key column cannot be set", table)
    _require(table.attempt not in to, "The store writes the attempt column itself", table)
    by = WrittenBy.LWT if lwt else WrittenBy.PLAIN
    _require_written(table, touched, by)
    _require_attempt(table, key, bool(lwt))
    return UpdateShape(table, to, key, bool(lwt), conditions)


@lru_cache(SHAPES_MAX)
def delete_shape(table: Table, key: tuple[str, ...], within: SliceForm | None) -> DeleteShape:
    """Checked: at least the partition, then a whole prefix of the clustering key."""
    _require_known(table, key)
    prefix = table.key_names[: len(key)]
    _require(set(key) == set(prefix), "A delete must name a prefix of the key", table, columns=key)
    _require(len(key) >= len(table.partition), "A delete must name the whole partition key", table, columns=key)
    if within is not None:
        _check_slice(table, key, within)
    return DeleteShape(table, key, within)


@lru_cache(SHAPES_MAX)
def select_shape(
    table: Table,
    key: tuple[str, ...],
    columns: tuple[str, ...],
    within: SliceForm | None,
    backwards: bool,
    limited: bool,
    write_times_of: tuple[str, ...],
) -> SelectShape:
    """Checked: the whole partition key, a prefix of the clustering key, then at most one slice."""
    _require_known(table, (*key, *columns, *write_times_of))
    prefix = table.key_names[: len(key)]
    _require(len(key) >= len(table.partition), "A read must name one partition (rule R8)", table, columns=key)
    _require(set(key) == set(prefix), "A read must name a prefix of the key", table, columns=key)
    _require(not set(write_times_of) & set(table.key_names), "A key column has no write time", table)
    if within is not None:
        _check_slice(table, key, within)
    return SelectShape(table, key, within, columns, backwards, limited, write_times_of)


@lru_cache(SHAPES_MAX)
def scan_shape(table: Table, columns: tuple[str, ...]) -> ScanShape:
    """Checked: key columns alone, since the result of a scan is stale by its next page (rule R8)."""
    _require_known(table, columns)
    for name in columns:
        _require(name in table.key_names, "A scan reads keys and nothing else (rule R8)", table, column=name)
    _require(set(table.partition_names) <= set(columns), "A scan must return the whole partition key", table)
    return ScanShape(table, columns)


def _check_slice(table: Table, key: tuple[str, ...], within: SliceForm) -> None:
    _require_known(table, (*within.equal, within.column))
    rest = table.key_names[len(key) :]
    held = len(within.equal)
    _require(within.equal == rest[:held], "A slice must keep the preceding clustering columns equal", table)
    _require(
        held < len(rest) and within.column == rest[held], "A slice must be over the next clustering column", table
    )
    _require(within.lower is not None or within.upper is not None, "A slice has no bound", table)

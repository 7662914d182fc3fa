"""Reads: the part of a partition that a statement requests, and the rows of its answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headgate.store.memory.keys import order_key, partition_key, token_of
from headgate.store.memory.mutations import span_of
from headgate.store.memory.partition import EVERYTHING, Cut, Image
from headgate.store.memory.rows import Row
from headgate.store.model.rows import rows_of
from headgate.store.model.shapes import ScanShape, SelectShape
from headgate.store.model.statements import Select
from headgate.store.model.table import Table
from headgate.store.model.types import Value


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A read of one partition, as it travels to replicas."""

    table: Table
    values: tuple[Value, ...]
    key: bytes
    token: int
    cut: Cut


def command_of(select: Select, now_s: int) -> StoredCommand:
    shape = select.shape
    table = shape.table
    values = shape.partition_of(select.values)
    key = partition_key(table, values)
    by_name = dict(zip(shape.key, select.values, strict=False))
    prefix = tuple(by_name[name] for name in table.clustering_names if name in by_name)
    points = (order_key(table, prefix),) if prefix and len(prefix) == len(table.clustering) else None
    span = span_of(table, prefix, shape.within, select.values[len(shape.key) :]) if points is None else EVERYTHING
    cut = Cut(span, shape.backwards, select.limit, now_s, points)
    return StoredCommand(table, values, key, token_of(key), cut)


@lru_cache(4096)
def _places(table: Table, names: tuple[str, ...]) -> tuple[tuple[str, str, int], ...]:
    known = {name: ("static" if name in table.static_names else "cell", name, 0) for name in table.by_name}
    known |= {name: ("partition", name, place) for place, name in enumerate(table.partition_names)}
    known |= {name: ("clustering", name, place) for place, name in enumerate(table.clustering_names)}
    return tuple(known[name] for name in names)


def selected_rows(select: Select, command: StoredCommand, image: Image) -> list[Any]:
    shape = select.shape
    live = live_rows(image, command.cut.now_s, command.cut.limit)
    # Of a whole partition, static cells without any row are a row of the answer, its other columns null.
    whole = shape.within is None and len(shape.key) == len(shape.table.partition)
    if not live and whole and has_live_static(image, command.cut.now_s):
        live = [None]
    return rows_of(shape.result_names, [_selected(shape, command, image.static, row) for row in live])


def live_rows(image: Image, now_s: int, limit: int | None) -> list[Row | None]:
    """Rows that a reader of that second sees, up to the limit."""
    live: list[Row | None] = [row for row in image.rows if row.is_live(now_s)]
    return live if limit is None else live[:limit]


def has_live_static(image: Image, now_s: int) -> bool:
    return image.static is not None and image.static.is_live(now_s)


def _selected(shape: SelectShape, command: StoredCommand, static: Row | None, row: Row | None) -> list[Value]:
    now_s = command.cut.now_s
    shown = shown_values(command.table, shape.columns, command.values, static, row, now_s)
    for name in shape.write_times_of:
        source = static if name in command.table.static_names else row
        shown.append(source.written_us(name, now_s) if source is not None else None)
    return shown


def shown_values(
    table: Table, names: tuple[str, ...], partition: Sequence[Value], static: Row | None, row: Row | None, now_s: int
) -> list[Value]:
    """The columns of one row, as a reader of that second sees them."""
    shown: list[Value] = []
    for kind, name, place in _places(table, names):
        if kind == "cell":
            shown.append(row.value(name, now_s) if row is not None else None)
        elif kind == "clustering":
            shown.append(row.clustering[place] if row is not None else None)
        elif kind == "partition":
            shown.append(partition[place])
        else:
            shown.append(static.value(name, now_s) if static is not None else None)
    return shown


def scanned_rows(shape: ScanShape, values: tuple[Value, ...], image: Image, now_s: int) -> list[Any]:
    table = shape.table
    live = live_rows(image, now_s, None)
    if not live and has_live_static(image, now_s):
        live = [None]
    if set(shape.columns) == set(table.partition_names):
        live = live[:1]
    return rows_of(
        shape.columns, [shown_values(table, shape.columns, values, image.static, row, now_s) for row in live]
    )

"""Conditions of an LWT: the read that they need, whether they hold, and the result of a rejection. Pure.

The rules are those of Cassandra's CQL3CasRequest. One surprise of theirs is kept: a row exists only by the columns
that are read, and where only static cells are written, no other columns are read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.store.memory.keys import order_key, partition_key, token_of
from headgate.store.memory.mutations import has_row, row_key
from headgate.store.memory.partition import EVERYTHING, Cut, Image
from headgate.store.memory.rows import OrderKey, Row
from headgate.store.memory.selections import StoredCommand, has_live_static, shown_values
from headgate.store.model.rows import rows_of
from headgate.store.model.shapes import ComparisonOperator
from headgate.store.model.statements import BatchIf, Conditional, Decision, InsertIfAbsent, partition_of
from headgate.store.model.table import Table
from headgate.store.model.types import Value

_COMPARE: dict[ComparisonOperator, Callable[[Any, Any], bool]] = {
    ComparisonOperator.IS: operator.eq,
    ComparisonOperator.IS_NOT: operator.ne,
    ComparisonOperator.BELOW: operator.lt,
    ComparisonOperator.AT_MOST: operator.le,
    ComparisonOperator.ABOVE: operator.gt,
    ComparisonOperator.AT_LEAST: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Question:
    """An LWT, split up: the read it needs, and the columns by which rows count as existing."""

    command: StoredCommand
    parts: tuple[Conditional, ...]
    regulars: frozenset[str]
    statics: frozenset[str]
    result_names: tuple[str, ...]


def question_of(statement: Decision, now_s: int) -> Question:
    parts = statement.statements if isinstance(statement, BatchIf) else (statement,)
    table = parts[0].shape.table
    values = partition_of(parts[0])
    key = partition_key(table, values)
    points = _rows_asked_about(table, parts)
    cut = Cut(EVERYTHING, False, None if points else 1, now_s, points or None)
    command = StoredCommand(table, values, key, token_of(key), cut)
    regulars, statics = _columns_read(table, parts)
    return Question(command, parts, regulars, statics, _result_names(statement, table, parts))


def _rows_asked_about(table: Table, parts: tuple[Conditional, ...]) -> tuple[OrderKey, ...]:
    of_rows = (part for part in parts if _reads_row(table, part))
    return tuple(sorted({order_key(table, row_key(part)) for part in of_rows}))


def _reads_row(table: Table, part: Conditional) -> bool:
    if isinstance(part, InsertIfAbsent):
        return has_row(part.shape)
    return any(name not in table.static_names for name, _ in part.shape.conditions)


def _columns_read(table: Table, parts: tuple[Conditional, ...]) -> tuple[frozenset[str], frozenset[str]]:
    conditioned = {name for part in parts for name, _ in part.shape.conditions}
    regular_names = {column.name for column in table.columns if not column.static}
    written = [(part, {*part.shape.to, table.attempt}) for part in parts]
    writes_rows = any(
        has_row(part.shape) and (isinstance(part, InsertIfAbsent) or not names <= table.static_names)
        for part, names in written
    )
    writes_static = any(names & table.static_names for _, names in written)
    regulars = regular_names if writes_rows else conditioned & regular_names
    statics = table.static_names if writes_static else conditioned & table.static_names
    return frozenset(regulars), frozenset(statics)


def _result_names(statement: Decision, table: Table, parts: tuple[Conditional, ...]) -> tuple[str, ...]:
    if any(isinstance(part, InsertIfAbsent) for part in parts):
        regular = {column.name for column in table.columns} - table.static_names
        return (*table.key_names, *sorted(table.static_names), *sorted(regular))
    named = dict.fromkeys(name for part in parts for name, _ in part.shape.conditions)
    return (*table.key_names, *named) if isinstance(statement, BatchIf) else tuple(named)


def holds(question: Question, image: Image) -> bool:
    """Whether all conditions hold for the rows that were read."""
    now_s = question.command.cut.now_s
    static = _read(image.static, question.statics)
    rows = {key: _read(row, question.regulars) for key, row in zip(image.keys, image.rows, strict=True)}
    return all(_part_holds(question.command.table, part, rows, static, now_s) for part in question.parts)


def _part_holds(
    table: Table, part: Conditional, rows: dict[OrderKey, Row | None], static: Row | None, now_s: int
) -> bool:
    row = rows.get(order_key(table, row_key(part))) if has_row(part.shape) else None
    if isinstance(part, InsertIfAbsent):
        row_read = row if has_row(part.shape) else static
        return row_read is None or not row_read.is_live(now_s)
    wanted = part.values[len(part.shape.to) + len(part.shape.key) :]
    for (name, compared), value in zip(part.shape.conditions, wanted, strict=True):
        source = static if name in table.static_names else row
        held = source.value(name, now_s) if source is not None and source.is_live(now_s) else None
        if not _compare(table, name, compared, held, value):
            return False
    return True


def _compare(table: Table, name: str, compared: ComparisonOperator, held: Value, value: Value) -> bool:
    """Null equals null, differs from all else, and is neither above nor below anything."""
    if held is None or value is None:
        if compared is ComparisonOperator.IS:
            return held is None and value is None
        return compared is ComparisonOperator.IS_NOT and (held is not None or value is not None)
    order = table.by_name[name].type.order
    return _COMPARE[compared](order(held), order(value))


def refusal_rows(question: Question, image: Image) -> list[Any]:
    """The rows that a refused LWT returns: those that were read, or the static cells alone if there are none."""
    command = question.command
    now_s = command.cut.now_s
    static = _read(image.static, question.statics)
    read = [_read(row, question.regulars) for row in image.rows]
    rows: list[Row | None] = [row for row in read if row is not None and row.is_live(now_s)]
    if command.cut.limit is not None:
        rows = rows[: command.cut.limit]
    if not rows and static is not None and has_live_static(image, now_s) and static.is_live(now_s):
        rows = [None]
    names = question.result_names
    return rows_of(names, [shown_values(command.table, names, command.values, static, row, now_s) for row in rows])


def _read(row: Row | None, names: frozenset[str]) -> Row | None:
    if row is None:
        return None
    return row._replace(cells={name: cell for name, cell in row.cells.items() if name in names})

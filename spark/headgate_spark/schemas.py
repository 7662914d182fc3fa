"""The columns of queues and counters as DataFrames: docs/spark.md defines each. Pure.

A reader returns the columns of the requested schema: all of them, or those that the user named by `.schema(...)`, in
that order, so that unused columns are not even unpacked.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headgate.errors import InvalidRequest
from headgate_spark.engines.packed_columns import TYPES

QUEUE: Mapping[str, DataType] = {name: from_arrow_type(kind) for name, kind in TYPES.items()}
"""Of a message."""
OF_JOBS = ("id", "payload", "attributes", "binary_attributes", "group", "attempt", "due", "put")
"""The columns of a message for handlers and sinks of bulk jobs, in this order."""
MESSAGES = pa.schema([(name, TYPES[name]) for name in OF_JOBS])

COUNTER_TYPES: Mapping[str, pa.DataType] = {"key": pa.string(), "value": pa.string(), "state": pa.binary()}
COUNTER: Mapping[str, DataType] = {name: from_arrow_type(kind) for name, kind in COUNTER_TYPES.items()}
"""Of a key of a counter."""

PUT: Mapping[str, tuple[DataType, ...]] = {
    "payload": (BinaryType(), StringType()),
    "attributes": (MapType(StringType(), StringType()),),
    "binary_attributes": (MapType(StringType(), BinaryType()),),
    "group": (StringType(),),
    "due": (TimestampType(),),
    "delay": (IntegerType(), LongType()),
}
"""The columns of a message to put, with their types; all except `payload` may be missing or null."""

UPDATE: Mapping[str, tuple[DataType, ...]] = {
    "key": (StringType(),),
    "verb": (StringType(),),
    "arguments": (StringType(),),
}
"""The columns of an update of a counter: `arguments` is a list in JSON; `verb` is `add` by default."""


class SchemaUnfit(InvalidRequest):
    """The columns are not those of the source or sink `headgate`."""


def schema_of(columns: Mapping[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def check_read(schema: StructType, columns: Mapping[str, DataType]) -> None:
    """Reject a user's schema with unknown columns, or of another type."""
    for field in schema.fields:
        known = columns.get(field.name)
        if known is None:
            near = difflib.get_close_matches(field.name, list(columns), n=1)
            remedy = f"did you mean {near[0]}?" if near else f"available: {', '.join(columns)}"
            raise SchemaUnfit("Unknown column to read", column=field.name, remedy=remedy)
        if not _is_alike(field.dataType, known):
            raise SchemaUnfit(
                "A column is read with another type than its own",
                column=field.name,
                asked=field.dataType.simpleString(),
                has=known.simpleString(),
            )


def check_write(
    schema: StructType, columns: Mapping[str, tuple[DataType, ...]], *, needed: str, key_column: str | None
) -> None:
    """Reject rows that cannot be put; the column of keys may be any string column that is not one of ours."""
    types = {field.name: field.dataType for field in schema.fields}
    if needed not in types:
        raise SchemaUnfit(f"The rows to write need a column {needed}", columns=", ".join(types))
    if key_column is not None and not isinstance(types.get(key_column), StringType):
        actual = types[key_column].simpleString() if key_column in types else "missing"
        raise SchemaUnfit("The option keyColumn must name a string column", column=key_column, is_=actual)
    for name, kind in types.items():
        allowed = columns.get(name)
        if allowed is None and name != key_column:
            raise SchemaUnfit("Unknown column to write", column=name, remedy=f"select among {', '.join(columns)}")
        if allowed is not None and not any(_is_alike(kind, one) for one in allowed):
            shown = " or ".join(one.simpleString() for one in allowed)
            raise SchemaUnfit(
                "A column to write has another type", column=name, is_=kind.simpleString(), wanted=shown
            )


def _is_alike(one: DataType, other: DataType) -> bool:
    """Except for nullability: a map made of literals has no nulls, and is a map all the same."""
    return one.simpleString() == other.simpleString()

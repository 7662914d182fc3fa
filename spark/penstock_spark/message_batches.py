"""Messages as Arrow batches: one schema for whatever reads messages in bulk (docs/protocols/spark.md, "Columns").

Rows are taken apart by columns; a row that is taken whole costs no loop over its messages.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pyarrow as pa

from penstock_spark.lanes.contract import PickedRow

MOMENT: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
        pa.field("binary_attributes", pa.map_(pa.string(), pa.binary())),
        pa.field("group", pa.string()),
        pa.field("attempt", pa.int32()),
        pa.field("due", MOMENT),
        pa.field("put", MOMENT),
    ]
)
DDL: Final = (
    "id string, payload binary, attributes map<string,string>, binary_attributes map<string,binary>, "
    "`group` string, attempt int, due timestamp, put timestamp"
)
MESSAGES_A_BATCH: Final = 8_192
BYTES_A_BATCH: Final = 8 * 1024 * 1024


class MessageColumns:
    """Collects rows until they make a batch."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._ids: list[str] = []
        self._payloads: list[bytes] = []
        self._attributes: list[bytes | None] = []
        self._groups: list[bytes] = []
        self._attempts: list[int] = []
        self._dues: list[int] = []
        self._puts: list[int] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to take the batch."""
        return len(self._ids) >= MESSAGES_A_BATCH or self._bytes >= BYTES_A_BATCH

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, row: PickedRow) -> None:
        """The messages of a row that its mask names."""
        run, count = row.run, len(row.run)
        columns: list[Any] = [
            row.ids,
            run.payload,
            run.attributes or [b""] * count,
            run.group or [b""] * count,
            run.attempt or [0] * count,
            run.due_us,
            run.put_us,
        ]
        if row.mask != (1 << count) - 1:
            kept = [index for index in range(count) if row.mask >> index & 1]
            columns = [[column[index] for index in kept] for column in columns]
        into = (self._ids, self._payloads, self._attributes, self._groups, self._attempts, self._dues, self._puts)
        for whole, column in zip(into, columns, strict=True):
            whole.extend(column)  # type: ignore[attr-defined]
        self._bytes += sum(map(len, columns[1]))

    def take(self) -> pa.RecordBatch:
        """All that was added since the last one."""
        texts, binaries = _attribute_columns(self._attributes)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self._ids, pa.string()),
                pa.array(self._payloads, pa.binary()),
                texts,
                binaries,
                pa.array([group.decode() if group else None for group in self._groups], pa.string()),
                pa.array(self._attempts, pa.int32()),
                pa.array(self._dues, pa.int64()).cast(MOMENT),
                pa.array(self._puts, pa.int64()).cast(MOMENT),
            ],
            schema=SCHEMA,
        )
        self._clear()
        return batch


def _attribute_columns(stored: list[bytes | None]) -> tuple[pa.Array, pa.Array]:
    """Attributes as docs/formats.md has them: texts, and bytes in an object of their own. Most rows have none."""
    texts: list[list[tuple[str, str]]] = []
    binaries: list[list[tuple[str, bytes]]] = []
    if not any(stored):
        return (
            pa.array([[]] * len(stored), SCHEMA.field("attributes").type),
            pa.array([[]] * len(stored), SCHEMA.field("binary_attributes").type),
        )
    for each in stored:
        told = json.loads(each) if each else {}
        texts.append([(name, value) for name, value in told.items() if isinstance(value, str)])
        binaries.append(
            [(name, base64.b64decode(value["binary"])) for name, value in told.items() if not isinstance(value, str)]
        )
    return (
        pa.array(texts, SCHEMA.field("attributes").type),
        pa.array(binaries, SCHEMA.field("binary_attributes").type),
    )

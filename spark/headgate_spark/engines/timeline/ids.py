"""The ids of timeline's messages, as bulk jobs take them apart: 25 bytes of the row in which a message was first put,
then two of its index there, as base32 in lower case.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from uuid import UUID

from headgate.engines.lanes.lane_name import parse_lane
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace, id_text
from headgate.store.model.positions import time_us_of

LANE_CHARACTERS, ROW_CHARACTERS, INDEX_CHARACTERS = 14, 40, 4
"""An id begins with engine, generation, shard and sub, then comes the row's time, at last the index in the row."""
INDEX_BYTES = 2


class TimelineIds:
    """`MessageIds` for timeline."""

    def split(self, text: str) -> tuple[bytes, int]:
        """Where the index begins a letter, the row, which many messages share, and the index, of which there are
        few, are decoded once."""
        if len(text) % 8 == INDEX_CHARACTERS:
            row, index = _decoded(text[:-INDEX_CHARACTERS]), _decoded(text[-INDEX_CHARACTERS:])
        else:
            stored = _decoded(text)
            row, index = stored[:-INDEX_BYTES], stored[-INDEX_BYTES:]
        return row, int.from_bytes(index, "little")

    def join(self, row: bytes, index: int) -> bytes:
        return row + index.to_bytes(INDEX_BYTES, "little")

    def text_of(self, message_id: bytes) -> str:
        return id_text(message_id)

    def row_of(self, lane: str, key: bytes) -> bytes:
        generation, shard = parse_lane(lane)
        sub, due = int.from_bytes(key[:2], "big"), UUID(bytes=key[2:18])
        return MessagePlace(RowPlace(generation, sub, shard, due), 0).to_bytes()[:-INDEX_BYTES]

    def neighbours_of(self, text: str, interval_us: int) -> str:
        return f"{text[:LANE_CHARACTERS]} {_time_us_of(text[:ROW_CHARACTERS]) // interval_us}"


@lru_cache(16_384)
def _decoded(text: str) -> bytes:
    return base64.b32decode(text.upper() + "=" * (-len(text) % 8))


@lru_cache(4_096)
def _time_us_of(row_text: str) -> int:
    return time_us_of(UUID(bytes=_decoded(row_text)[9:25]))

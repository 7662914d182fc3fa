"""Receipts: each belongs to one delivery, and settles only that delivery.

A receipt names queue, lane, row, index, attempt and epoch, and is keyed (HMAC), so that it cannot be forged or
changed. From the lane, any process finds its owner. All deliveries of a row by one owner at one attempt share the
beginning of their receipts, and one HMAC, which is expanded (SHAKE-256) to a seal of twelve bytes for each message of
the row. So a receipt costs two slices of text, and a process recognizes its own receipts without any computation. The
format: docs/internals/formats.md.

    head (base64 of the fields, the row's key, and fill up to a multiple of three) + index (4 letters) + seal (16)

The cache is bounded and only saves work: other receipts are computed again. Pure.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from headgate.engines.lanes.lane_name import LaneName, decode_lane, encode_lane
from headgate.errors import InvalidRequest

_VERSION = 3
_FIELDS = struct.Struct("<BB")
"""Version, length of the lane; then the lane, `_DELIVERY`, and the row's key."""
_DELIVERY = struct.Struct("<IIB")
"""Epoch, attempt, length of the key."""
_FIELDS_2 = struct.Struct("<BIHIIB")
"""Version 2, which is only read: version, generation, shard, epoch, attempt, length of the key."""
_SEAL_BYTES, _SEAL_CHARACTERS = 12, 16
_INDEX_CHARACTERS = 4
_INDEXES = 65_536
_TAIL = _INDEX_CHARACTERS + _SEAL_CHARACTERS
_URL_CHARACTERS = bytes.maketrans(b"+/", b"-_")
REMEMBERED_MESSAGES = 65_536
"""The seals of at least this many messages, and of up to twice as many, are cached: 16 bytes each."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery of one message."""

    lane: LaneName
    epoch: int
    attempt: int
    index: int
    key: bytes


class RowReceipts:
    """The receipts of a row's messages, delivered by one owner at one attempt."""

    __slots__ = ("_seals", "attempt", "count", "epoch", "head", "key", "lane")

    def __init__(self, lane: LaneName, epoch: int, attempt: int, key: bytes, *, head: str, seals: str) -> None:
        self.lane = lane
        self.epoch = epoch
        self.attempt = attempt
        self.key = key
        self.head = head
        self.count = len(seals) // _SEAL_CHARACTERS
        self._seals = seals

    def text(self, index: int) -> str:
        """The receipt of one message."""
        start = index * _SEAL_CHARACTERS
        return self.head + _index_text(index) + self._seals[start : start + _SEAL_CHARACTERS]

    def seals(self, index: int, seal: str) -> bool:
        """Whether that is the seal of that message."""
        start = index * _SEAL_CHARACTERS
        return hmac.compare_digest(self._seals[start : start + _SEAL_CHARACTERS], seal)


class Receipts:
    """Writes and reads the receipts of one queue, and caches recent ones. Created by `receipts_of`."""

    def __init__(self, queue: UUID, secret: bytes) -> None:
        self._queue = queue.bytes
        self._secret = secret
        self._rows: dict[str, RowReceipts] = {}
        self._rows_before: dict[str, RowReceipts] = {}
        self._messages = 0

    def of_row(self, lane: LaneName, epoch: int, attempt: int, key: bytes, *, count: int) -> RowReceipts:
        """Those of a row of this many messages."""
        body = _body_of(lane, epoch, attempt, key)
        head = _text_of(body)
        known = self._rows.get(head)
        if known is None or known.count < count:
            seals = self._seals_of(body, count)
            known = RowReceipts(lane, epoch, attempt, key, head=head, seals=seals)
            self._remember(known)
        return known

    def read(self, text: str) -> tuple[RowReceipts, int]:
        """The row and the index that a receipt names; refused with one line if it is not one of this queue."""
        index = _index_of(text[-_TAIL:-_SEAL_CHARACTERS])
        head = text[:-_TAIL]
        row = self._rows.get(head) or self._rows_before.get(head)
        if row is None or row.count <= index:
            row = self._row_named_by(text, head, index)
        if not text.isascii() or not row.seals(index, text[-_SEAL_CHARACTERS:]):
            raise _not_a_receipt(text)
        return row, index

    def _row_named_by(self, text: str, head: str, index: int) -> RowReceipts:
        try:
            body = urlsafe_b64decode(head)
            lane, epoch, attempt, key = _fields_of(body)
        except (binascii.Error, ValueError, struct.error):
            raise _not_a_receipt(text) from None
        if _text_of(body) != head:
            raise _not_a_receipt(text)
        return RowReceipts(lane, epoch, attempt, key, head=head, seals=self._seals_of(body, index + 1))

    def _seals_of(self, body: bytes, count: int) -> str:
        row_secret = hmac.digest(self._secret, self._queue + body, "sha256")
        return _text_of(hashlib.shake_256(row_secret).digest(_SEAL_BYTES * count))

    def _remember(self, row: RowReceipts) -> None:
        self._messages += row.count
        if self._messages > REMEMBERED_MESSAGES:
            self._rows_before, self._rows, self._messages = self._rows, {}, row.count
        self._rows[row.head] = row


@lru_cache(1024)
def receipts_of(queue: UUID, secret: bytes) -> Receipts:
    """Those of a queue, shared by all writers and readers in this process."""
    return Receipts(queue, secret)


def read_receipt(text: str, *, queue: UUID, secret: bytes) -> Receipt:
    """The fields of a receipt; rejected with one line if it is not one of this queue."""
    row, index = receipts_of(queue, secret).read(text)
    return Receipt(row.lane, row.epoch, row.attempt, index, row.key)


def _body_of(lane: LaneName, epoch: int, attempt: int, key: bytes) -> bytes:
    encoded = encode_lane(lane)
    return _filled(_FIELDS.pack(_VERSION, len(encoded)) + encoded + _DELIVERY.pack(epoch, attempt, len(key)) + key)


def _fields_of(body: bytes) -> tuple[LaneName, int, int, bytes]:
    """Lane, epoch, attempt and key; ValueError or struct.error where it is no body."""
    version, lane_size = _FIELDS.unpack_from(body)
    if version == _VERSION:
        start = _FIELDS.size + lane_size
        lane = decode_lane(body[_FIELDS.size : start])
        epoch, attempt, key_size = _DELIVERY.unpack_from(body, start)
        start += _DELIVERY.size
    else:
        version, generation, shard, epoch, attempt, key_size = _FIELDS_2.unpack_from(body)
        lane, start = (generation, shard), _FIELDS_2.size
    end = start + key_size
    if version not in (_VERSION, 2) or _filled(body[:end]) != body or len(body) < end:
        raise ValueError("not the body of a receipt")
    return lane, epoch, attempt, body[start:end]


def _filled(fields: bytes) -> bytes:
    return fields + bytes(-len(fields) % 3)


def _text_of(content: bytes) -> str:
    """Base64 whose letters a URL may contain."""
    return binascii.b2a_base64(content, newline=False).translate(_URL_CHARACTERS).decode()


def _texts_of_indexes() -> Iterator[str]:
    for index in range(512):
        yield _text_of(index.to_bytes(3, "big"))


_INDEX_TEXTS = tuple(_texts_of_indexes())
_INDEX_NUMBERS = {text: index for index, text in enumerate(_INDEX_TEXTS)}


def _index_text(index: int) -> str:
    if index < len(_INDEX_TEXTS):
        return _INDEX_TEXTS[index]
    return _text_of(index.to_bytes(3, "big"))


def _index_of(text: str) -> int:
    index = _INDEX_NUMBERS.get(text)
    if index is not None:
        return index
    try:
        index = int.from_bytes(urlsafe_b64decode(text), "big")
    except (binascii.Error, ValueError):
        raise _not_a_receipt(text) from None
    if not 0 <= index < _INDEXES or _index_text(index) != text:
        raise _not_a_receipt(text)
    return index


def _not_a_receipt(text: str) -> InvalidRequest:
    return InvalidRequest(
        "Not a receipt of this queue", remedy="pass the receipt as receive returned it", receipt=text[:20]
    )

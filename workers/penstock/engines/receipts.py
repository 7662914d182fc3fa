"""Receipts: what only one delivery holds, and what settles only that delivery.

A receipt names queue, lane, row, index, attempt and epoch, and is keyed (HMAC), so that nobody can make one up or
change one. Reading it costs no look-up. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from dataclasses import dataclass
from uuid import UUID

from penstock.errors import SpecError

_FIELDS = struct.Struct("<BIHIIHB")
_VERSION = 1
_SEAL_BYTES = 12


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery of one message."""

    generation: int
    shard: int
    epoch: int
    attempt: int
    index: int
    key: bytes


def write_receipt(receipt: Receipt, *, queue: UUID, secret: bytes) -> str:
    """As a consumer holds it."""
    fields = _FIELDS.pack(
        _VERSION,
        receipt.generation,
        receipt.shard,
        receipt.epoch,
        receipt.attempt,
        receipt.index,
        len(receipt.key),
    )
    body = fields + receipt.key
    return base64.urlsafe_b64encode(body + _seal(body, queue, secret)).rstrip(b"=").decode()


def read_receipt(text: str, *, queue: UUID, secret: bytes) -> Receipt:
    """What a receipt names; refused with one line if it is not one of this queue."""
    try:
        stored = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        body, seal = stored[:-_SEAL_BYTES], stored[-_SEAL_BYTES:]
        version, generation, shard, epoch, attempt, index, length = _FIELDS.unpack_from(body)
    except (binascii.Error, ValueError, struct.error):
        raise _not_a_receipt(text) from None
    if version != _VERSION or not hmac.compare_digest(seal, _seal(body, queue, secret)):
        raise _not_a_receipt(text)
    key = body[_FIELDS.size :]
    if len(key) != length:
        raise _not_a_receipt(text)
    return Receipt(generation, shard, epoch, attempt, index, key)


def _seal(body: bytes, queue: UUID, secret: bytes) -> bytes:
    return hmac.digest(secret, queue.bytes + body, "sha256")[:_SEAL_BYTES]


def _not_a_receipt(text: str) -> SpecError:
    return SpecError("not a receipt of this queue", remedy="pass it as receive gave it", receipt=text[:20])

"""The batches of a streaming read: their shares of the lanes, and their offsets as JSON ("Source: a stream" in
docs/internals/protocols/spark.md). Pure.

An offset contains everything needed to read its batch again and to settle it, whatever happened to the reader: the
ranges of lanes that the batch reserved, and its messages in them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headgate.errors import InvalidRequest
from headgate_spark.engines.contract import Pick, RangePlan

VERSION = 1


class OffsetUnreadable(InvalidRequest):
    """The checkpoint's offset is none of this source, or of a later release."""


@dataclass(frozen=True)
class BatchOffset:
    """One batch; two with the same number are the same."""

    number: int
    ranges: tuple[RangePlan, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "number": self.number, "ranges": [_range_document(each) for each in self.ranges]}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> BatchOffset:
        if document.get("version") != VERSION:
            raise OffsetUnreadable(
                version=document.get("version"), remedy="upgrade, or start with another checkpoint"
            )
        return cls(document["number"], tuple(map(_range, document["ranges"])))


def _range_document(one: RangePlan) -> dict[str, Any]:
    rows = "\n".join(f"{pick.where} {pick.key.hex()} {pick.mask:x}" for pick in one.picks)
    return {
        "lane": one.lane,
        "loan": one.reservation.hex(),
        "epoch": one.epoch,
        "deadline": one.deadline_us,
        "rows": base64.b64encode(zlib.compress(rows.encode())).decode(),
    }


def _range(document: dict[str, Any]) -> RangePlan:
    lines = zlib.decompress(base64.b64decode(document["rows"])).decode().splitlines()
    rows = (line.split(" ") for line in lines)
    picks = tuple(Pick(int(where), bytes.fromhex(key), int(mask, 16)) for where, key, mask in rows)
    reservation = bytes.fromhex(document["loan"])
    return RangePlan(document["lane"], reservation, document["epoch"], document["deadline"], picks)


# ---- the messages of a batch


def decide_equal_shares(bound: int, lanes: int) -> list[int]:
    """The number of messages to take of each lane: the same, rounded up."""
    return [-(-bound // lanes)] * lanes if lanes else []


def raised_shares(shares: Sequence[int], available: Sequence[int], bound: int) -> list[int] | None:
    """The amount beyond their share that lanes with a full share are asked for, since others have less; None where
    nothing is left to share, or nobody has more."""
    left = bound - sum(map(min, available, shares))
    whole = sum(map(int.__ge__, available, shares))
    if left <= 0 or not whole:
        return None
    more = -(-left // whole)
    return [share + more if has >= share else share for share, has in zip(shares, available, strict=True)]


def trimmed(plan: RangePlan, messages_max: int) -> RangePlan:
    """The first messages of a range, at most this many: the others stay their owner's."""
    picks: list[Pick] = []
    left = messages_max
    for pick in plan.picks:
        if left <= 0:
            break
        kept = pick if pick.messages <= left else Pick(pick.where, pick.key, _lowest(pick.mask, left))
        picks.append(kept)
        left -= kept.messages
    return replace(plan, picks=tuple(picks))


def _lowest(mask: int, count: int) -> int:
    """This many of its bits, the lowest first: within a group the order is that of the indexes."""
    kept = 0
    for _ in range(count):
        lowest = mask & -mask
        kept |= lowest
        mask ^= lowest
    return kept


def pieces(picks: Sequence[Pick], messages_max: int) -> Iterable[tuple[Pick, ...]]:
    """Rows of one range, for one task each."""
    piece: list[Pick] = []
    messages = 0
    for pick in picks:
        if piece and messages + pick.messages > messages_max:
            yield tuple(piece)
            piece, messages = [], 0
        piece.append(pick)
        messages += pick.messages
    if piece:
        yield tuple(piece)

"""A batch's plan as bytes, for the job's row and for tasks: docs/internals/formats.md, "A batch of a bulk job".

A number of up to 64 bits is written as a varint, a string of bytes behind its length. All of it is compressed: keys
of one lane begin alike. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate_spark.engines.contract import Pick, RangePlan
from headgate_spark.jobs.decide_batch import BatchPlan

VERSION = 1


class PlanBroken(HeadgateError):
    """The plan of a batch cannot be read."""


def encode_plan(plan: BatchPlan) -> bytes:
    into = bytearray()
    _number(into, plan.planned_us)
    _number(into, len(plan.ranges))
    for one in plan.ranges:
        _bytes(into, one.lane.encode())
        _bytes(into, one.reservation)
        _number(into, one.epoch)
        _number(into, one.deadline_us)
        _number(into, one.span_us)
        _number(into, len(one.picks))
        for pick in one.picks:
            _number(into, pick.where)
            _bytes(into, pick.key)
            _bytes(into, pick.mask.to_bytes((pick.mask.bit_length() + 7) // 8, "little"))
        _number(into, len(one.aliases))
        for id_, (p, index) in one.aliases.items():
            _bytes(into, id_)
            _number(into, p)
            _number(into, index)
    return bytes([VERSION]) + zlib.compress(bytes(into), 1)


def decode_plan(stored: bytes) -> BatchPlan:
    if not stored or stored[0] != VERSION:
        raise PlanBroken(remedy="upgrade this process", version=stored[:1].hex())
    try:
        source = _Source(zlib.decompress(stored[1:]))
        planned_us = source.number()
        return BatchPlan(tuple(_range(source) for _ in range(source.number())), planned_us)
    except (zlib.error, IndexError) as error:
        raise PlanBroken(length=len(stored)) from error


@dataclass(frozen=True)
class Committed:
    """A batch that is done for good: the messages left to settle, and the dead letters among them, by id with the
    reason."""

    settled: BatchPlan
    dead: BatchPlan
    reasons: Mapping[bytes, str]
    attempt: str
    """Under which its sink wrote it."""


def encode_committed(committed: Committed) -> bytes:
    into = bytearray()
    _bytes(into, encode_plan(committed.settled))
    _bytes(into, encode_plan(committed.dead))
    _number(into, len(committed.reasons))
    for message_id, reason in committed.reasons.items():
        _bytes(into, message_id)
        _bytes(into, reason.encode())
    _bytes(into, committed.attempt.encode())
    return bytes(into)


def decode_committed(stored: bytes) -> Committed:
    try:
        source = _Source(stored)
        settled, dead = decode_plan(source.bytes_()), decode_plan(source.bytes_())
        reasons = {source.bytes_(): source.bytes_().decode() for _ in range(source.number())}
        return Committed(settled, dead, reasons, source.bytes_().decode())
    except IndexError as error:
        raise PlanBroken(length=len(stored)) from error


def _range(source: _Source) -> RangePlan:
    lane, reservation = source.bytes_().decode(), source.bytes_()
    epoch, deadline_us, span_us = source.number(), source.number(), source.number()
    picks = tuple(
        Pick(source.number(), source.bytes_(), int.from_bytes(source.bytes_(), "little"))
        for _ in range(source.number())
    )
    aliases: Mapping[bytes, tuple[int, int]] = {
        source.bytes_(): (source.number(), source.number()) for _ in range(source.number())
    }
    return RangePlan(lane, reservation, epoch, deadline_us, picks, aliases, span_us)


class _Source:
    """Bytes that are read one after the other."""

    def __init__(self, stored: bytes) -> None:
        self._stored = stored
        self._at = 0

    def number(self) -> int:
        shift = value = 0
        while True:
            byte = self._stored[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes_(self) -> bytes:
        length = self.number()
        start, self._at = self._at, self._at + length
        if self._at > len(self._stored):
            raise IndexError
        return self._stored[start : self._at]


def _number(into: bytearray, value: int) -> None:
    while value >= 0x80:
        into.append(value & 0x7F | 0x80)
        value >>= 7
    into.append(value)


def _bytes(into: bytearray, value: bytes) -> None:
    _number(into, len(value))
    into += value

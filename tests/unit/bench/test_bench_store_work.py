"""The work of bench-store: both contenders do the same, and a store that loses what it acknowledged is found out."""

from __future__ import annotations

import json

import pytest

from bench.store import CASES, PARTS
from bench.store_work import MESSAGE_BYTES, PREPARED_ROWS, RequestKind, StoreContender, message
from headgate.errors import Bug


class InMemory(StoreContender):
    """A store that is a dictionary; it can be made to lose things."""

    def __init__(self, *, loses: bool = False) -> None:
        super().__init__("memory")
        self.parts: dict[int, dict[int, bytes]] = {}
        self.locks: dict[int, bytes] = {}
        self.loses = loses

    def drive(self, in_flight: int) -> None:
        while self.tally.may_begin():
            self.tally.done(0.0, self.request())

    def request(self) -> int:
        match self.kind:
            case RequestKind.INSERT:
                part, seq, payload = self.next_insert()
                self.write_part(part, [(seq, payload)])
                self.acknowledged(part, payload)
                return 1
            case RequestKind.BATCH:
                part, rows = self.next_part(), self.next_batch()
                self.write_part(part, rows)
                self.acknowledged(part, len(rows))
                return len(rows)
            case RequestKind.LWT_DISTINCT | RequestKind.LWT_HOT:
                name = self.next_part() if self.kind is RequestKind.LWT_DISTINCT else 0
                self.locks[name] = b"lost" if self.loses else b"payload"
                self.acknowledged(name, b"payload")
                return 1
            case RequestKind.SLICE:
                part, seq = self.next_slice()
                result = sorted(key for key in self.parts[part] if key >= seq)[: self.rows]
                return self.check_slice(len(result), result[0], seq)
            case RequestKind.PACKED:
                part, payload = self.next_part(), self.next_packed()
                self.write_part(part, [(0, payload)])
                self.acknowledged(part, payload)
                return self.rows

    def write_part(self, part: int, rows: list[tuple[int, bytes]]) -> None:
        self.parts.setdefault(part, {}).update(rows[1:] if self.loses else rows)

    def read_part(self, part: int) -> dict[int, bytes]:
        return self.parts[part]

    def make_lock(self, name: int, payload: bytes) -> None:
        self.locks.setdefault(name, payload)

    def read_lock(self, name: int) -> bytes | None:
        return self.locks.get(name)

    def close(self) -> None:
        self.parts.clear()


def job(kind: RequestKind, rows: int = 10, requests: int = 50) -> dict[str, object]:
    return {"kind": kind.value, "rows": rows, "in_flight": 1, "seconds": 60.0, "requests_max": requests}


@pytest.mark.parametrize("kind", RequestKind)
def test_receipts_of_every_kind_are_checked(kind: RequestKind) -> None:
    contender = InMemory()
    contender.prepare({"parts": 20})
    ran = contender.run(job(kind))
    assert (ran.requests, ran.failed) == (50, 0)
    assert (contender.report().receipts_checked > 0) is (kind is not RequestKind.SLICE)


@pytest.mark.parametrize("kind", [kind for kind in RequestKind if kind is not RequestKind.SLICE])
def test_a_store_that_loses_what_it_acknowledged_is_found_out(kind: RequestKind) -> None:
    contender = InMemory(loses=True)
    contender.run(job(kind))
    with pytest.raises(Bug, match="missing"):
        contender.report()


def test_a_slice_that_is_not_the_one_asked_for_is_found_out() -> None:
    contender = InMemory()
    contender.prepare({"parts": 20})
    for rows in contender.parts.values():
        del rows[PREPARED_ROWS // 2], rows[0]
    with pytest.raises(Bug, match="slice"):
        contender.run(job(RequestKind.SLICE, rows=PREPARED_ROWS - 1))


def test_a_window_in_which_nothing_was_answered_is_reported() -> None:
    contender = InMemory()
    contender.run(job(RequestKind.INSERT, requests=0))
    with pytest.raises(Bug, match="no request"):
        contender.report()


def test_single_inserts_write_different_rows() -> None:
    contender = InMemory()
    keys = [contender.next_insert()[:2] for _ in range(1_000)]
    assert len(set(keys)) == 1_000
    assert {seq for _, seq in keys} == set(range(100))


def test_a_message_is_json_of_the_size_that_is_reported() -> None:
    assert {len(message(number)) for number in (0, 9, 12_345)} == {MESSAGE_BYTES}
    assert json.loads(message(7))["id"] == 7


def test_all_that_was_asked_for_is_measured() -> None:
    names = [case.name for case in CASES]
    assert names == [
        "single inserts",
        "batches of 10",
        "batches of 50",
        "batches of 100",
        "packed rows of 100",
        "slices of 100",
        "slices of 500",
        "LWT, distinct keys",
        "LWT, one hot key",
    ]
    kinds = {kind for part in PARTS for kind in part.kinds}
    assert {kind.commitlog_sync for kind in kinds} == {"periodic", "group", "batch"}
    assert {kind.paxos_variant for kind in kinds} == {"v1", "v2"}

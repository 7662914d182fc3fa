"""The contents of a flush (rows, shards, generations, writes), fates of rows, a producer's record of its parts."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.timeline.model import partitions
from headgate.engines.timeline.model.decide_place import decide_shard, generation_at
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM, MessagePlace, RowPlace, id_text, ids_of
from headgate.engines.timeline.model.partitions import IndexKey, OwnParts
from headgate.engines.timeline.model.row import (
    MIXED_BYTES_MAX,
    MIXED_PARTITIONS_MAX,
    ROW_BYTES_MAX,
    ROW_MESSAGES_MAX,
    WRITE_ROWS_MAX,
    FlushTerms,
    PendingMessage,
    RowPlan,
    decide_grouped_rows,
    decide_single_rows,
    share_writes,
)
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.put.decide_once import Claim, ClaimedKey, ClaimStatus, slot_of, sort_standings
from headgate.engines.timeline.put.decide_row_ack import (
    KnownGenerations,
    Sent,
    WriteAnswer,
    WriteOutcome,
    decide_write_outcome,
    may_restamp,
    with_tail,
)
from headgate.engines.timeline.put.waiting_calls import Call
from headgate.errors import Bug, HeadgateError, OperationRefused
from headgate.expiry import Promise
from headgate.store.process_positions import process_positions
from headgate.store.store import OutcomeUnknown

READY = 1_000_000_000
GENERATIONS = (GenerationSettings(1, 4), GenerationSettings(2, 7, READY + 5_000))
TERMS = FlushTerms(GENERATIONS, READY, turn=11, by_second=False)

DUE = st.one_of(st.none(), st.integers(min_value=READY - 10_000, max_value=READY + 10_000))
SIZES = st.one_of(st.integers(min_value=0, max_value=300), st.sampled_from([ROW_BYTES_MAX - 1, 2 * ROW_BYTES_MAX]))


@st.composite
def pending_messages(draw: st.DrawFn, *, grouped: bool) -> list[PendingMessage]:
    """Waiting messages; each payload holds the number of its call."""
    count = draw(st.integers(min_value=0, max_value=30))
    groups = st.sampled_from([b"a", b"b", b"c"]) if grouped else st.none()
    return [PendingMessage(bytes(draw(SIZES)), draw(DUE), b"", draw(groups), number) for number in range(count)]


def rows_of(waiting: list[PendingMessage], terms: FlushTerms = TERMS) -> list[RowPlan]:
    """All rows of messages without a group."""
    plans = decide_single_rows(waiting, terms)
    alone = [
        RowPlan(generation, shard, due_us, (pending,))
        for (generation, shard), pending_messages in plans.alone.items()
        for pending, due_us in pending_messages
    ]
    return [*plans.shared, *alone]


def numbers(plans: Any) -> list[int]:
    """Which messages rows hold, in order."""
    return [pending.owner for plan in plans for pending in plan.messages]


@given(pending_messages(grouped=False))
def test_every_message_is_in_one_row_and_none_is_due_early(waiting: list[PendingMessage]) -> None:
    plans = rows_of(waiting)
    assert list(range(len(waiting))) == sorted(numbers(plans))
    for plan in plans:
        assert all(pending.due_us is None or pending.due_us <= plan.due_us for pending in plan.messages)


@given(pending_messages(grouped=False))
def test_what_is_due_at_once_shares_rows_within_bounds_and_what_is_due_later_is_alone(
    waiting: list[PendingMessage],
) -> None:
    for plan in rows_of(waiting):
        if plan.due_us > READY:
            assert 1 == len(plan.messages)
        assert len(plan.messages) <= ROW_MESSAGES_MAX
        assert 1 == len(plan.messages) or sum(pending.size for pending in plan.messages) <= ROW_BYTES_MAX


def test_a_row_is_filled_to_its_bound_and_the_next_goes_to_the_next_shard() -> None:
    waiting = [PendingMessage(b"m", None, b"", None, number) for number in range(2 * ROW_MESSAGES_MAX + 1)]
    plans = rows_of(waiting)
    assert [ROW_MESSAGES_MAX, ROW_MESSAGES_MAX, 1] == [len(plan.messages) for plan in plans]
    assert [11 % 4, 12 % 4, 13 % 4] == [plan.shard for plan in plans]


@given(pending_messages(grouped=False))
def test_the_generation_is_that_of_the_due_time(waiting: list[PendingMessage]) -> None:
    for plan in rows_of(waiting):
        assert (2 if plan.due_us >= READY + 5_000 else 1) == plan.generation
        assert plan.shard < (7 if plan.generation == 2 else 4)


@given(pending_messages(grouped=True))
def test_the_messages_of_a_group_are_in_one_flight_and_in_the_order_of_their_times(
    waiting: list[PendingMessage],
) -> None:
    attempts = decide_grouped_rows(waiting, TERMS)
    assert list(range(len(waiting))) == sorted(number for attempt in attempts for number in numbers(attempt))
    for group in (b"a", b"b", b"c"):
        of_group = [
            [(plan.due_us, pending.owner) for plan in attempt for pending in plan.messages if pending.group == group]
            for attempt in attempts
        ]
        assert sum(bool(each) for each in of_group) <= 1
        for each in of_group:
            ready = [number for due_us, number in each if due_us == READY]
            assert sorted(ready) == ready


def test_the_shard_of_a_group_is_the_same_in_every_process() -> None:
    code = (
        "from headgate.engines.timeline.model.decide_place import decide_shard;"
        "print([decide_shard(b'customer %d' % each, 12) for each in range(20)])"
    )
    text = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert 1 == len(text)


def test_groups_spread_over_the_shards() -> None:
    spread = Counter(decide_shard(b"customer %d" % number, 6) for number in range(6_000))
    assert all(800 < count < 1_200 for count in spread.values())


def test_shard_by_second_is_the_due_second() -> None:
    terms = FlushTerms((GenerationSettings(1, 6),), READY, turn=3, by_second=True)
    seconds = [PendingMessage(b"", READY + 1_000_000 * number, b"", None, number) for number in range(8)]
    assert [(READY // 1_000_000 + number) % 6 for number in range(8)] == [
        plan.shard for plan in sorted(rows_of(seconds, terms), key=lambda plan: plan.due_us)
    ]


def test_a_queue_without_a_generation_that_has_begun_is_a_bug() -> None:
    with pytest.raises(Bug):
        generation_at([GenerationSettings(1, 4, READY)], READY - 1)


@given(st.lists(st.tuples(st.integers(min_value=0, max_value=5), st.integers(min_value=1, max_value=9_000))))
def test_writes_hold_every_row_once_and_stay_within_what_the_server_takes(rows: list[tuple[int, int]]) -> None:
    writes = share_writes(rows)
    assert list(range(len(rows))) == sorted(place for write in writes for place in write)
    for write in writes:
        partitions = {rows[place][0] for place in write}
        total = sum(rows[place][1] for place in write)
        assert len(write) <= WRITE_ROWS_MAX
        if len(partitions) > 1:
            assert len(partitions) <= MIXED_PARTITIONS_MAX
            assert total <= MIXED_BYTES_MAX
        assert 1 == len(write) or total <= ROW_BYTES_MAX


# ---- fates

SKEW = 500_000
FRESH = KnownGenerations((GenerationSettings(1, 4),), Promise(0, 60_000_000))
STALE = KnownGenerations((GenerationSettings(1, 4),), Promise(0, 1))
NEXT = KnownGenerations((GenerationSettings(1, 4), GenerationSettings(2, 4, 3_000_000)), Promise(0, 60_000_000))


def fate(
    row: Sent, answer: WriteAnswer, now_us: int, current: KnownGenerations = FRESH, give_up_us: int = 20_000_000
) -> WriteOutcome:
    """Of one row."""
    return decide_write_outcome(row, answer, current=current, now_us=now_us, give_up_us=give_up_us, skew_us=SKEW)


@pytest.mark.parametrize(
    ("answer", "now_us", "current", "expected"),
    [
        (WriteAnswer.DURABLE, 3_499_999, FRESH, WriteOutcome.ACKNOWLEDGED),
        (WriteAnswer.DURABLE, 3_500_000, FRESH, WriteOutcome.RESTAMP),
        (WriteAnswer.DURABLE, 3_500_000, STALE, WriteOutcome.GIVEN_UP),
        (WriteAnswer.UNKNOWN, 3_499_999, FRESH, WriteOutcome.AGAIN),
        (WriteAnswer.UNKNOWN, 3_500_000, FRESH, WriteOutcome.RESTAMP),
        (WriteAnswer.NOTHING, 3_499_999, FRESH, WriteOutcome.AGAIN),
        (WriteAnswer.UNKNOWN, 3_499_999, NEXT, WriteOutcome.GIVEN_UP),
        (WriteAnswer.UNKNOWN, 20_000_000, FRESH, WriteOutcome.GIVEN_UP),
    ],
)
def test_the_fate_of_a_row(
    answer: WriteAnswer, now_us: int, current: KnownGenerations, expected: WriteOutcome
) -> None:
    assert expected == fate(Sent(1, 4_000_000, 0, FRESH), answer, now_us, current)


@pytest.mark.parametrize(
    ("planned", "current", "expected"),
    [
        (FRESH, NEXT, WriteOutcome.ACKNOWLEDGED),
        (STALE, FRESH, WriteOutcome.ACKNOWLEDGED),
        (STALE, STALE, WriteOutcome.GIVEN_UP),
        (STALE, NEXT, WriteOutcome.GIVEN_UP),
    ],
)
def test_attack_A8_a_row_counts_by_knowledge_that_holds_and_states_its_generation(
    planned: KnownGenerations, current: KnownGenerations, expected: WriteOutcome
) -> None:
    assert expected == fate(Sent(1, 4_000_000, 0, planned), WriteAnswer.DURABLE, 1_000_000, current)


def test_attack_A8_a_place_that_was_fixed_in_a_generation_that_does_not_own_it_any_more_is_not_acknowledged() -> None:
    assert WriteOutcome.GIVEN_UP == fate(Sent(1, 4_000_000, 0, NEXT), WriteAnswer.DURABLE, 1_000_000, NEXT)


def test_attack_A8_a_twin_stays_in_its_generation_or_is_not_written() -> None:
    assert may_restamp(1, 2_999_999, current=NEXT, now_us=5)
    assert not may_restamp(1, 3_000_000, current=NEXT, now_us=5)
    assert not may_restamp(1, 2_999_999, current=STALE, now_us=5)


def test_attack_C3_a_restamp_takes_along_all_that_would_overtake_it() -> None:
    rows = [Sent(1, due_us, 0, FRESH) for due_us in (1_000, 2_000, 9_000)]
    before = [WriteOutcome.RESTAMP, WriteOutcome.ACKNOWLEDGED, WriteOutcome.ACKNOWLEDGED]
    assert [WriteOutcome.RESTAMP, WriteOutcome.RESTAMP, WriteOutcome.ACKNOWLEDGED] == with_tail(rows, before, 2_000)
    assert [WriteOutcome.AGAIN, *before[1:]] == with_tail(rows, [WriteOutcome.AGAIN, *before[1:]], 2_000)


# ---- parts


def parts() -> OwnParts:
    """Those of a producer, with countable uuids."""
    made = iter(range(10**9))
    return OwnParts(lambda: UUID(int=next(made)))


def test_attack_E5_a_sub_is_opened_after_a_hundred_thousand_rows_or_many_bytes() -> None:
    mine = parts()
    subs = Counter(mine.sub_for(1, 7, later=False, size_bytes=10) for _ in range(250_000))
    assert {0: 100_000, 1: 100_000, 2: 50_000} == subs
    large = [mine.sub_for(1, 8, later=False, size_bytes=16 * 1024 * 1024) for _ in range(6)]
    assert [0, 0, 1, 1, 2, 2] == large, "32 MiB"


def test_what_is_due_beyond_the_retention_has_subs_of_its_own() -> None:
    mine = parts()
    assert LATER_SUBS_FROM == mine.sub_for(1, 7, later=True, size_bytes=10)
    assert RowPlace(1, LATER_SUBS_FROM, 0, process_positions().at(5)).lies_later
    assert not RowPlace(1, LATER_SUBS_FROM - 1, 0, process_positions().at(5)).lies_later


def test_attack_A13_what_was_under_way_when_all_was_forgotten_does_not_count() -> None:
    mine = parts()
    key = IndexKey(1, 7, 0)
    memory = mine.indexed
    mine.forget_index()
    memory.add(key)
    assert [key] == list(mine.not_indexed([key, key]))


def test_a_part_that_was_forgotten_is_counted_under_another_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTS_MAX", 2)
    mine = parts()
    counts = []
    for part in (1, 2, 3, 1):
        mine.acknowledged(1, part, later=False, messages=5, size_bytes=50)
        counts += mine.take_changed(10)
    assert [1, 2, 3, 1] == [count.part for count in counts]
    assert 4 == len({count.writer for count in counts})
    assert [5, 5, 5, 5] == [count.messages for count in counts]


def test_the_part_that_was_written_to_least_recently_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTS_MAX", 2)
    mine = parts()
    writers = []
    for part in (1, 2, 1, 3, 1):
        mine.acknowledged(1, part, later=False, messages=1, size_bytes=1)
        writers += [count.writer for count in mine.take_changed(10) if count.part == 1]
    assert [writers[0]] * 3 == writers


def test_a_producer_that_schedules_over_a_month_holds_no_more_after_a_minute_than_after_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 messages per second, due over 30 days, while hardly a count can be written."""
    monkeypatch.setattr(partitions, "PARTS_MAX", 1_000)
    mine, rng = parts(), random.Random(3)
    sizes = []
    for _ in range(60):
        for _ in range(1_000):
            part = rng.randrange(30 * 1_440)
            mine.sub_for(1, part, later=False, size_bytes=200)
            mine.acknowledged(1, part, later=False, messages=1, size_bytes=200)
        taken = mine.take_changed(100)
        mine.give_back(taken[10:])
        sizes.append((len(mine._parts), mine.changed))
    assert max(sizes) <= (1_000, 1_000)


def test_a_count_that_could_not_be_written_is_written_later() -> None:
    mine = parts()
    mine.acknowledged(1, 1, later=False, messages=5, size_bytes=50)
    taken = mine.take_changed(10)
    mine.acknowledged(1, 1, later=False, messages=2, size_bytes=20)
    mine.give_back(taken)
    assert [7] == [count.messages for count in mine.take_changed(10)]
    assert 0 == mine.changed


# ---- ids


@pytest.mark.parametrize("count", [1, 3, 512, 700])
def test_the_ids_of_a_row_are_those_of_its_places(count: int) -> None:
    row = RowPlace(3, 2, 5, process_positions().at(READY))
    assert [id_text(MessagePlace(row, index).to_bytes()) for index in range(count)] == ids_of(row, count)
    for one, other in pairwise(ids_of(row, count)):
        assert one != other


# ---- once keys


def test_the_slot_of_a_key_is_that_of_its_scope_or_one_of_4096() -> None:
    assert slot_of(b"a", b"task") == slot_of(b"b", b"task")
    assert slot_of(b"a", b"task") != slot_of(b"a", b"other task")
    assert 4096 >= len({slot_of(b"%d" % number, None) for number in range(50_000)}) > 4000


@given(st.binary(min_size=1), st.integers(0, 2**60), st.integers(0, 2**60))
def test_a_claim_reads_as_it_was_written(place: bytes, claimed_us: int, ends_us: int) -> None:
    claim = Claim(place, claimed_us, ends_us)
    assert claim == Claim.from_bytes(claim.to_bytes())


def test_a_refused_batch_reports_where_each_key_stands() -> None:
    proposed = {b"mine": b"p1", b"done": b"p2", b"open": b"p3", b"free": b"p4"}
    entries = {b"mine": ClaimedKey(b"p1", False), b"done": ClaimedKey(b"x", True), b"open": ClaimedKey(b"y", False)}
    assert {
        ClaimStatus.MINE: [b"mine"],
        ClaimStatus.WRITTEN: [b"done"],
        ClaimStatus.UNFINISHED: [b"open"],
        ClaimStatus.FREE: [b"free"],
    } == sort_standings(proposed, entries)


@pytest.mark.parametrize(
    ("fates", "error"),
    [
        ("refused refused", OperationRefused),
        ("stored refused", OutcomeUnknown),
        ("refused stored", OutcomeUnknown),
        ("refused unknown", OutcomeUnknown),
    ],
)
def test_a_put_of_several_is_refused_only_when_none_of_them_is_stored(fates: str, error: type[HeadgateError]) -> None:
    async def run() -> None:
        call = Call(asyncio.get_running_loop().create_future(), 2)
        for index, fate in enumerate(fates.split()):
            if fate == "stored":
                call.take(index, [f"id-{index}"])
            else:
                call.fail(OperationRefused("no right") if fate == "refused" else OutcomeUnknown("late"), index, 1)
        with pytest.raises(error):
            await call.future

    asyncio.run(run())

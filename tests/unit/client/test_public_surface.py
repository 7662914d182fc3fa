"""The types that an application gets from the SDK, or passes to it.

Times are datetimes, lengths of time are seconds or a timedelta, and no type of an engine is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import headgate
from headgate import settle
from headgate.client.catalogue.overview import QueueOverview
from headgate.client.model.settle_commands import build_settles
from headgate.client.model.values import (
    PeekedMessage,
    QueueSummary,
    RescheduleOutcome,
    RescheduleResult,
    build_peeked,
    build_repair_report,
    build_reschedule_result,
    build_stats,
    build_status,
    build_summary,
)
from headgate.engines import contract
from headgate.engines.summary.reading import LaterMark, QueueFigures
from tests.kit.public_surface import faults_of, public_objects

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
NOON_US = 1_893_585_600_000_000


def test_no_microseconds_and_no_type_of_an_engine_are_public() -> None:
    assert [] == [str(fault) for fault in faults_of(public_objects())]


@dataclass
class Wrong:
    """A value that shows what it should not."""

    due_us: int
    raw: contract.Delivery

    def wait(self, micros: int) -> Sequence[contract.LaneStats]:
        """Takes and returns what it should not."""
        raise NotImplementedError

    @property
    def delivered(self) -> contract.Delivery | None:
        """Shows it too."""
        return None


def test_the_walk_finds_microseconds_and_types_of_an_engine_wherever_they_are() -> None:
    result = {(fault.where, fault.what.rpartition(".")[2]) for fault in faults_of({"Wrong": Wrong})}
    assert {
        ("Wrong.due_us", "microseconds"),
        ("Wrong.raw", "Delivery is not public"),
        ("Wrong.wait.micros", "microseconds"),
        ("Wrong.wait(return)", "LaneStats is not public"),
        ("Wrong.delivered(return)", "Delivery is not public"),
    } == result


def test_a_peeked_message_has_times_in_utc_and_reads_its_payload() -> None:
    attributes = {"content-type": "application/json"}
    peeked = contract.Peeked("m1", b'{"a":1}', attributes, "g", NOON_US, NOON_US - 1, 2, contract.Visibility.LATER)
    assert PeekedMessage(
        "m1",
        b'{"a":1}',
        attributes,
        "g",
        NOON,
        NOON - timedelta(microseconds=1),
        2,
        headgate.Visibility.LATER,
        hidden_until=None,
    ) == build_peeked(peeked)
    assert ({"a": 1}, "application/json") == (build_peeked(peeked).json(), build_peeked(peeked).content_type)


def test_the_status_of_a_message_has_no_time_where_the_engine_has_none() -> None:
    waiting = contract.MessageLocation(
        "m1", contract.MessageState.WAITING, ("1/0/5",), NOON_US, 1, NOON_US + 1_000_000
    )
    assert (NOON, NOON + timedelta(seconds=1)) == (build_status(waiting).due, build_status(waiting).hidden_until)
    gone = build_status(contract.MessageLocation("m1", contract.MessageState.NOT_FOUND, ()))
    assert (headgate.MessageState.NOT_FOUND, None, None) == (gone.state, gone.due, gone.hidden_until)


def test_the_figures_of_a_queue_have_times_and_seconds() -> None:
    lane = contract.LaneStats(1, 0, "a", 7, NOON_US, NOON_US, NOON_US, None, is_held=True, lease_left_us=1_500_000)
    repair = contract.RepairStanding(True, 3, NOON_US, None, None)
    stats = build_stats(contract.Stats(1, 2, 3, NOON_US, (lane,), True, repair))
    assert (NOON, 7, True, 1.5, None) == (
        stats.oldest_due,
        stats.lanes[0].fencing_token,
        stats.lanes[0].is_blocked,
        stats.lanes[0].lease_left_s,
        stats.lanes[0].oldest_due,
    )
    assert stats.repair is not None
    assert (NOON, None) == (stats.repair.last_pass, stats.repair.overdue_since)
    report = build_repair_report(contract.Repaired(contract.PassEnd.DONE, late=2, owed_us=NOON_US))
    assert (2, NOON, None) == (report.late, report.overdue_since, report.waits_for_replicas_since)


def test_the_summary_of_a_queue_has_the_age_of_its_oldest_message() -> None:
    figures = QueueFigures(backlog=4, oldest_us=NOON_US - 2_000_000, later=(LaterMark(NOON_US + 1, NOON_US + 2),))
    summary = build_summary(QueueOverview("shop/emails", figures, NOON_US))
    assert ("shop/emails", NOON, 4, 2.0) == (summary.name, summary.at, summary.backlog, summary.oldest_age_s)
    assert NOON + timedelta(microseconds=1) == summary.next_due
    assert (None, None) == (summary.last_put, build_summary(QueueOverview("q", QueueFigures(), 0)).oldest_age_s)
    assert isinstance(summary, QueueSummary)


@pytest.mark.parametrize(
    ("cancelled", "new_id", "expected"),
    [
        (contract.Cancelled.CANCELLED, "m2", RescheduleResult(RescheduleOutcome.MOVED, "m2")),
        (contract.Cancelled.TOO_LATE, None, RescheduleResult(RescheduleOutcome.TOO_LATE, None)),
        (contract.Cancelled.TOO_LATE, "m2", RescheduleResult(RescheduleOutcome.MAYBE_TWICE, "m2")),
    ],
)
def test_each_outcome_of_a_reschedule_has_a_name(
    cancelled: contract.Cancelled, new_id: str | None, expected: RescheduleResult
) -> None:
    assert expected == build_reschedule_result(cancelled, new_id)
    assert (expected.outcome is RescheduleOutcome.MOVED) == expected.moved


def test_settle_commands_take_seconds_or_a_timedelta() -> None:
    commands = [
        settle.Ack("a"),
        settle.Nack("b", 1.5, "why"),
        settle.Nack("c", timedelta(minutes=1)),
        settle.DeadLetter("d", "no address", delay=2),
        settle.Extend("e", timedelta(hours=1)),
    ]
    assert [
        contract.Ack("a"),
        contract.NackDelivery("b", 1_500_000, "why"),
        contract.NackDelivery("c", 60_000_000),
        contract.DeadLetterDelivery("d", "no address", 2_000_000),
        contract.ExtendDelivery("e", 3_600_000_000),
    ] == build_settles(commands)


def test_the_commands_of_an_engine_stay_as_they_are_and_nothing_else_is_taken() -> None:
    given_back = contract.NackDelivery("a", charged=False)
    assert [given_back] == build_settles([given_back])
    with pytest.raises(headgate.InvalidRequest, match=r"A settle command is expected\. \(given=str\)"):
        build_settles(["receipt"])  # type: ignore[list-item]  # that is the mistake
    with pytest.raises(headgate.InvalidRequest, match="delay must be a timedelta"):
        build_settles([settle.Nack("a", "5s")])  # type: ignore[arg-type]  # that is the mistake

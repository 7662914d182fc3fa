"""The documents that commands print by `-o json` and `-o yaml`: plain values, ISO times in UTC, durations in seconds.

The fields are stable: one may be added, none is renamed or removed. docs/commands.md describes each of them, and a
test compares it with what is built here. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headgate.expiry import SECOND_US

if TYPE_CHECKING:
    from headgate.applying.apply import Applied
    from headgate.client.catalogue.overview import QueueOverview
    from headgate.client.message import Message
    from headgate.client.redriving import RedriveResult
    from headgate.engines.contract import LaneStats, MessageLocation, Peeked, RepairStanding, Stats
    from headgate.engines.summary.pass_results import PassStatus


# ---- values


def iso_time(time_us: int | None) -> str | None:
    """A time to the millisecond, in UTC; None where there is none."""
    if not time_us:
        return None
    return datetime.fromtimestamp(time_us / SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + (
        f"{time_us // 1000 % 1000:03d}Z"
    )


def seconds(duration_us: int | None) -> float | None:
    """A duration in seconds, to the millisecond."""
    return None if duration_us is None else round(duration_us / SECOND_US, 3)


def attributes_document(attributes: Mapping[str, str | bytes]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str) else {"base64": base64.b64encode(value).decode()}
        for name, value in attributes.items()
    }


def payload_fields(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


# ---- messages


def received_document(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "attempt": message.attempt,
        "due_at": message.due.isoformat(),
        "put_at": message.put_at.isoformat(),
        "visible_until": message.visible_until.isoformat(),
        "fencing_token": message.fencing_token,
        "group": message.group,
        "attributes": attributes_document(message.attributes),
        **payload_fields(message.payload),
    }


def peeked_document(message: Peeked) -> dict[str, Any]:
    return {
        "id": message.message_id,
        "state": message.standing.value,
        "attempt": message.attempt,
        "due_at": iso_time(message.due_us),
        "put_at": iso_time(message.put_us),
        "hidden_until": iso_time(message.hidden_until_us),
        "group": message.group,
        "reason": reason_of(message),
        "attributes": attributes_document(message.attributes),
        **payload_fields(message.payload),
    }


def reason_of(message: Peeked) -> str | None:
    """Why a message is in a dead-letter queue."""
    from headgate.client.redriving import DEATH_REASON

    reason = str(message.attributes.get(DEATH_REASON, "")).strip()
    return reason or None


def location_document(location: MessageLocation) -> dict[str, Any]:
    return {
        "id": location.message_id,
        "state": location.fate.value,
        "due_at": iso_time(location.due_us),
        "attempt": location.attempt,
        "hidden_until": iso_time(location.hidden_until_us),
        "places": list(location.places),
    }


# ---- queues


def stats_document(queue: str, stats: Stats, last_pass: PassStatus | None, now_us: int) -> dict[str, Any]:
    oldest_us = stats.oldest_due_us
    return {
        "queue": queue,
        "at": iso_time(now_us),
        "backlog": stats.backlog,
        "in_flight": stats.in_flight,
        "delayed": stats.delayed,
        "complete": stats.complete,
        "oldest_due_at": iso_time(oldest_us),
        "oldest_age_s": None if oldest_us is None else seconds(max(0, now_us - oldest_us)),
        "lanes": [lane_document(lane) for lane in stats.lanes],
        "repair": None if stats.repair is None else _repair_document(stats.repair),
        "last_pass": None
        if last_pass is None
        else {
            "ended_at": iso_time(last_pass.ended_us),
            "problems": last_pass.problems,
            "message": last_pass.message,
        },
    }


def lane_document(lane: LaneStats) -> dict[str, Any]:
    return {
        "generation": lane.generation,
        "shard": lane.shard,
        "owner": lane.owner,
        "fencing_token": lane.epoch,
        "state": lane_state(lane),
        "lease_left_s": seconds(lane.lease_left_us),
        "progress": lane.progress,
        "settled_until": iso_time(lane.last_us),
        "oldest_due_at": iso_time(lane.oldest_due_us),
        "in_flight": lane.in_flight,
        "hidden": lane.hidden,
        "settled_out_of_order": lane.settled_above,
        "unreadable_rows": lane.unreadable_rows,
    }


def lane_state(lane: LaneStats) -> str:
    """In words, separated by commas."""
    if lane.is_retired:
        return "retired"
    states = {
        "free": lane.owner is None,
        "stopped": lane.is_stopped,
        "blocked": lane.is_held,
        "reserved": lane.is_reserved,
    }
    return ", ".join(name for name, applies in states.items() if applies) or "held"


def _repair_document(repair: RepairStanding) -> dict[str, Any]:
    return {
        "runs_now": repair.runs_now,
        "passes": repair.passes,
        "last_pass_at": iso_time(repair.last_pass_us),
        "checked_until": iso_time(repair.checked_to_us),
        "owed_since": iso_time(repair.owed_since_us),
    }


def overview_document(queue: QueueOverview) -> dict[str, Any]:
    figures = queue.figures
    return {
        "queue": queue.name,
        "backlog": figures.backlog,
        "in_flight": figures.in_flight,
        "oldest_age_s": seconds(queue.oldest_age_us),
        "rate_per_s": figures.rate,
        "workers": figures.workers,
        "lanes": figures.lanes,
        "lanes_blocked": figures.held,
        "unreadable_rows": figures.unreadable,
        "last_put_at": iso_time(figures.put_us),
        "next_due_at": iso_time(figures.next_due_us(queue.at_us)),
    }


def applied_document(applied: Applied) -> dict[str, Any]:
    entry = applied.entry
    return {
        "kind": applied.name.kind,
        "name": f"{applied.name.namespace}/{applied.name.name}",
        "outcome": applied.outcome,
        "id": None if entry is None else str(entry.id),
        "shards": None if entry is None else entry.generations.current.shards,
        "notes": list(applied.notes),
        "drifts": [str(drift) for drift in applied.drifts],
    }


def redriven_document(queue: str, result: RedriveResult) -> dict[str, Any]:
    return {
        "queue": queue,
        "moved": result.moved,
        "skipped": [{"id": each.message_id, "reason": each.reason.value} for each in result.skipped],
    }

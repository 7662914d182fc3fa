"""The documents that commands print by `-o json` and `-o yaml`: plain values, ISO times in UTC, durations in seconds.

The fields are stable: one may be added, none is renamed or removed. FIELDS describes each of them for
docs/commands.md, and a test compares it with what is built here. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.applying.apply import Applied
    from headgate.client.catalogue.overview import QueueOverview
    from headgate.client.message import Message
    from headgate.client.redriving import RedriveResult
    from headgate.engines.contract import LaneStats, MessageLocation, Peeked, RepairStanding, Stats
    from headgate.engines.summary.standing import PassStatus

SECOND_US: Final = 1_000_000

_MESSAGE: Final = {
    "id": "Message id.",
    "attempt": "Number of deliveries so far.",
    "due_at": "Time at which it is due.",
    "put_at": "Time at which it was put.",
    "group": "Group, or null.",
    "attributes": "Attributes by name. A binary one is an object with the field base64.",
    "payload": "Payload as text. A binary payload is in payload_base64 instead.",
}

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "put": {"id": "Message id.", "number": "Number of the message in this run, from 1."},
    "receive": {
        **_MESSAGE,
        "visible_until": "Time until which other consumers do not receive it.",
        "fencing_token": "Fencing token of its lane.",
    },
    "peek": {
        **_MESSAGE,
        "state": "ready, in flight, or later (delayed).",
        "hidden_until": "Time until which it is in flight, or null.",
        "reason": "Why it is in a dead-letter queue, or null.",
    },
    "locate": {
        "id": "Message id.",
        "state": "not found, waiting, in flight, settled, cancelled, purged, dead letter, or late.",
        "due_at": "Time at which it is due, or null.",
        "attempt": "Number of recorded deliveries.",
        "hidden_until": "Time until which it is in flight, or null.",
        "places": "Its first place in storage and each later one.",
    },
    "cancel": {"id": "Message id.", "cancelled": "Whether it will never be delivered."},
    "queues": {"name": "Queue, as NAMESPACE/NAME."},
    "stats": {
        "queue": "Queue, as NAMESPACE/NAME.",
        "at": "Time of the count.",
        "backlog": "Messages that are due and can be delivered.",
        "in_flight": "Messages that are delivered and not settled, or wait for their next attempt.",
        "delayed": "Messages that are due later.",
        "complete": "Whether everything was counted; if not, the numbers are lower bounds.",
        "oldest_due_at": "Due time of the oldest message in the backlog, or null.",
        "oldest_age_s": "Its age in seconds, or null.",
        "lanes": "Lanes; see the next table.",
        "repair": "State of repair (runs_now, passes, last_pass_at, checked_until, owed_since), or null.",
        "last_pass": "Result of the last repair pass (ended_at, problems, message), or null.",
    },
    "stats, each of lanes": {
        "generation": "Generation of the lane.",
        "shard": "Number of the lane in its generation.",
        "owner": "Id of the owner's lease, or null.",
        "fencing_token": "Fencing token of the owner.",
        "state": "held, free, stopped, blocked, reserved (by Spark), or retired.",
        "lease_left_s": "Seconds until the lease ends, or null.",
        "progress": "Iterations of the owner's loop.",
        "settled_until": "Every message due before this time is settled.",
        "oldest_due_at": "Due time of its oldest message, or null.",
        "in_flight": "Messages in flight, if this process owns the lane; else null.",
        "hidden": "Messages that are in flight for longer than a lease, or wait for their next attempt.",
        "settled_out_of_order": "Settled messages after one that is not settled.",
    },
    "top": {
        "queue": "Queue, as NAMESPACE/NAME.",
        "backlog": "Messages that can be delivered, or null without active workers.",
        "in_flight": "Messages in flight.",
        "oldest_age_s": "Age of the oldest message that is not settled, or null.",
        "rate_per_s": "Messages settled per second.",
        "workers": "Active workers.",
        "lanes": "Lanes that a worker holds.",
        "lanes_blocked": "Lanes that deliver nothing new until an old message is settled.",
        "last_put_at": "Time of the last put, or null.",
        "next_due_at": "Time at which a delayed message is due next, or null.",
    },
    "apply": {
        "kind": "Queue or Counter.",
        "name": "Resource, as NAMESPACE/NAME.",
        "outcome": "created, updated, unchanged, or refused.",
        "id": "Id in the catalogue, or null.",
        "shards": "Number of shards, or null.",
        "notes": "Details, or why it was refused.",
        "drifts": "Differences between a table and its declaration.",
    },
    "apply --dry-run": {"cql": "Lines of the CQL that is missing."},
    "redrive": {
        "queue": "Dead-letter queue, as NAMESPACE/NAME.",
        "moved": "Number of messages moved.",
        "skipped": "Messages that stay, each with id and reason.",
    },
    "purge": {
        "queue": "Queue, as NAMESPACE/NAME.",
        "until": "Messages put before this time were deleted.",
        "expected": "Number of messages in the queue before.",
    },
    "repair": {
        "queue": "Queue, as NAMESPACE/NAME.",
        "done": "Whether the pass had no problem.",
        "message": "Result of the pass in words.",
        "problems": "Problems in words.",
    },
    "gc": {
        "counter": "Counter, as NAMESPACE/NAME.",
        "done": "Whether the pass had no problem.",
        "message": "Result of the pass in words.",
        "problems": "Problems in words.",
    },
    "validate": {
        "valid": "Whether all resources are valid.",
        "resources": "Valid resources, each with kind and name.",
        "faults": "Faults, each with file, line, document, path and message.",
        "ignored": "Number of documents of other kinds.",
    },
    "plan": {
        "effects": "Steps in their order, each with its resource, its words, and its CQL or object.",
        "ends": "State of each resource at the end, with its open conditions.",
        "unknown": "Facts that only a cluster has.",
    },
    "check": {
        "queue": "Queue, as NAMESPACE/NAME.",
        "counter": "Counter, as NAMESPACE/NAME.",
        "messages": "Number of messages.",
        "took_s": "Time in seconds.",
    },
    "bulk": {
        "queue": "Queue, as NAMESPACE/NAME.",
        "mode": "drain, move, redrive, replay or export.",
        "done": "Number of messages processed.",
        "dead_letters": "Those among them that became dead letters.",
        "left": "Number of messages that stay in the queue.",
    },
    "counter get, merge, top, export": {
        "key": "Key, or null for several keys together.",
        "value": "Value: a number, a text, or an object of the counter's type.",
    },
    "counter list": {"name": "Counter, as NAMESPACE/NAME."},
}
"""What each field is, by the command that prints it."""


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
    """Attributes; binary ones as base64."""
    return {
        name: value if isinstance(value, str) else {"base64": base64.b64encode(value).decode()}
        for name, value in attributes.items()
    }


def payload_fields(payload: bytes) -> dict[str, str]:
    """The payload as text, or as base64."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


# ---- messages


def received_document(message: Message) -> dict[str, Any]:
    """A message that was received."""
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
    """A message that was read without taking it."""
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
    """The state and the places of a message."""
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
    """What a queue holds."""
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
    """One lane."""
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
    """One queue of `headgate top`."""
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
        "last_put_at": iso_time(figures.put_us),
        "next_due_at": iso_time(figures.next_due_us(queue.at_us)),
    }


def applied_document(applied: Applied) -> dict[str, Any]:
    """What became of one resource."""
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
    """What a redrive moved, and what it left."""
    return {
        "queue": queue,
        "moved": result.moved,
        "skipped": [{"id": each.message_id, "reason": each.reason.value} for each in result.skipped],
    }

"""The request of a job, as a value: from `spec.bulk` of a queue, or from the options of a command. Pure.

The rules are those of the resource: `headgate.api.resources.bulk` defines the valid combinations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid5

from pydantic import ValidationError

from headgate.api.resources.bulk import Bulk
from headgate.api.values.units import Duration
from headgate.errors import InvalidRequest
from headgate.store.catalogue.entry import Entry

RESERVING_MODES: Final = ("drain", "move", "redrive")
"""Modes that take the backlog; the others read history, and take nothing."""
FILES: Final = ("parquet", "json", "csv", "orc")
PER_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
RESERVATION_S = 300.0
BATCH_MESSAGES = 100_000


class JobWrong(InvalidRequest):
    """The bulk job is not valid."""


class JobUnknown(InvalidRequest):
    """The queue has no such bulk job."""


@dataclass(frozen=True)
class SinkRequest:
    format: str
    path: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class JobRequest:
    queue: str
    name: str
    mode: str
    handler: str | None = None
    sink: SinkRequest | None = None
    target: str | None = None
    """Another queue, as namespace/name."""
    from_: str | None = None
    to: str | None = None
    where: str | None = None
    rate: float | None = None
    reservation_s: float = RESERVATION_S
    """Maximum duration of a batch; ranges that a dead job had reserved are the consumers' again after that."""
    batch_messages: int = BATCH_MESSAGES
    resume_at_once: bool = False

    @property
    def takes_reservations(self) -> bool:
        return self.mode in RESERVING_MODES


def request_of(queue: str, bulk: Bulk, **options: Any) -> JobRequest:
    """The request in a bulk job of a queue; JobWrong where it is inconsistent."""
    _check(bulk)
    namespace = queue.partition("/")[0]
    sink = None
    target = None if bulk.target is None else f"{namespace}/{bulk.target}"
    if bulk.sink is not None and bulk.sink.format == "headgate":
        target = bulk.sink.path if "/" in bulk.sink.path else f"{namespace}/{bulk.sink.path}"
    elif bulk.sink is not None:
        sink = SinkRequest(bulk.sink.format, bulk.sink.path, dict(bulk.sink.options or {}))
    if target == queue:
        raise JobWrong("A queue cannot be its own target", queue=queue, remedy="name another target")
    return JobRequest(
        queue,
        bulk.name,
        bulk.mode,
        bulk.handler,
        sink,
        target,
        bulk.from_,
        bulk.to,
        bulk.where,
        rate_of(bulk.rate),
        **options,
    )


def sink_request_of(document: Mapping[str, Any]) -> SinkRequest:
    """Files, for a job that is not a queue's."""
    form = str(document["format"])
    if form not in FILES:
        raise JobWrong("A rollup writes files", format=form, remedy=f"one of {', '.join(FILES)}")
    return SinkRequest(form, str(document["path"]), dict(document.get("options") or {}))


def bulk_of(document: Mapping[str, Any]) -> Bulk:
    """A job as a value, from a document; JobWrong names the fields that are wrong."""
    try:
        return Bulk.model_validate(document)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise JobWrong(why=faults) from None


def bulk_of_entry(entry: Entry, name: str) -> Bulk:
    """The job of that name, as the catalogue has it. It puts into queues of its own namespace, also where it is older
    than the rule for that, since the right to write a Queue of one namespace is none on another."""
    jobs = [each for each in entry.spec.get("bulk") or () if isinstance(each, Mapping)]
    for each in jobs:
        if each.get("name") == name:
            bulk = bulk_of(each)
            _check_sink(entry.name.namespace, bulk)
            return bulk
    there = ", ".join(str(each.get("name")) for each in jobs) or "none"
    raise JobUnknown(queue=f"{entry.name.namespace}/{entry.name.name}", job=name, there=there)


def _check_sink(namespace: str, bulk: Bulk) -> None:
    if bulk.sink is None or bulk.sink.format != "headgate":
        return
    before, slash, _ = bulk.sink.path.rpartition("/")
    if slash and before != namespace:
        remedy = f"name a queue of namespace {namespace}"
        raise JobWrong("The sink is a queue of another namespace", sink=bulk.sink.path, remedy=remedy)


def job_id(entry: Entry, name: str) -> UUID:
    """The key under which a job keeps its row and reports its figures: of a resource in Kubernetes its uid, by which
    the operator finds it."""
    owner, _, uid = entry.owner.rpartition("/")
    return uuid5(UUID(uid) if owner.startswith("operator/") else entry.id, name)


def rate_of(text: str | None) -> float | None:
    """Messages per second."""
    if text is None:
        return None
    count, _, unit = text.partition("/")
    return int(count) / PER_S[unit]


def parse_time_us(text: str | None, now_us: int) -> int | None:
    """A time, or an age counted back from now, in µs since 1970."""
    if text is None:
        return None
    age_ms = Duration.parse(text) if re.fullmatch(r"([0-9]+[dhms])+", text) else None
    if age_ms is not None:
        return now_us - age_ms * 1000
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise JobWrong("Invalid time", given=text, remedy="write 2026-11-18T09:00:00Z, or an age: 24h") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1_000_000)


def _check(bulk: Bulk) -> None:
    has = {name for name in ("handler", "sink", "target") if getattr(bulk, name) is not None}
    is_valid, needs = {
        "drain": (len(has) == 1, "one of a handler, a sink and a target"),
        "replay": (len(has & {"sink", "target"}) == 1, "a target or a sink; a handler transforms"),
        "redrive": (not has & {"handler", "sink"}, "neither handler nor sink; a target is optional"),
        "move": (has == {"target"}, "a target, and neither handler nor sink"),
        "export": (has == {"sink"}, "a sink, and neither handler nor target"),
    }[bulk.mode]
    if not is_valid:
        raise JobWrong(
            "The bulk job has invalid sources or targets", mode=bulk.mode, remedy=f"{bulk.mode} needs {needs}"
        )
    if bulk.mode == "export" and bulk.sink is not None and bulk.sink.format not in FILES:
        raise JobWrong("An export writes files", format=bulk.sink.format, remedy=f"one of {', '.join(FILES)}")

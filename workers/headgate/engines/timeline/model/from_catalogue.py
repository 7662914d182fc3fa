"""From an entry of the catalogue to the settings of a timeline queue. Pure.

A newer release may have written the document: fields unknown to this one are ignored. The fields fixed at creation
(tables, keyspace, data center, generations) come from the entry, never from the document.
"""

from __future__ import annotations

from headgate.api.read.versions import resource_of
from headgate.api.resources.engine import Timeline
from headgate.api.resources.queues import QueueResource
from headgate.api.values.units import Duration
from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.timeline.model.settings import GenerationSettings, ShardBy, TimelineSettings
from headgate.engines.timeline.model.tables import TimelineTables, dedicated_tables, shared_tables
from headgate.errors import InvalidRequest
from headgate.store.catalogue.entry import Entry

MS_US = 1_000
SECOND_MS = 1_000


class NotATimelineQueue(InvalidRequest):
    """The resource is not a queue with engine timeline."""


def settings_of(entry: Entry, data_center: str) -> TimelineSettings:
    """The settings of this queue for a process whose coordinators are in that data center; refused elsewhere (rule
    R5)."""
    entry.require_home(data_center)
    queue = queue_of(entry)
    spec = queue.spec
    timeline = spec.timeline or Timeline()
    skew_us = _us(spec.max_clock_skew)
    return TimelineSettings(
        queue=entry.id,
        name=f"{entry.name.namespace}/{entry.name.name}",
        tables=tables_of_entry(entry),
        generations=generations_of(entry),
        part_us=_us(timeline.part),
        safety_lag_us=_us(timeline.safety_lag),
        skew_us=skew_us,
        retention_us=_us(spec.retention),
        visibility_us=_us(spec.visibility_timeout),
        delay_us=_us(spec.delay),
        max_receives=spec.max_receives,
        message_bytes_max=spec.max_message_size.bytes,
        once_window_us=_us(spec.once_window),
        late_write_us=_us(timeline.late_write_timeout),
        shard_by=ShardBy(timeline.shard_by),
        lease=LeaseTerms(
            ttl_s=-(-timeline.lease.ttl.ms // SECOND_MS), touch_us=_us(timeline.lease.touch), skew_us=skew_us
        ),
        dead_letter=spec.dead_letter,
        receipt_key=entry.receipt_key,
    )


def queue_of(entry: Entry) -> QueueResource:
    """The queue that an entry describes, as far as this release knows its fields."""
    resource = resource_of(entry.document)
    if not isinstance(resource, QueueResource) or resource.spec.engine != "timeline":
        engine = resource.spec.engine if isinstance(resource, QueueResource) else resource.kind
        raise NotATimelineQueue(resource=entry.name, engine=engine)
    return resource


def tables_of_entry(entry: Entry) -> TimelineTables:
    """The tables that were chosen at its creation."""
    return shared_tables() if entry.place.tables == "shared" else dedicated_tables(entry.id)


def generations_of(entry: Entry) -> tuple[GenerationSettings, ...]:
    """All that may hold messages, oldest first."""
    return tuple(
        GenerationSettings(each.number, each.shards, each.from_us, each.until_us, each.sure_us)
        for each in entry.generations.windows()
    )


def _us(duration: Duration) -> int:
    return duration.ms * MS_US

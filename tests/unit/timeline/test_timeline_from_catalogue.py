"""From a resource as a person writes it, over its entry in the catalogue, to what the engine works by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import yaml

from headgate.api.read.parse import parse_resource
from headgate.applying.desired_state import PlacementDefaults, wanted_of
from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.timeline.model.from_catalogue import NotATimelineQueue, settings_of
from headgate.engines.timeline.model.settings import GenerationSettings as Lanes
from headgate.engines.timeline.model.settings import ShardBy, TimelineSettings
from headgate.engines.timeline.model.tables import dedicated_tables, shared_tables
from headgate.store.catalogue.decide_generation import Generation, Generations, Window, first
from headgate.store.catalogue.entry import Entry, EntryState, WrongDataCenter

CREATION = UUID("11111111-2222-4333-8444-555555555555")
SECOND = 1_000_000
DAY = 86_400 * SECOND
KEY = b"k" * 32

WHOLE = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {name: emails, namespace: shop}
spec:
  shards: 6
  retention: 3d
  visibilityTimeout: 90s
  delay: 5s
  maxReceives: 7
  maxMessageSize: 256Ki
  onceWindow: 2h
  maxClockSkew: 250ms
  deadLetter: emails-dead
  timeline:
    part: 30s
    safetyLag: 700ms
    shardBy: second
    lateWriteTimeout: 2m
    lease: {ttl: 12500ms, touch: 3s}
  storage: {tables: shared, keyspace: elsewhere}
"""
SHORTEST = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {name: emails}
spec: {}
"""


def entry_from(text: str, generations: Generations | None = None, **more: Any) -> Entry:
    """As `headgate apply` writes it; `more` is what a newer release writes beside it into the spec."""
    resource = parse_resource(yaml.safe_load(text))
    wanted = wanted_of(resource, PlacementDefaults("headgate", "dc1", 3))
    document = {**wanted.document, "spec": {**wanted.document["spec"], **more}}
    return Entry(
        wanted.name,
        CREATION,
        "cli/headgate",
        EntryState.ACTIVE,
        1,
        document,
        wanted.place,
        generations or first(wanted.shards),
        0,
        KEY,
    )


def test_every_field_that_a_person_sets_arrives_in_the_units_of_the_engine() -> None:
    expected = TimelineSettings(
        queue=CREATION,
        name="shop/emails",
        tables=shared_tables(),
        generations=(Lanes(1, 6),),
        part_us=30 * SECOND,
        safety_lag_us=700_000,
        skew_us=250_000,
        retention_us=3 * DAY,
        visibility_us=90 * SECOND,
        delay_us=5 * SECOND,
        max_receives=7,
        message_bytes_max=256 * 1024,
        once_window_us=2 * 3600 * SECOND,
        late_write_us=120 * SECOND,
        shard_by=ShardBy.SECOND,
        lease=LeaseTerms(ttl_s=13, touch_us=3 * SECOND, skew_us=250_000),
        dead_letter="emails-dead",
        receipt_key=KEY,
    )
    assert expected == settings_of(entry_from(WHOLE), data_center="dc1")


def test_what_nobody_sets_is_as_the_engine_has_it_too() -> None:
    expected = TimelineSettings(
        CREATION, "default/emails", dedicated_tables(CREATION), (Lanes(1, 4),), receipt_key=KEY
    )
    assert expected == settings_of(entry_from(SHORTEST), data_center="dc1")


def test_all_generations_that_may_hold_messages_come_with_their_windows() -> None:
    generations = Generations(
        Generation(2, 6, from_us=100),
        Generation(3, 12, from_us=900),
        sure_us=950,
        earlier=(Window(1, 4, 0, 100, 160),),
    )
    result = settings_of(entry_from(WHOLE, generations), data_center="dc1").generations
    assert (Lanes(1, 4, 0, 100, 160), Lanes(2, 6, 100, 900, 950), Lanes(3, 12, 900)) == result


def test_fields_that_only_a_newer_release_knows_are_passed_over() -> None:
    entry = entry_from(WHOLE, hologram=True, timeline={"part": "30s", "phase": {"of": "moon"}})
    assert 30 * SECOND == settings_of(entry, data_center="dc1").part_us


def test_tables_are_those_of_the_creation_whatever_the_document_states_now() -> None:
    entry = entry_from(WHOLE)
    moved = replace(entry, place=replace(entry.place, tables="dedicated"))
    assert dedicated_tables(CREATION) == settings_of(moved, data_center="dc1").tables


def test_a_process_in_another_data_centre_is_refused_in_one_line() -> None:
    with pytest.raises(WrongDataCenter, match="set DATA_CENTER=dc1") as refused:
        settings_of(entry_from(WHOLE), data_center="dc2")
    assert 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize("engine", ["bucket", "extent"])
def test_a_queue_of_another_engine_is_refused(engine: str) -> None:
    entry = entry_from(SHORTEST.replace("{}", f"{{engine: {engine}}}"))
    with pytest.raises(NotATimelineQueue, match=f"engine={engine}"):
        settings_of(entry, data_center="dc1")

"""Invariants of the tables and the settings, whatever runs on them."""

from __future__ import annotations

from uuid import uuid4

from headgate.api.read.parse import check_resource
from headgate.engines.timeline.model.tables import ALL, dedicated_tables, shared_tables
from headgate.store.model.table import DAY_S, WrittenBy
from tests.unit.api.api_cases import document

TABLES = {table.name: table for table in ALL}


def test_attack_E2_a_lane_is_a_partition_of_its_own_so_that_no_two_share_a_paxos_key() -> None:
    assert ("queue", "generation", "shard") == TABLES["lanes"].partition_names
    assert () == TABLES["lanes"].clustering_names


def test_attack_E6_what_lives_long_lies_in_a_table_of_its_own_whose_expired_rows_can_go() -> None:
    assert ("class", "TimeWindowCompactionStrategy") in TABLES["work"].compaction
    assert ("class", "UnifiedCompactionStrategy") in TABLES["later"].compaction
    for name in ("work", "later"):
        assert ("unchecked_tombstone_compaction", "true") in TABLES[name].compaction


def test_attack_A5_no_table_of_a_timeline_forgets_within_a_day() -> None:
    assert {} == {table.name: table.gc_grace_s for table in ALL if table.gc_grace_s < DAY_S}


def test_tables_in_which_rows_only_expire_keep_expired_rows_for_a_day() -> None:
    """C4: a file is deleted only gc_grace after all of it has expired."""
    kept = {"work", "later", "parts", "put_counts", "settled", "passed"}
    assert kept == {table.name for table in ALL if table.gc_grace_s == DAY_S}


def test_rule_R3_what_is_written_by_lwt_is_never_written_plainly() -> None:
    kinds = {table.name: {column.written for column in table.columns if column.name != "attempt"} for table in ALL}
    assert {WrittenBy.LWT} == kinds["lanes"]
    assert {"moved"} == {each.name for each in TABLES["work"].columns if each.written is WrittenBy.LWT} - {"attempt"}


def test_attack_A9_what_enters_a_partition_key_cannot_be_edited() -> None:
    before = {"engine": "timeline", "timeline": {"part": "1m", "shardBy": "flush"}}
    for after in ({"part": "5m", "shardBy": "flush"}, {"part": "1m", "shardBy": "second"}):
        result = check_resource(document("Queue", {**before, "timeline": after}), document("Queue", before))
        assert isinstance(result, list), after
        assert 1 == len(result)


def test_attack_A9_tables_of_a_queue_recreated_under_its_name_are_others() -> None:
    first, second = dedicated_tables(uuid4()), dedicated_tables(uuid4())
    assert first.work.name != second.work.name
    assert {"queue"} == {table.partition_names[0] for table in vars(shared_tables()).values()}

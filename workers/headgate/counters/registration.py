"""The facts about counters that code needs to apply a counter to Cassandra, or to remove one
(engines/registry.py)."""

from __future__ import annotations

from headgate.counters.collect.forgetting import forget_rows
from headgate.counters.model.tables import dedicated_tables, shared_tables
from headgate.engines.registry import StoredRecord

RECORD = StoredRecord(shared_tables=shared_tables, dedicated_tables=dedicated_tables, forget_rows=forget_rows)

"""What whoever brings a counter to Cassandra, or removes one, needs to know of counters (engines/registry.py)."""

from __future__ import annotations

from headgate.counters.forgetting import forget_rows
from headgate.counters.tables import dedicated_tables, shared_tables

__all__ = ["dedicated_tables", "forget_rows", "shared_tables"]

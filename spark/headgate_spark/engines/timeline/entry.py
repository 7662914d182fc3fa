"""Spark's record of engine timeline (headgate_spark/engines/registry.py)."""

from __future__ import annotations

from headgate_spark.engines.contract import SparkEngine
from headgate_spark.engines.timeline.ids import TimelineIds
from headgate_spark.engines.timeline.lanes import TimelineLending
from headgate_spark.engines.timeline.scan import TimelineScan

ENGINE = SparkEngine(scan=TimelineScan(), reservations=TimelineLending, ids=TimelineIds())

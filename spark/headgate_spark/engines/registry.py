"""The file that reads each engine. A later engine adds its line, and its file next to this one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from headgate.client.queue import Queue
from headgate.errors import OperationRefused
from headgate_spark.engines.contract import EngineScan

SUPPORTED: Final[Mapping[str, str]] = {"timeline": "headgate_spark.engines.timeline"}
"""From an engine to the module whose `SCAN` reads it."""


class EngineNotRead(OperationRefused):
    """This release does not read queues of this engine with Spark."""


def scan_of(queue: Queue) -> EngineScan:
    """How this queue is read."""
    engine = str(queue.entry.spec.get("engine"))
    module = SUPPORTED.get(engine)
    if module is None:
        raise EngineNotRead(queue=queue.name, engine=engine, read=", ".join(SUPPORTED))
    scan: EngineScan = import_module(module).SCAN
    return scan

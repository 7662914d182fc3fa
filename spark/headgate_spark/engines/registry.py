"""Finds Spark's part of a queue's engine: the room of the engine's name next to this file, which has an `entry.py`
with its `ENGINE`. The names are those of headgate/engines/registry.py."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from headgate.client.queue import Queue
from headgate.engines.registry import ENGINE_MODULES, engine_of_entry
from headgate.errors import OperationRefused
from headgate_spark.engines.contract import SparkEngine


class EngineNotRead(OperationRefused):
    """This release does not read queues of this engine with Spark."""


def spark_engine(queue: Queue) -> SparkEngine:
    """How this queue is read, and how ranges of it are reserved."""
    name = engine_of_entry(queue.entry)
    if name not in ENGINE_MODULES or not _is_read(name):
        raise EngineNotRead(queue=queue.name, engine=name, read=", ".join(filter(_is_read, ENGINE_MODULES)))
    return named_engine(name)


@cache
def named_engine(name: str) -> SparkEngine:
    """The same in a task, where the driver has opened the queue."""
    engine: SparkEngine = import_module(f"{__package__}.{name}.entry").ENGINE
    return engine


def _is_read(name: str) -> bool:
    return find_spec(f"{__package__}.{name}") is not None

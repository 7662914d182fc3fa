"""The connection of a source or a sink: that of its Python process, shared with other users. Never opened in a
constructor, since readers and writers are pickled.
"""

from __future__ import annotations

from headgate_spark.options import Subject
from headgate_spark.process.worker_connection import WorkerConnection, process_connection


def process_of(subject: Subject) -> WorkerConnection:
    """From the environment, overridden by options."""
    return process_connection({}, over=dict(subject.connection))

"""The connection by which a source or a sink works: that of its Python process, whatever else runs there. Never
opened in a constructor, since readers and writers are pickled.
"""

from __future__ import annotations

from headgate_spark.options import Subject
from headgate_spark.worker_connection import WorkerConnection, connection_here


def process_of(subject: Subject) -> WorkerConnection:
    """By the environment, and by what options say otherwise."""
    return connection_here({}, over=dict(subject.connection))

"""Log lines: one JSON object per line on standard output, or a readable line. Static text, values as fields.

`logger.info("lane taken", extra={"lane": 3})` gives
`{"timestamp": ..., "level": "info", "message": "lane taken", "lane": 3}`.
Every log line during the handling of a message also has the fields that `log_fields` holds: its id, attempt and
trace.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

FORMATS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")

log_fields: ContextVar[Mapping[str, object]] = ContextVar("headgate_log_fields", default={})  # noqa: B039  never changed
"""Fields of every line of this context."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a record: of its context, then its own."""
    own = {name: value for name, value in vars(record).items() if name not in _OWN}
    return {**log_fields.get(), **own}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in fields_of(record).items() if name not in line}
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={_shown(value)}" for name, value in fields_of(record).items())
        line = f"{at} {record.levelname.lower():7} {record.getMessage()}" + (f"  {fields}" if fields else "")
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(sign in text for sign in ' "\n=') else text


def log_to(stream: TextIO | Any = None, *, form: str = "json", level: str = "info") -> None:
    """Send everything that this process logs to a stream. Default: standard output."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stdout)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The driver and the HTTP library log at info facts that interest only their authors.
    for chatty in ("cassandra", "aiohttp", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))

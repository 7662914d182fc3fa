"""Extracts our one line from Spark's form of an error: it wraps a source's error into a traceback of its own."""

from __future__ import annotations

import re

_OURS = re.compile(r"^(?:headgate[\w.]*|headgate_spark[\w.]*)\.(?P<kind>\w+): (?P<line>.+)$", re.MULTILINE)


def line_of(error: BaseException) -> str:
    """The error, its place and the remedy, in one line; else the first line of Spark's error."""
    lines = list(_OURS.finditer(str(error)))
    if lines:
        return lines[-1]["line"].strip()
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)

"""Finds our one line in what Spark makes of an error: it wraps what a source raises into a traceback of its own."""

from __future__ import annotations

import re

_OURS = re.compile(r"^(?:headgate[\w.]*|headgate_spark[\w.]*)\.(?P<kind>\w+): (?P<line>.+)$", re.MULTILINE)


def line_of(error: BaseException) -> str:
    """What is wrong, where and what to do, in one line; else the first line of what Spark says."""
    found = list(_OURS.finditer(str(error)))
    if found:
        return found[-1]["line"].strip()
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)

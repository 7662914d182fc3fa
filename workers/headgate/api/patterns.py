"""Regular expressions that mean the same to Python and to RE2, which the API server uses.

They keep to what both have (no lookahead or lookbehind, no back references), and are anchored with ^ and $; Python's
`$` would also match before a last newline, so a value with one is refused here as RE2 refuses it.
"""

from __future__ import annotations

import re
from functools import cache


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def matches(pattern: str, value: str) -> bool:
    """Whether an anchored pattern matches, newline at the end not forgiven."""
    return not value.endswith("\n") and _compiled(pattern).search(value) is not None

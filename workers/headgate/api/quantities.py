"""Sizes in bytes as Kubernetes writes them: `512`, `256Ki`, `1Mi`, `64M`.

Like a Duration, a Size keeps how it was written and compares by value. Only whole numbers and the suffixes people use
for memory: a size is never milli-bytes, and never so great that a signed 64-bit number could not hold it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from headgate.api.written import UnitValue

PATTERN: Final = r"^[0-9]{1,9}(k|M|G|Ki|Mi|Gi)?$"
LENGTH_MAX: Final = 11
RULE_TEXT: Final = "must be a size such as 256Ki, 1Mi or 64M"

_SUFFIXES: Final = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
_SHAPE: Final = re.compile(PATTERN)


def parse_size_bytes(text: object) -> int | None:
    """The bytes of a written size, or None where it is not one."""
    if not isinstance(text, str) or "\n" in text or _SHAPE.match(text) is None:
        return None
    digits = text.rstrip("kKMGi")
    return int(digits) * _SUFFIXES[text[len(digits) :]]


class Size(UnitValue):
    """A number of bytes."""

    __slots__ = ()

    message = RULE_TEXT
    json_schema: ClassVar[dict[str, Any]] = {"minLength": 1, "maxLength": LENGTH_MAX, "pattern": PATTERN}

    @classmethod
    def parse(cls, text: object) -> int | None:
        return parse_size_bytes(text)

    @property
    def bytes(self) -> int:
        return self.number

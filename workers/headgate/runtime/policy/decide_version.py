"""Whether a worker may run under an operator of another version. Pure.

The operator chooses the worker's options and reads its reports, so it has to know them. A worker has its major
version, is at most two minor versions older, and is never newer. A Python handler's image contains its own worker,
and is often rebuilt later than the operator is upgraded; hence the two.
"""

from __future__ import annotations

import re

OLDER_MAX = 2
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:[.\-+a-z].*)?", re.DOTALL)


def decide_version_problem(own: str, operators: str) -> str | None:
    """The reason and the remedy; None where the versions fit. A version that cannot be parsed fits nothing."""
    worker, operator = _parts(own), _parts(operators)
    if worker is None or operator is None:
        return f"{own if worker is None else operators!r} is not a version: install headgate as a distribution"
    if worker > operator:
        return "upgrade the operator first, or build the image with the operator's version"
    if worker[0] != operator[0] or operator[1] - worker[1] > OLDER_MAX:
        return "build the image again with the operator's version"
    return None


def _parts(version: str) -> tuple[int, int] | None:
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2])) if match else None

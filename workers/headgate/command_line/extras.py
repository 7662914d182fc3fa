"""Refuses a command in one line where the libraries of its extra are not installed.

A plain install brings every console script, and an extra brings what a part of them needs beyond it.
"""

from __future__ import annotations

from importlib.util import find_spec

from headgate.errors import EnvironmentProblem

EXTRAS = {
    "worker": ("aiohttp", "prometheus_client"),
    "operator": ("aiohttp", "kopf", "kubernetes", "prometheus_client"),
}
"""The import names of each extra's libraries."""


class ExtraMissing(EnvironmentProblem):
    """Libraries of an extra are not installed."""


def require_extra(extra: str, *, component: str) -> None:
    """Raise ExtraMissing, with the command that installs them, if any is missing."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise ExtraMissing(
            f"{component} needs libraries that are not installed",
            missing=", ".join(missing),
            remedy=f"install headgate[{extra}]",
        )

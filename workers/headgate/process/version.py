"""The version of Headgate that this process runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def read_version() -> str:
    """As installed; `unknown` where it is not installed as a distribution."""
    try:
        return version("headgate")
    except PackageNotFoundError:
        return "unknown"

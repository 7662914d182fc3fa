"""The way into a cluster, as whoever else needs it is told: a value, which knows no client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Access:
    """Where the API server is, and as whom it is asked."""

    server: str
    authority: str | None = None
    """A file with the certificates that are trusted."""
    certificate: str | None = None
    private_key: str | None = None
    token: str | None = None
    is_insecure: bool = False
    proxy: str | None = None
    """By which it is reached, if not straight."""

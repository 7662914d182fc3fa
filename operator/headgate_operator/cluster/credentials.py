"""The way into a cluster, as a value for other components: it knows no client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Access:
    """The address of the API server, and the identity of requests."""

    server: str
    authority: str | None = None
    """A file with the certificates that are trusted."""
    certificate: str | None = None
    private_key: str | None = None
    token: str | None = None
    is_insecure: bool = False
    proxy: str | None = None
    """By which it is reached, if not straight."""

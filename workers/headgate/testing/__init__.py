"""For the tests of applications: SDK and workers in virtual time, without a server (docs/testing.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.testing.environment import DeadMessage, Environment, NotDrained
    from headgate.testing.worker import AttemptOutcome, EnvironmentWorker, HandlerAttempt

__all__ = ["AttemptOutcome", "DeadMessage", "Environment", "EnvironmentWorker", "HandlerAttempt", "NotDrained"]


def __getattr__(name: str) -> Any:
    """On first use: pytest imports this package at every start, for the plugin."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headgate.testing import environment, worker

    return getattr(environment if hasattr(environment, name) else worker, name)

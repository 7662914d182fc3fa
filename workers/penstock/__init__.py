"""The data plane and the SDK: queues and counters on Cassandra.

    async with penstock.connect() as p:
        q = await p.queue("shop/emails")
        await q.put({"to": "you"})
        views = await p.counter("shop/page-views")
        await views.add("home", 1)

What is named here is imported when it is first used, so that `import penstock` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import settle
    from penstock.client.blocking import SyncMessage, SyncPenstock, SyncQueue, connect_sync
    from penstock.client.blocking_counter import SyncCounter
    from penstock.client.connection import Penstock, connect
    from penstock.client.counter import Counter
    from penstock.client.message import Message
    from penstock.client.outgoing import Put
    from penstock.client.queue import Queue
    from penstock.engines.contract import Settled, StaleReceipt
    from penstock.errors import Bug, Conflict, PenstockError, Refused, SpecError, Surroundings, Unavailable
    from penstock.runtime.context import Context
    from penstock.runtime.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
    from penstock.runtime.handlers import handler
    from penstock.store.store import Unknown

_WHERE = {
    "Backoff": "penstock.runtime.decide_retry",
    "Bug": "penstock.errors",
    "Conflict": "penstock.errors",
    "Context": "penstock.runtime.context",
    "Counter": "penstock.client.counter",
    "Message": "penstock.client.message",
    "Penstock": "penstock.client.connection",
    "PenstockError": "penstock.errors",
    "Put": "penstock.client.outgoing",
    "Queue": "penstock.client.queue",
    "REJECT": "penstock.runtime.decide_retry",
    "Refused": "penstock.errors",
    "Reject": "penstock.runtime.decide_retry",
    "Retry": "penstock.runtime.decide_retry",
    "RetryPolicy": "penstock.runtime.decide_retry",
    "Settled": "penstock.engines.contract",
    "SpecError": "penstock.errors",
    "StaleReceipt": "penstock.engines.contract",
    "Surroundings": "penstock.errors",
    "SyncCounter": "penstock.client.blocking_counter",
    "SyncMessage": "penstock.client.blocking",
    "SyncPenstock": "penstock.client.blocking",
    "SyncQueue": "penstock.client.blocking",
    "Unavailable": "penstock.errors",
    "Unknown": "penstock.store.store",
    "connect": "penstock.client.connection",
    "connect_sync": "penstock.client.blocking",
    "handler": "penstock.runtime.handlers",
}

__all__ = [
    "REJECT",
    "Backoff",
    "Bug",
    "Conflict",
    "Context",
    "Counter",
    "Message",
    "Penstock",
    "PenstockError",
    "Put",
    "Queue",
    "Refused",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Settled",
    "SpecError",
    "StaleReceipt",
    "Surroundings",
    "SyncCounter",
    "SyncMessage",
    "SyncPenstock",
    "SyncQueue",
    "Unavailable",
    "Unknown",
    "connect",
    "connect_sync",
    "handler",
    "settle",
]


def __getattr__(name: str) -> Any:
    if name == "settle":
        return import_module("penstock.settle")
    if name not in _WHERE:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

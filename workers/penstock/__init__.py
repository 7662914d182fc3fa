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
    from penstock.client.background import WaitsForItself
    from penstock.client.blocking import SyncMessage, SyncPenstock, SyncQueue, connect_sync
    from penstock.client.blocking_counter import SyncCounter
    from penstock.client.connection import NotConnected, Penstock, connect
    from penstock.client.counter import Counter, TypesDiffer
    from penstock.client.counters import CounterDeleted, CounterMadeAgain, CounterNotReady, CounterUnknown
    from penstock.client.directory import EngineNotCarried, QueueDeleted, QueueMadeAgain, QueueNotReady, QueueUnknown
    from penstock.client.freshness import CatalogueUnreadable
    from penstock.client.message import Message
    from penstock.client.outgoing import Put
    from penstock.client.payloads import PayloadUnfit, PayloadUnreadable
    from penstock.client.queue import ConnectionClosed, ConnectionOfAnotherLoop, ConnectionOfAnotherProcess, Queue
    from penstock.counters.decide_tokens import TokenAhead, TokenInvalid, TokenTooOld
    from penstock.counters.mutator import KeyInvalid, MutatorClosed, NotSent, StateTooLarge, TooManyWait
    from penstock.counters.reading import ReadTooSlow
    from penstock.counters.types.contract import QuestionInvalid, StateFull, StateUnreadable, UpdateInvalid
    from penstock.counters.types.registry import TypeUnknown
    from penstock.counters.types.sketches import SketchesMissing
    from penstock.engines.contract import Settled, StaleReceipt
    from penstock.engines.timeline.batched import BatchTooLate
    from penstock.errors import Bug, Conflict, PenstockError, Refused, SpecError, Surroundings, Unavailable
    from penstock.runtime.context import Context
    from penstock.runtime.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
    from penstock.runtime.handlers import handler
    from penstock.store.cassandra_batches import BatchUnfit
    from penstock.store.clocks import ClockNotTrusted
    from penstock.store.store import NotEnoughReplicas, Overloaded, Unknown

_NAMES = {
    "penstock.client.background": "WaitsForItself",
    "penstock.client.blocking": "SyncMessage SyncPenstock SyncQueue connect_sync",
    "penstock.client.blocking_counter": "SyncCounter",
    "penstock.client.connection": "NotConnected Penstock connect",
    "penstock.client.counter": "Counter TypesDiffer",
    "penstock.client.counters": "CounterDeleted CounterMadeAgain CounterNotReady CounterUnknown",
    "penstock.client.directory": "EngineNotCarried QueueDeleted QueueMadeAgain QueueNotReady QueueUnknown",
    "penstock.client.freshness": "CatalogueUnreadable",
    "penstock.client.message": "Message",
    "penstock.client.outgoing": "Put",
    "penstock.client.payloads": "PayloadUnfit PayloadUnreadable",
    "penstock.client.queue": "ConnectionClosed ConnectionOfAnotherLoop ConnectionOfAnotherProcess Queue",
    "penstock.counters.decide_tokens": "TokenAhead TokenInvalid TokenTooOld",
    "penstock.counters.mutator": "KeyInvalid MutatorClosed NotSent StateTooLarge TooManyWait",
    "penstock.counters.reading": "ReadTooSlow",
    "penstock.counters.types.contract": "QuestionInvalid StateFull StateUnreadable UpdateInvalid",
    "penstock.counters.types.registry": "TypeUnknown",
    "penstock.counters.types.sketches": "SketchesMissing",
    "penstock.engines.contract": "Settled StaleReceipt",
    "penstock.engines.timeline.batched": "BatchTooLate",
    "penstock.errors": "Bug Conflict PenstockError Refused SpecError Surroundings Unavailable",
    "penstock.runtime.context": "Context",
    "penstock.runtime.decide_retry": "REJECT Backoff Reject Retry RetryPolicy",
    "penstock.runtime.handlers": "handler",
    "penstock.store.cassandra_batches": "BatchUnfit",
    "penstock.store.clocks": "ClockNotTrusted",
    "penstock.store.store": "NotEnoughReplicas Overloaded Unknown",
}
"""What each module gives to this one."""

_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "REJECT",
    "Backoff",
    "BatchTooLate",
    "BatchUnfit",
    "Bug",
    "CatalogueUnreadable",
    "ClockNotTrusted",
    "Conflict",
    "ConnectionClosed",
    "ConnectionOfAnotherLoop",
    "ConnectionOfAnotherProcess",
    "Context",
    "Counter",
    "CounterDeleted",
    "CounterMadeAgain",
    "CounterNotReady",
    "CounterUnknown",
    "EngineNotCarried",
    "KeyInvalid",
    "Message",
    "MutatorClosed",
    "NotConnected",
    "NotEnoughReplicas",
    "NotSent",
    "Overloaded",
    "PayloadUnfit",
    "PayloadUnreadable",
    "Penstock",
    "PenstockError",
    "Put",
    "QuestionInvalid",
    "Queue",
    "QueueDeleted",
    "QueueMadeAgain",
    "QueueNotReady",
    "QueueUnknown",
    "ReadTooSlow",
    "Refused",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Settled",
    "SketchesMissing",
    "SpecError",
    "StaleReceipt",
    "StateFull",
    "StateTooLarge",
    "StateUnreadable",
    "Surroundings",
    "SyncCounter",
    "SyncMessage",
    "SyncPenstock",
    "SyncQueue",
    "TokenAhead",
    "TokenInvalid",
    "TokenTooOld",
    "TooManyWait",
    "TypeUnknown",
    "TypesDiffer",
    "Unavailable",
    "Unknown",
    "UpdateInvalid",
    "WaitsForItself",
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

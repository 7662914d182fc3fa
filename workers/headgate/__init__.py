"""The data plane and the SDK: queues and counters on Cassandra.

    async with headgate.connect() as p:
        q = await p.queue("shop/emails")
        await q.put({"to": "you"})
        views = await p.counter("shop/page-views")
        await views.add("home", 1)

Each name is imported on its first use, so that `import headgate` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate import settle
    from headgate.applying.call import ApplyOutcome, ApplyReport, ApplyResult, apply, apply_sync
    from headgate.client.catalogue.application_batch import BatchPut
    from headgate.client.catalogue.opened import ConnectionClosed, WrongEventLoop, WrongProcess
    from headgate.client.catalogue.queue_record import (
        QueueDeleted,
        QueueNotFound,
        QueueNotReady,
        QueueRecreated,
    )
    from headgate.client.connection import Headgate, NotConnected, connect
    from headgate.client.counter import CachedValue, Counter, CounterState, TypesDiffer
    from headgate.client.counters import CounterDeleted, CounterNotFound, CounterNotReady, CounterRecreated
    from headgate.client.message import Message, Received
    from headgate.client.model.outgoing import Put
    from headgate.client.model.payloads import PayloadUnfit, PayloadUnreadable
    from headgate.client.model.values import (
        CollectReport,
        LaneStatus,
        MessageStatus,
        PeekedMessage,
        QueueStats,
        QueueSummary,
        RepairProgress,
        RepairReport,
        RescheduleOutcome,
        RescheduleResult,
    )
    from headgate.client.put_many import PutFailure, PutManyFailed, PutResult
    from headgate.client.queue import Queue
    from headgate.client.queues import CatalogueUnreadable
    from headgate.client.redriving import RedriveResult, SkippedMessage, SkipReason
    from headgate.client.sync.background import WouldDeadlock
    from headgate.client.sync.blocking import (
        SyncBatchPut,
        SyncCounter,
        SyncHeadgate,
        SyncMessage,
        SyncQueue,
        connect_sync,
    )
    from headgate.counters.model.decide_tokens import TokenAhead, TokenInvalid, TokenTooOld
    from headgate.counters.read.reading import ReadTooSlow
    from headgate.counters.types.contract import QuestionInvalid, StateFull, StateUnreadable, UpdateInvalid
    from headgate.counters.types.registry import TypeUnknown
    from headgate.counters.types.sketches import SketchesMissing
    from headgate.counters.write.mutator import KeyInvalid, MutatorClosed, StateTooLarge, TooManyWait
    from headgate.engines.contract import BatchTooLate, MessageState, PassEnd, Settled, StaleReceipt, Visibility
    from headgate.engines.registry import EngineNotSupported
    from headgate.errors import (
        Bug,
        Conflict,
        EnvironmentProblem,
        HeadgateError,
        InvalidRequest,
        NotFound,
        OperationRefused,
        Unavailable,
    )
    from headgate.runtime.handler.context import Context
    from headgate.runtime.handler.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
    from headgate.runtime.handler.handlers import handler
    from headgate.store.cassandra.batches import BatchUnfit
    from headgate.store.clock.clock import ClockNotTrusted
    from headgate.store.schema import SchemaRightsMissing
    from headgate.store.store import NotEnoughReplicas, NotSent, OutcomeUnknown, Overloaded

_NAMES = {
    "headgate.applying.call": "ApplyOutcome ApplyReport ApplyResult apply apply_sync",
    "headgate.client.sync.background": "WouldDeadlock",
    "headgate.client.catalogue.application_batch": "BatchPut",
    "headgate.client.sync.blocking": "SyncBatchPut SyncCounter SyncHeadgate SyncMessage SyncQueue connect_sync",
    "headgate.client.connection": "NotConnected Headgate connect",
    "headgate.client.counter": "CachedValue Counter CounterState TypesDiffer",
    "headgate.client.counters": "CounterDeleted CounterRecreated CounterNotReady CounterNotFound",
    "headgate.client.catalogue.queue_record": "QueueDeleted QueueRecreated QueueNotReady QueueNotFound",
    "headgate.client.queues": "CatalogueUnreadable",
    "headgate.client.message": "Message Received",
    "headgate.client.model.outgoing": "Put",
    "headgate.client.model.payloads": "PayloadUnfit PayloadUnreadable",
    "headgate.client.put_many": "PutFailure PutManyFailed PutResult",
    "headgate.client.catalogue.opened": "ConnectionClosed WrongEventLoop WrongProcess",
    "headgate.client.queue": "Queue",
    "headgate.client.redriving": "RedriveResult SkippedMessage SkipReason",
    "headgate.client.model.values": (
        "CollectReport LaneStatus MessageStatus PeekedMessage QueueStats QueueSummary RepairReport "
        "RepairProgress RescheduleOutcome RescheduleResult"
    ),
    "headgate.counters.model.decide_tokens": "TokenAhead TokenInvalid TokenTooOld",
    "headgate.counters.write.mutator": "KeyInvalid MutatorClosed StateTooLarge TooManyWait",
    "headgate.counters.read.reading": "ReadTooSlow",
    "headgate.counters.types.contract": "QuestionInvalid StateFull StateUnreadable UpdateInvalid",
    "headgate.counters.types.registry": "TypeUnknown",
    "headgate.counters.types.sketches": "SketchesMissing",
    "headgate.engines.contract": "BatchTooLate MessageState PassEnd Settled StaleReceipt Visibility",
    "headgate.engines.registry": "EngineNotSupported",
    "headgate.errors": (
        "Bug Conflict EnvironmentProblem HeadgateError InvalidRequest NotFound OperationRefused Unavailable"
    ),
    "headgate.runtime.handler.context": "Context",
    "headgate.runtime.handler.decide_retry": "REJECT Backoff Reject Retry RetryPolicy",
    "headgate.runtime.handler.handlers": "handler",
    "headgate.store.cassandra.batches": "BatchUnfit",
    "headgate.store.clock.clock": "ClockNotTrusted",
    "headgate.store.schema": "SchemaRightsMissing",
    "headgate.store.store": "NotEnoughReplicas NotSent Overloaded OutcomeUnknown",
}
"""The names that each module contributes to this one."""

_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "REJECT",
    "ApplyOutcome",
    "ApplyReport",
    "ApplyResult",
    "Backoff",
    "BatchPut",
    "BatchTooLate",
    "BatchUnfit",
    "Bug",
    "CachedValue",
    "CatalogueUnreadable",
    "ClockNotTrusted",
    "CollectReport",
    "Conflict",
    "ConnectionClosed",
    "Context",
    "Counter",
    "CounterDeleted",
    "CounterNotFound",
    "CounterNotReady",
    "CounterRecreated",
    "CounterState",
    "EngineNotSupported",
    "EnvironmentProblem",
    "Headgate",
    "HeadgateError",
    "InvalidRequest",
    "KeyInvalid",
    "LaneStatus",
    "Message",
    "MessageState",
    "MessageStatus",
    "MutatorClosed",
    "NotConnected",
    "NotEnoughReplicas",
    "NotFound",
    "NotSent",
    "OperationRefused",
    "OutcomeUnknown",
    "Overloaded",
    "PassEnd",
    "PayloadUnfit",
    "PayloadUnreadable",
    "PeekedMessage",
    "Put",
    "PutFailure",
    "PutManyFailed",
    "PutResult",
    "QuestionInvalid",
    "Queue",
    "QueueDeleted",
    "QueueNotFound",
    "QueueNotReady",
    "QueueRecreated",
    "QueueStats",
    "QueueSummary",
    "ReadTooSlow",
    "Received",
    "RedriveResult",
    "Reject",
    "RepairProgress",
    "RepairReport",
    "RescheduleOutcome",
    "RescheduleResult",
    "Retry",
    "RetryPolicy",
    "SchemaRightsMissing",
    "Settled",
    "SketchesMissing",
    "SkipReason",
    "SkippedMessage",
    "StaleReceipt",
    "StateFull",
    "StateTooLarge",
    "StateUnreadable",
    "SyncBatchPut",
    "SyncCounter",
    "SyncHeadgate",
    "SyncMessage",
    "SyncQueue",
    "TokenAhead",
    "TokenInvalid",
    "TokenTooOld",
    "TooManyWait",
    "TypeUnknown",
    "TypesDiffer",
    "Unavailable",
    "UpdateInvalid",
    "Visibility",
    "WouldDeadlock",
    "WrongEventLoop",
    "WrongProcess",
    "apply",
    "apply_sync",
    "connect",
    "connect_sync",
    "handler",
    "settle",
]


def __getattr__(name: str) -> Any:
    if name == "settle":
        return import_module("headgate.settle")
    if name not in _WHERE:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Translates the driver's errors to the promises of the store: nothing was done, the outcome is unknown, or it can
never succeed.

`NotEnoughReplicas` and `Overloaded` promise that nothing was done, so they are given only where the server's own code
shows it (Cassandra 5.0):

- Unavailable is detected before anything is sent for a single mutation and for a logged batch; an unlogged batch of
  several partitions detects it in the middle; an LWT can detect it when it commits a proposal already accepted.
- Overloaded is raised per mutation too, and no timeout of any kind determines the outcome of the write.
- NoHostAvailable means that no request left this process, since a request is never sent to a second node.

An OperationRefused will be rejected again; an EnvironmentProblem is a missing schema or permission.
"""

from __future__ import annotations

from typing import TypeAlias

import cassandra
from cassandra import OperationTimedOut, ReadFailure, ReadTimeout, WriteFailure, WriteTimeout, WriteType
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage

from headgate.errors import EnvironmentProblem, HeadgateError, OperationRefused
from headgate.store.cassandra.driver import driver
from headgate.store.model.statements import (
    Batch,
    BatchIf,
    InsertIfAbsent,
    Scan,
    Select,
    Statement,
    UpdateIf,
    partition_of,
)
from headgate.store.store import NotEnoughReplicas, OutcomeUnknown, Overloaded, StatementFailed

PROTOCOL_ERROR = 0x000A
OVERLOADED = 0x1001
BOOTSTRAPPING = 0x1002
CAS_WRITE_UNKNOWN = 0x1700
SYNTAX = 0x2000

_REASONS_THAT_STAY = {1: "too many tombstones", 4: "a result too large for the server"}
"""Why a replica refused to read, where another try meets the same."""

_MISSING = ("unconfigured table", "does not exist", "undefined column name", "unknown identifier", "keyspace")
_TOO_LARGE = ("too large", "oversized", "exceeds", "too big", "max value size")

About: TypeAlias = Statement | str
"""A statement, or a short text for any other request."""


class TooLarge(OperationRefused):
    """Larger than the server takes."""


class NotAllowed(OperationRefused):
    """Cassandra's role may not do this."""


def translate(error: BaseException, statement: About) -> BaseException:
    """Our error for the statement's outcome."""
    if isinstance(error, HeadgateError):
        return error
    table, detail = _table_of(statement), _detail_of(error)
    match error:
        case driver.NoHostAvailable():
            return _of_no_host(error, table)
        case cassandra.Unavailable():
            short = NotEnoughReplicas(alive=error.alive_replicas, required=error.required_replicas, table=table)
            return _undone(short, statement)
        case WriteTimeout() | ReadTimeout() | WriteFailure() | ReadFailure():
            return _of_replicas(error, statement)
        case OperationTimedOut():
            return OutcomeUnknown("No answer in time", coordinator=error.last_host, table=table)
        case ConnectionException():
            return OutcomeUnknown("The connection broke before the answer", table=table, cause=error)
        case cassandra.Unauthorized() if "consistency level" in detail:
            return NotEnoughReplicas("Too few replicas know the permissions of the role", cause=detail)
        case cassandra.Unauthorized():
            remedy = "grant it to the role (headgate apply --dry-run prints the statements)"
            return NotAllowed(remedy=remedy, cause=detail)
        case cassandra.InvalidRequest():
            return _of_invalid(detail, table)
        case ErrorMessage():
            return _of_code(error.code, detail, statement)
        case cassandra.RequestExecutionException():
            return OutcomeUnknown("The server failed", table=table, cause=detail)
    return StatementFailed("The driver failed", table=table, cause=f"{type(error).__name__}: {error}")


def of_prepare(error: BaseException, statement: About) -> BaseException:
    """Nothing was done when the statement could not even be prepared."""
    translated = translate(error, statement)
    if isinstance(translated, OutcomeUnknown):
        return NotEnoughReplicas("The statement could not be prepared in time", last=translated)
    return translated


def _table_of(statement: About) -> str:
    if isinstance(statement, str):
        return statement
    first = statement.statements[0] if isinstance(statement, (Batch, BatchIf)) else statement
    return first.shape.table.name


def _undone(translated: NotEnoughReplicas | Overloaded, statement: About) -> HeadgateError:
    """The same, or Unknown where a part may have been done before it was detected."""
    in_parts = isinstance(statement, (InsertIfAbsent, UpdateIf, BatchIf))
    if isinstance(statement, Batch):
        partitions = {(part.shape.table.name, partition_of(part)) for part in statement.statements}
        in_parts = len(partitions) > 1 and (not statement.logged or isinstance(translated, Overloaded))
    if in_parts:
        unknown = OutcomeUnknown(translated.message)
        unknown.facts = translated.facts
        return unknown
    return translated


def _of_no_host(error: driver.NoHostAvailable, table: str) -> HeadgateError:
    errors = list(error.errors.values()) if isinstance(error.errors, dict) else []
    if any(isinstance(each, OperationTimedOut) for each in errors):
        return OutcomeUnknown("No answer in time", table=table)
    if errors and all(isinstance(each, (NoConnectionsAvailable, ConnectionBusy)) for each in errors):
        return Overloaded("All connections are full", table=table)
    ours = next((each for each in errors if not isinstance(each, (OSError, driver.DriverException))), None)
    if ours is not None and not isinstance(ours, ConnectionException):
        return StatementFailed("A request could not be encoded", table=table, cause=f"{type(ours).__name__}: {ours}")
    return NotEnoughReplicas("No node of the home data centre can be reached", table=table)


def _of_replicas(error: WriteTimeout | ReadTimeout | WriteFailure | ReadFailure, statement: About) -> HeadgateError:
    reasons = getattr(error, "error_code_map", None) or {}
    lasting = next((text for code, text in _REASONS_THAT_STAY.items() if code in reasons.values()), None)
    if lasting is not None and isinstance(statement, (Select, Scan)):
        return OperationRefused("Replicas reject this read", reason=lasting, table=_table_of(statement))
    return OutcomeUnknown(
        "too few replicas answered in time" if isinstance(error, (WriteTimeout, ReadTimeout)) else "replicas failed",
        answered=error.received_responses,
        required=error.required_responses,
        kind=WriteType.value_to_name.get(getattr(error, "write_type", None), "READ"),
        table=_table_of(statement),
    )


def _of_invalid(detail: str, table: str) -> HeadgateError:
    lower = detail.lower()
    if "expiration date" in lower:
        return OperationRefused(
            "The time to live ends after the last time that this server can store",
            remedy="use a shorter one, or set storage_compatibility_mode to NONE on every node",
            table=table,
        )
    if "minimum_timestamp" in lower:
        return OperationRefused(
            "A guardrail of this server refuses the write timestamps of Headgate's index",
            remedy="unset minimum_timestamp_fail_threshold on every node",
            table=table,
            cause=detail,
        )
    if any(sign in lower for sign in _TOO_LARGE):
        return too_large(detail, table)
    if any(sign in lower for sign in _MISSING):
        return EnvironmentProblem(
            "The table in Cassandra differs from its expected schema",
            remedy="create or repair the tables with `headgate apply`",
            table=table,
            cause=detail,
        )
    return StatementFailed("Cassandra rejects this statement as invalid", table=table, cause=detail)


def too_large(detail: str, statement: About) -> TooLarge:
    """The part that was too large, and the remedy."""
    if "batch" in detail.lower():
        message = "The batch is larger than the server accepts"
        remedy = "send less at once, one partition per batch, or raise batch_size_fail_threshold"
    else:
        message = "The write is larger than the server accepts"
        remedy = "send less at once: commitlog_segment_size and native_transport_max_message_size limit it"
    return TooLarge(message, remedy=remedy, table=_table_of(statement), cause=detail)


def _of_code(code: int, detail: str, statement: About) -> HeadgateError:
    table = _table_of(statement)
    if code in (OVERLOADED, BOOTSTRAPPING):
        return _undone(Overloaded(cause=detail, table=table), statement)
    if code == CAS_WRITE_UNKNOWN:
        return OutcomeUnknown("The server does not know whether its own LWT was applied", table=table)
    if code == PROTOCOL_ERROR and any(sign in detail.lower() for sign in _TOO_LARGE):
        return too_large(detail, table)
    if code in (PROTOCOL_ERROR, SYNTAX):
        return StatementFailed("Cassandra does not understand this", table=table, cause=detail)
    return OutcomeUnknown("The server failed", table=table, cause=detail, code=f"0x{code:04x}")


def _detail_of(error: BaseException) -> str:
    """The server's own message, without the driver's frame around it."""
    text = str(getattr(error, "message", None) or error)
    start = text.find('message="')
    return text[start + len('message="') :].rstrip('">') if start >= 0 else text

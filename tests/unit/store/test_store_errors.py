"""The driver's exceptions become the store's promised errors; an unknown outcome is never taken for undone."""

from __future__ import annotations

from uuid import uuid4

import cassandra
import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadFailure, ReadTimeout, WriteFailure, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, ServerError

from headgate.errors import EnvironmentProblem, HeadgateError, OperationRefused
from headgate.store.cassandra.errors import CAS_WRITE_UNKNOWN, NotAllowed, TooLarge, of_prepare, translate
from headgate.store.model.statements import Batch, BatchIf, Insert, InsertIfAbsent, Select, Statement, UpdateIf, is_
from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Type
from headgate.store.store import NotEnoughReplicas, OutcomeUnknown, Overloaded, StatementFailed

LOG = Table("log", "", (Column("p", Type.INT),), (), (Column("v", Type.TEXT),))
LANES = Table(
    "lanes",
    "",
    (Column("p", Type.INT),),
    (),
    (Column("n", Type.INT, WrittenBy.LWT), Column("attempt", Type.UUID, WrittenBy.LWT)),
    rows=WrittenBy.LWT,
    attempt="attempt",
)


def _write(p: int) -> Insert:
    return Insert(LOG, {"p": p, "v": "x"}, timestamp_us=1)


ME = uuid4()
WRITE, READ = _write(1), Select(LOG, {"p": 1})
CHANGE = UpdateIf(LANES, {"p": 1}, {"n": 1}, is_("n", None), attempt=ME)
MAKE = InsertIfAbsent(LANES, {"p": 1}, attempt=ME)
ONE_PARTITION = Batch([_write(1), _write(1)])
SEVERAL = Batch([_write(1), _write(2)])
LOGGED = Batch([_write(1), _write(2)], logged=True)
LEVEL = ConsistencyLevel.LOCAL_QUORUM
NOT_ALIVE = cassandra.Unavailable("few", LEVEL, 2, 1)
OVERLOADED = OverloadedErrorMessage(0x1001, "too much", None)


@pytest.mark.parametrize(
    ("error", "statement", "wanted"),
    [
        (NOT_ALIVE, WRITE, NotEnoughReplicas),
        (NOT_ALIVE, READ, NotEnoughReplicas),
        (NOT_ALIVE, ONE_PARTITION, NotEnoughReplicas),
        (NOT_ALIVE, LOGGED, NotEnoughReplicas),
        (NOT_ALIVE, SEVERAL, OutcomeUnknown),
        (NOT_ALIVE, CHANGE, OutcomeUnknown),
        (NOT_ALIVE, MAKE, OutcomeUnknown),
        (NOT_ALIVE, BatchIf([CHANGE]), OutcomeUnknown),
        (OVERLOADED, WRITE, Overloaded),
        (OVERLOADED, ONE_PARTITION, Overloaded),
        (OVERLOADED, SEVERAL, OutcomeUnknown),
        (OVERLOADED, LOGGED, OutcomeUnknown),
        (OVERLOADED, CHANGE, OutcomeUnknown),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_undone_is_reported_only_where_nothing_can_have_been_done(
    error: BaseException, statement: Statement, wanted: type[HeadgateError]
) -> None:
    assert wanted is type(translate(error, statement))


WRITE_TYPES = ("SIMPLE", "BATCH", "UNLOGGED_BATCH", "BATCH_LOG", "CAS", "COUNTER", "VIEW", "CDC")


@pytest.mark.parametrize("kind", WRITE_TYPES)
@pytest.mark.parametrize("statement", [WRITE, LOGGED, CHANGE], ids=["write", "batch", "lwt"])
def test_a_write_that_timed_out_is_unknown_whatever_its_type(kind: str, statement: Statement) -> None:
    number = getattr(cassandra.WriteType, kind)
    timed_out = WriteTimeout("late", write_type=number, consistency=LEVEL, required_responses=2, received_responses=1)
    failed = WriteFailure(
        "failed", write_type=number, consistency=LEVEL, required_responses=2, received_responses=1, failures=1
    )
    for error in (timed_out, failed):
        result = translate(error, statement)
        assert isinstance(result, OutcomeUnknown)
        assert (kind, 1, 2) == (result.facts["kind"], result.facts["answered"], result.facts["required"])


@pytest.mark.parametrize(
    "error",
    [
        OperationTimedOut({"host": "late"}, "host"),
        ConnectionShutdown("closed"),
        ConnectionException("broken"),
        ErrorMessage(CAS_WRITE_UNKNOWN, "unknown", None),
        ServerError(0, "java.lang.NullPointerException", None),
        ReadTimeout("late", data_retrieved=False, consistency=LEVEL, required_responses=2, received_responses=1),
        NoHostAvailable("none", {"host": OperationTimedOut({}, "host")}),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("statement", [WRITE, READ, CHANGE], ids=["write", "read", "lwt"])
def test_what_was_sent_and_not_answered_is_unknown(error: BaseException, statement: Statement) -> None:
    assert OutcomeUnknown is type(translate(error, statement))


@pytest.mark.parametrize("statement", [WRITE, READ, SEVERAL, CHANGE], ids=["write", "read", "batch", "lwt"])
def test_what_never_left_this_process_is_known_to_be_undone(statement: Statement) -> None:
    unreachable = NoHostAvailable("none", {"a": ConnectionRefusedError(), "b": ConnectionException("down")})
    assert NotEnoughReplicas is type(translate(unreachable, statement))
    assert NotEnoughReplicas is type(translate(NoHostAvailable("none", {}), statement))
    full = NoHostAvailable("none", {"a": NoConnectionsAvailable("full"), "b": ConnectionBusy("full")})
    assert Overloaded is type(translate(full, statement))


def test_a_request_that_could_not_be_encoded_is_our_own_fault() -> None:
    assert StatementFailed is type(translate(NoHostAvailable("none", {"a": TypeError("not bytes")}), WRITE))


def test_a_statement_that_could_not_be_prepared_in_time_was_not_run() -> None:
    assert NotEnoughReplicas is type(of_prepare(OperationTimedOut({}, "host"), CHANGE))
    assert EnvironmentProblem is type(of_prepare(cassandra.InvalidRequest("table log does not exist"), CHANGE))


def test_a_read_over_too_many_tombstones_is_refused_and_not_tried_again() -> None:
    error = ReadFailure(
        "failed",
        data_retrieved=False,
        consistency=LEVEL,
        required_responses=2,
        received_responses=0,
        failures=2,
        error_code_map={"10.0.0.1": 1, "10.0.0.2": 1},
    )
    result = translate(error, READ)
    assert isinstance(result, OperationRefused)
    assert "too many tombstones" in str(result)
    assert isinstance(translate(error, CHANGE), OutcomeUnknown)


def _invalid(message: str) -> BaseException:
    return cassandra.InvalidRequest(f'Error from server: code=2200 [Invalid query] message="{message}"')


@pytest.mark.parametrize(
    ("error", "wanted", "words"),
    [
        (_invalid("Batch too large"), TooLarge, "The batch is larger than the server accepts"),
        (
            _invalid("CQL Message of 20 bytes exceeds allowed maximum of 10 bytes"),
            TooLarge,
            "The write is larger",
        ),
        (_invalid("Rejected an oversized mutation (20/10) for keyspace: k"), TooLarge, "The write is larger"),
        (
            _invalid("table log does not exist"),
            EnvironmentProblem,
            "create or repair the tables with `headgate apply`",
        ),
        (_invalid("Undefined column name v in table k.log"), EnvironmentProblem, "`headgate apply`"),
        (
            _invalid("Request with ttl of 630720000 seconds exceeds maximum supported expiration date"),
            OperationRefused,
            "The time to live ends after",
        ),
        (
            _invalid(
                "Guardrail minimum_timestamp violated: The modification to table t has a timestamp 1209600 before"
            ),
            OperationRefused,
            "unset minimum_timestamp_fail_threshold",
        ),
        (_invalid("something else"), StatementFailed, "Cassandra rejects this statement as invalid"),
        (ErrorMessage(0x2000, "line 1:0 no viable alternative", None), StatementFailed, "does not understand"),
        (cassandra.Unauthorized("User a has no MODIFY permission on <table k.log>"), NotAllowed, "MODIFY permission"),
        (
            cassandra.Unauthorized("Unable to perform authorization: Cannot achieve consistency level QUORUM"),
            NotEnoughReplicas,
            "Too few replicas know the permissions",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_will_be_refused_again_gives_the_reason_and_what_to_do(
    error: BaseException, wanted: type[HeadgateError], words: str
) -> None:
    result = translate(error, WRITE)
    assert wanted is type(result)
    assert words in str(result)
    assert "\n" not in str(result)

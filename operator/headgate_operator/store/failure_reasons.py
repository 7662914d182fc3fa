"""Failures of Cassandra, as the reason of a condition and a message for its author. Pure."""

from __future__ import annotations

from headgate.api.read.parse import ResourceInvalid
from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import StorageElsewhere, TooManyTables
from headgate.errors import Conflict, EnvironmentProblem, HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.store.cassandra.settings import InvalidConnectionSettings
from headgate.store.catalogue.entry import OwnedByAnother, WrongDataCenter
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.schema import KeyspaceUnfit, RightsMissing, SchemaRightsMissing
from headgate_operator.model.world import ResourceFailure

_REASONS: tuple[tuple[type[HeadgateError] | tuple[type[HeadgateError], ...], Reason], ...] = (
    ((SchemaRightsMissing, RightsMissing), Reason.RIGHTS_MISSING),
    (ClockNotTrusted, Reason.CLOCK_OUT_OF_BOUNDS),
    ((WrongDataCenter, StorageElsewhere, KeyspaceUnfit), Reason.WRONG_DATA_CENTER),
    (TooManyTables, Reason.TOO_MANY_TABLES),
    (OwnedByAnother, Reason.NAME_TAKEN),
    (ResourceInvalid, Reason.SPEC_INVALID),
    ((InvalidConnectionSettings, EnvironmentProblem), Reason.CONNECTION_MISSING),
    (Conflict, Reason.PROGRESSING),
    (Unavailable, Reason.CASSANDRA_UNAVAILABLE),
    ((InvalidRequest, OperationRefused), Reason.CONNECTION_MISSING),
)


def failure_of(error: HeadgateError) -> ResourceFailure:
    """The first that fits; otherwise Cassandra counts as unavailable."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return ResourceFailure(reason, " ".join(str(error).split()))
    return ResourceFailure(Reason.CASSANDRA_UNAVAILABLE, " ".join(str(error).split()))

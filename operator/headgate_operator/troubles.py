"""Failures of Cassandra, as the reason of a condition and a message for its author. Pure."""

from __future__ import annotations

from headgate.api.parse import ResourceInvalid
from headgate.api.status import Reason
from headgate.applying.decide_steps import StorageElsewhere, TooManyTables
from headgate.errors import Conflict, HeadgateError, Refused, SpecError, Surroundings, Unavailable
from headgate.store.cassandra_settings import SettingsBroken
from headgate.store.catalogue_entry import ElsewhereAtHome, OwnedByAnother
from headgate.store.clocks import ClockNotTrusted
from headgate.store.schema import KeyspaceUnfit, RightsMissing, SchemaRightsMissing
from headgate_operator.world import Trouble

_REASONS: tuple[tuple[type[HeadgateError] | tuple[type[HeadgateError], ...], Reason], ...] = (
    ((SchemaRightsMissing, RightsMissing), Reason.RIGHTS_MISSING),
    (ClockNotTrusted, Reason.CLOCK_OUT_OF_BOUNDS),
    ((ElsewhereAtHome, StorageElsewhere, KeyspaceUnfit), Reason.WRONG_DATA_CENTER),
    (TooManyTables, Reason.TOO_MANY_TABLES),
    (OwnedByAnother, Reason.NAME_TAKEN),
    (ResourceInvalid, Reason.SPEC_INVALID),
    ((SettingsBroken, Surroundings), Reason.CONNECTION_MISSING),
    (Conflict, Reason.PROGRESSING),
    (Unavailable, Reason.CASSANDRA_UNAVAILABLE),
    ((SpecError, Refused), Reason.CONNECTION_MISSING),
)


def trouble_of(error: HeadgateError) -> Trouble:
    """The first that fits; otherwise Cassandra counts as unavailable."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return Trouble(reason, " ".join(str(error).split()))
    return Trouble(Reason.CASSANDRA_UNAVAILABLE, " ".join(str(error).split()))

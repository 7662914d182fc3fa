"""What went wrong with Cassandra, as a reason that a condition may have and a sentence for its author. Pure."""

from __future__ import annotations

from penstock.api.parse import ResourceInvalid
from penstock.api.status import Reason
from penstock.applying.decide_steps import StorageElsewhere, TooManyTables
from penstock.errors import Conflict, PenstockError, Refused, SpecError, Surroundings, Unavailable
from penstock.store.cassandra_settings import SettingsBroken
from penstock.store.catalogue_entry import ElsewhereAtHome, OwnedByAnother
from penstock.store.clocks import ClockNotTrusted
from penstock.store.schema import KeyspaceUnfit, RightsMissing, SchemaRightsMissing
from penstock_operator.world import Trouble

_REASONS: tuple[tuple[type[PenstockError] | tuple[type[PenstockError], ...], Reason], ...] = (
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


def trouble_of(error: PenstockError) -> Trouble:
    """The first that fits; what fits nothing is that Cassandra can not be used as it should."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return Trouble(reason, " ".join(str(error).split()))
    return Trouble(Reason.CASSANDRA_UNAVAILABLE, " ".join(str(error).split()))
